"""Invented evidence: windows, and samples of a broker whose counters grow at known rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from metrics.judging.thresholds import Indicators, Thresholds, Validity
from metrics.judging.verdict import judge
from metrics.sources.beans import PHASES
from metrics.sources.sample import BrokerSample
from metrics.trial.adding import Quantiles
from metrics.trial.client import ClientWindow, Counts
from metrics.trial.evidence import Evidence, Judgement
from metrics.windows.broker import BrokerWindow, RequestWindow
from metrics.windows.host import DiskWindow, HostWindow, InterfaceWindow

START_S = 1_000_000.0


_COUNTS = {item.name for item in fields(Counts)}
_INDICATORS = {item.name for item in fields(Indicators)}


def client(**changes: Any) -> ClientWindow:
    """A window of 10 s in which all offered records were acknowledged.

    Args:
        changes: fields of the window, of its counts (`acked_records`) and of its latencies
            (`latency_p99_ms`) with other values; `errors` are errors of partition 1.
    """
    if "errors" in changes:
        changes["errors_by_partition"] = {1: changes.pop("errors")}
    counts = {
        "offered_records": 10_000,
        "sent_records": 10_000,
        "acked_records": 10_000,
        "offered_bytes": 1_000_000,
        "acked_bytes": 1_000_000,
        "loop_busy": 0.2,
        "acked_by_partition": {0: 6_000, 1: 6_000},
        **{name: value for name, value in changes.items() if name in _COUNTS},
    }
    latency = {"p50_ms": 2.0, "p95_ms": 4.0, "p99_ms": 8.0, "p999_ms": 10.0, "max_ms": 20.0}
    prefix = "latency_"
    for name, value in changes.items():
        if name.startswith(prefix):
            latency[name.removeprefix(prefix)] = value
    window = ClientWindow(
        START_S, START_S + 10, Counts(**counts), Quantiles(**latency), lateness_p99_ms=0.5
    )
    rest = {
        name: value
        for name, value in changes.items()
        if name not in _COUNTS and not name.startswith(prefix)
    }
    return replace(window, **rest)


def evidence(
    seen: ClientWindow | None = None,
    brokers: Sequence[BrokerWindow] | None = None,
    growth: Mapping[int, int] | None = None,
    **changes: Any,
) -> Evidence:
    """Evidence of a trial, by default with three brokers that are far from their limits.

    Args:
        growth: partition → growth of its end offset, which starts at 5.
    """
    whole = Evidence(
        seen or client(),
        (broker(1), broker(2), broker(3)) if brokers is None else tuple(brokers),
        metrics_source="driver-jvm",
        end_offsets=None if growth is None else {p: (5, 5 + n) for p, n in growth.items()},
    )
    return replace(whole, **changes)


def goal(**limits: Any) -> Thresholds:
    """Thresholds with these limits of indicators and of validity."""
    own = {name: value for name, value in limits.items() if name in _INDICATORS}
    rest = {name: value for name, value in limits.items() if name not in _INDICATORS}
    return Thresholds(Indicators(**own), Validity(**rest))


def judged(
    seen: ClientWindow | None = None,
    brokers: Sequence[BrokerWindow] | None = None,
    thresholds: Thresholds | None = None,
    growth: Mapping[int, int] | None = None,
    **changes: Any,
) -> Judgement:
    """The judgement of a goal on evidence with these parts, see `evidence`."""
    return judge(evidence(seen, brokers, growth, **changes), thresholds or Thresholds())


def broker(broker_id: int = 1, **changes: Any) -> BrokerWindow:
    """The window of a broker far from its limits, without missing samples."""
    window = BrokerWindow(
        broker_id=broker_id,
        start_s=START_S,
        end_s=START_S + 10,
        interval_s=1.0,
        samples_expected=10,
        samples_missed=0,
        edge_gap_s=0.5,
        handler_idle=0.8,
        network_idle=0.9,
        request_queue_max=1.0,
        produce=RequestWindow(
            per_s=100.0,
            total_ms=2.0,
            request_queue_ms=0.1,
            local_ms=1.0,
            remote_ms=0.0,
            throttle_ms=0.0,
            response_queue_ms=0.0,
            response_send_ms=0.1,
        ),
        isr_shrinks=0.0,
        isr_expands=0.0,
        isr_changed_share=0.0,
        under_replicated_max=0.0,
        bytes_in_per_s=1e6,
        replication_bytes_in_per_s=0.0,
        cpu_cores=0.3,
        cpu_machine_share=0.4,
        flush_per_s=100.0,
        flush_ms=0.2,
        flush_threads=0.02,
        leader_partitions_min=10.0,
        leader_partitions_max=10.0,
    )
    return replace(window, **changes)


HOST = HostWindow(
    "h",
    (1, 2, 3),
    generates=False,
    shares_machine=True,
    start_s=0.0,
    end_s=10.0,
    samples=10,
    cores=4.0,
    cpu_busy=0.3,
    running_threads=2.0,
    swapped_pages_per_s=0.0,
    oom_kills=0.0,
    retransmitted_share=0.0001,
    disks=(DiskWindow("sda", 0.0, 1e6, 20.0, 0.2, 0.1),),
    interfaces=(InterfaceWindow("eth0", 50e6, 10e6, 60_000.0, 0.0, 0.0, 125e6),),
)
"""The window of a host of three brokers far from its limits."""


def links(**changes: Any) -> tuple[InterfaceWindow, ...]:
    """The interface of `HOST` with changes."""
    return (replace(HOST.interfaces[0], **changes),)


def sample(
    at_s: float, values: Mapping[str, float] | None = None, broker_id: int = 1
) -> BrokerSample:
    """A valid sample `at_s` seconds after START_S, with an uptime that follows the wall clock."""
    readings = {"uptime_ms": (1_000 + at_s) * 1000.0, **(values or {})}
    return BrokerSample(broker_id, START_S + at_s, readings)


def busy_samples(seconds: int = 12, idle: float = 0.5) -> list[BrokerSample]:
    """One sample per second of a broker with constant rates.

    Each second has 200 produce requests of 4 ms, 3 ms of it local, 10 flushes of 20 ms, 5,000
    messages, 500,000 bytes, half a core of CPU and 10 ms of garbage collection.
    """
    taken = []
    for second in range(seconds):
        counters = {
            "handler_idle_ns": 7e9 + idle * 1e9 * second,
            "network_wait_ns:PLAINTEXT/0": 3e9 + 0.6e9 * second,
            "network_wait_ns:PLAINTEXT/1": 9e9 + 0.3e9 * second,
            "messages_in": 70 + 5_000.0 * second,
            "bytes_in": 7_000 + 500_000.0 * second,
            "process_cpu_ns": 4e9 + 0.5e9 * second,
            "gc_ms:G1 Young Generation": 40 + 7.0 * second,
            "gc_ms:G1 Old Generation": 3.0 * second,
            "isr_shrinks": 2.0,
            "isr_expands": 2.0,
        }
        gauges = {
            "processors": 2.0,
            "machine_cpu_share": 0.75,
            "under_replicated_partitions": 0.0,
            "request_queue_size": float(second % 3),
            "leader_partitions": 10.0,
            "heap_used_bytes": 100.0 + second,
            "heap_max_bytes": 1000.0,
        }
        produce = {"total": 4.0, "local": 3.0, "request_queue": 0.5}
        histograms = {
            f"produce_{phase}_ms": (200, produce.get(phase, 0.0), 50, 9.0) for phase in PHASES
        } | {"log_flush_ms": (10, 20.0, 5, 100.0)}
        values = {**counters, **gauges}
        for name, (per_s, mean, count_0, mean_0) in histograms.items():
            count = count_0 + per_s * second
            values[f"{name}_count"] = float(count)
            values[f"{name}_mean"] = (count_0 * mean_0 + per_s * second * mean) / count
        taken.append(sample(second - 1.0, values))
    return taken


def with_one(**changes: Any) -> tuple[BrokerWindow, ...]:
    """The windows of three brokers far from their limits, with changes of the second."""
    return (broker(1), replace(broker(2), **changes), broker(3))


def rules(judgement: Judgement) -> set[str]:
    """Names of the rules that decided a verdict."""
    return {reason.indicator for reason in judgement.reasons}
