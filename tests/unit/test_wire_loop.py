"""The event loop accounts for every record with any answers of a broker."""

from __future__ import annotations

import gc
import os
import sys

import pytest

from jobs.engine.batches.compression import CODECS
from jobs.engine.task.control_channel import OrphanedError
from metrics.traffic.payload import Payload
from tests.support.scripted_broker import Answer
from tests.support.wire_loops import run_loop


def test_acknowledged_records_are_those_that_the_broker_got() -> None:
    loop, broker = run_loop(lambda _: Answer())
    counts, window = loop.account.counts, loop.account.window
    offered = loop.producers[0].records_due_between(window.start_s, window.end_s)
    assert offered == 1_000
    assert counts.acked_total == broker.records == loop.producers[0].opened
    assert broker.records == pytest.approx(1_200, rel=0.05)
    assert counts.acked_records == pytest.approx(offered, rel=0.05)
    assert sum(counts.acked_by_partition.values()) == broker.records
    assert counts.unsent_own_records < 100, "only what the last turn of a busy machine left"
    assert counts.produce_requests is not None
    assert 0 < counts.produce_requests < broker.requests, "those of the warm-up do not count"
    assert counts.failed_total == 0


def test_no_collection_and_no_thread_delays_the_schedule_during_the_load() -> None:
    def look(_number: int) -> Answer:
        seen.add((gc.isenabled(), sys.getswitchinterval()))
        return Answer()

    seen: set[tuple[bool, float]] = set()
    before = gc.isenabled(), sys.getswitchinterval()
    run_loop(look)
    assert seen == {(False, 0.0005)}, "no collection, and other threads take short turns"
    assert (gc.isenabled(), sys.getswitchinterval()) == before


def test_a_slow_broker_makes_batches_wait_and_grow() -> None:
    loop, broker = run_loop(lambda _: Answer(delay_s=0.05), max_in_flight=1)
    counts = loop.account.counts
    assert counts.unsent_own_records == 0, "the broker held them up, not the generator"
    assert counts.acked_records == pytest.approx(1_000, rel=0.2), "full batches keep up"
    assert broker.records / broker.requests > 60, "five would be the batch of a fast broker"
    assert loop.account.latency.histogram.quantile(50) > 45_000, "counted from the intended time"


def test_a_broker_that_cannot_keep_up_leaves_a_shortfall() -> None:
    loop, broker = run_loop(lambda _: Answer(delay_s=0.05), max_in_flight=1, batch_size=1_000)
    counts = loop.account.counts
    assert counts.acked_records < 0.5 * 1_000
    assert counts.unsent_own_records == 0
    assert counts.acked_total == broker.records


def test_buffer_memory_blocks_the_producer_and_nothing_is_lost_from_the_account() -> None:
    loop, broker = run_loop(
        lambda _: Answer(delay_s=0.05), max_in_flight=1, batch_size=1_000, buffer_memory=4_000
    )
    counts = loop.account.counts
    assert loop.producers[0].buffered_bytes <= 5_000
    assert counts.acked_total == broker.records
    assert counts.unsent_own_records == 0


def test_an_error_code_is_counted_by_its_name() -> None:
    loop, broker = run_loop(lambda number: Answer(error_code=6 if number % 2 else 0))
    counts = loop.account.counts
    assert set(counts.errors) == {"NotLeaderForPartitionError"}
    assert counts.acked_total + counts.failed_total == broker.records
    assert counts.failed_total > 0 < counts.acked_total


def test_a_lost_connection_fails_requests_in_flight_and_later_batches_wait() -> None:
    loop, broker = run_loop(lambda number: Answer() if number < 20 else None)
    counts, producer = loop.account.counts, loop.producers[0]
    assert set(counts.errors) <= {"ConnectionClosed", "BrokenPipeError", "ConnectionResetError"}
    assert 0 < counts.failed_total < 100
    assert counts.acked_total + counts.failed_total <= producer.opened
    assert counts.unsent_own_records == 0, "the broker held them up, not the generator"
    assert broker.time.now_s - loop.account.window.end_s < 0.5, "nothing to wait for"


def test_a_request_without_an_answer_times_out() -> None:
    loop, _ = run_loop(lambda number: Answer(silent=number >= 10), request_timeout_ms=100)
    counts = loop.account.counts
    assert set(counts.errors) == {"RequestTimedOutError"}
    assert counts.failed_total > 0 < counts.acked_total


def test_throttling_is_reported() -> None:
    loop, _ = run_loop(lambda _: Answer(throttle_ms=3))
    assert loop.account.counts.throttle_ms > 0


def test_acks_0_counts_the_bytes_that_the_socket_took() -> None:
    loop, broker = run_loop(lambda _: Answer(silent=True, delay_s=0.002), acks="0")
    assert broker.metadata_requests == 1, "without an answer for all records, a close may lose some"
    assert loop.account.counts.acked_total == broker.records > 1_000


def test_the_load_ends_when_its_parent_does(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([os.getppid()])
    monkeypatch.setattr(os, "getppid", lambda: next(parents, 1))
    with pytest.raises(OrphanedError):
        run_loop(lambda _: Answer())


@pytest.mark.parametrize("compression", CODECS)
def test_batches_of_any_codec_are_taken_and_their_payload_counted(compression: str) -> None:
    payload = Payload(
        "mixed", compressibility=0.5, sizes="uniform", size_spread=1.0, key_bytes=4, headers=1
    )
    loop, broker = run_loop(
        lambda _: Answer(delay_s=0.01), compression=compression, payload=payload, max_in_flight=1
    )
    counts = loop.account.counts
    assert counts.acked_total == broker.records == loop.producers[0].opened > 1_000
    assert counts.acked_bytes == pytest.approx(100 * counts.acked_records, rel=0.1)
    assert counts.acked_bytes != 100 * counts.acked_records
    assert broker.records / broker.requests > 8, "batches grow although not every count is kept"
