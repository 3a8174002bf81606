"""The cores that producers need, by the size of their batches."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import load_workload
from metrics.planning.load_needs import BYTES_PER_S, REQUEST_S, ExecutorCpu, executor_cpu
from tests.support.patterns import producer_pattern


def test_each_request_and_each_byte_takes_its_time() -> None:
    small = producer_pattern(1_000, 250.0, linger_ms=25.0)
    needed = executor_cpu([small], 70e6)
    assert needed is not None
    assert needed.records == 7
    assert needed.requests_per_s == pytest.approx(10_000)
    assert needed.cores == pytest.approx(10_000 * REQUEST_S + 70e6 / BYTES_PER_S)


def test_the_smallest_batches_decide() -> None:
    sizes = [producer_pattern(size, 250_000 / size, linger_ms=25.0) for size in (100, 1_000)]
    assert executor_cpu(sizes, 1e6) == executor_cpu([sizes[0]], 1e6)


def test_a_producer_without_linger_sends_each_record_by_itself() -> None:
    alone = executor_cpu([producer_pattern(100, 50.0, linger_ms=0.0)], 1e6)
    assert alone is not None
    assert alone.records == 1


def test_a_closed_loop_has_no_known_batches() -> None:
    pattern = load_workload(
        "1kB", ["workload.producer.rate=unlimited", "workload.producer.rate_bytes_per_s=null"]
    )
    assert executor_cpu([pattern.pattern(1_000).producer], 1e6) is None


def test_the_sentence_has_cores_requests_and_records(snapshot: SnapshotAssertion) -> None:
    sentence = str(ExecutorCpu(6.84, 82_041.0, 7))
    assert sentence == snapshot
    for figure in ("6.8 cores", "82,041 requests", "7 records"):
        assert figure in sentence
    assert str(ExecutorCpu(0.1, 10.0, 1)).endswith("batches of 1 record")
