"""The cores that producers need, by the size of their batches."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import load_workload
from metrics.planning.load_needs import BYTES_PER_S, REQUEST_S, ExecutorCpu, executor_cpu
from tests.support.patterns import producer_pattern


def test_each_request_of_the_smallest_batches_and_each_byte_takes_its_time() -> None:
    small, large = (producer_pattern(n, 250_000 / n, linger_ms=25.0) for n in (1_000, 9_000))
    needed = executor_cpu([large, small], 70e6)
    assert needed is not None
    assert needed.records == 7
    assert needed.requests_per_s == pytest.approx(10_000)
    assert needed.cores == pytest.approx(10_000 * REQUEST_S + 70e6 / BYTES_PER_S)


def test_a_closed_loop_has_no_known_batches() -> None:
    rates = ["workload.producer.rate=unlimited", "workload.producer.rate_bytes_per_s=null"]
    pattern = load_workload("1kB", rates).pattern(1_000)
    assert executor_cpu([pattern.producer], 1e6) is None


def test_the_sentence_has_cores_requests_and_records(snapshot: SnapshotAssertion) -> None:
    assert str(ExecutorCpu(6.84, 82_041.0, 7)) == snapshot
    assert str(ExecutorCpu(0.1, 10.0, 1)).endswith("batches of 1 record")
