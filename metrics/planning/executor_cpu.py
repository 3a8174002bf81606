"""The CPU time of the engine's producers, from the size of their batches.

A produce request costs about the same whatever it holds, and its bytes cost the time that the
kernel needs to copy them. Both figures are measured by `make bench` (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metrics.traffic.producer import ProducerPattern

REQUEST_S = 110e-6
"""CPU time of a produce request with one batch, and of its answer [CPU-s], on slow cores."""

BYTES_PER_S = 2e9
"""Payload that producers with large batches move in a second of CPU time [B/CPU-s]."""


@dataclass(frozen=True)
class ExecutorCpu:
    """The CPU time that producers need at a load.

    Attributes:
        cores: CPU time per second.
        requests_per_s: produce requests per second, each with one batch.
        records: records in a batch while the brokers keep up.
    """

    cores: float
    requests_per_s: float
    records: int

    def __str__(self) -> str:
        """A sentence for the plan of a run."""
        noun = "record" if self.records == 1 else "records"
        return (
            f"producers need about {self.cores:.1f} cores of the executors at that load, without "
            f"TLS: {self.requests_per_s:,.0f} requests a second with batches of {self.records:,} "
            f"{noun}"
        )


def executor_cpu(patterns: Iterable[ProducerPattern], bytes_per_s: float) -> ExecutorCpu | None:
    """The CPU time of a payload rate, by the pattern whose batches are the smallest.

    Args:
        patterns: the producers of each message size.
        bytes_per_s: payload of all producers together [B/s].

    Returns:
        None for closed loops, whose batches depend on the brokers.
    """
    sizes = {
        each.records_per_batch * each.message_bytes: each.records_per_batch
        for each in patterns
        if not each.closed_loop
    }
    if not sizes:
        return None
    smallest = min(sizes)
    requests_per_s = bytes_per_s / smallest
    cores = requests_per_s * REQUEST_S + bytes_per_s / BYTES_PER_S
    return ExecutorCpu(cores, requests_per_s, sizes[smallest])
