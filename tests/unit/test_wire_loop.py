"""The event loop with scripted brokers: it accounts for every record, whatever they answer."""

from __future__ import annotations

import gc
import os
import random
import sys
from typing import Any

import pytest

from jobs.engine.batches.pool import CODECS
from jobs.engine.producing.batch import UNACKNOWLEDGED
from jobs.engine.producing.loop import WireLoop
from jobs.engine.producing.retries import backoff_s
from jobs.engine.task.control_channel import OrphanedError
from metrics.traffic.clients import ProducerOptions
from metrics.traffic.payload import Payload
from tests.support.scripted_broker import Answer
from tests.support.scripted_log import Log
from tests.support.wire_loops import PARTITIONS, Cluster, run_loop

NOT_LEADER, TIMED_OUT, TOO_LARGE = 6, 7, 10
IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "acks": "all"}
RETRIES = {"retry_backoff_ms": 5.0, "retry_backoff_max_ms": 20.0, "drain_timeout_s": 20.0}


def _well(_number: int) -> Answer:
    return Answer()


def test_no_collection_delays_a_load_whose_acknowledged_records_are_the_brokers() -> None:
    def look(_number: int) -> Answer:
        seen.add((gc.isenabled(), sys.getswitchinterval()))
        return Answer()

    seen: set[tuple[bool, float]] = set()
    before = gc.isenabled(), sys.getswitchinterval()
    loop, broker = run_loop(look)
    assert seen == {(False, 0.0005)}, "no collection, and other threads take short turns"
    assert (gc.isenabled(), sys.getswitchinterval()) == before
    counts, window = loop.account.counts, loop.account.window
    offered = loop.producers[0].records_due_between(window.start_s, window.end_s)
    assert offered == 1_000
    assert counts.acked_total == broker.records == loop.producers[0].opened
    assert broker.records == pytest.approx(1_200, rel=0.05)
    assert counts.acked_records == pytest.approx(offered, rel=0.05)
    assert counts.unsent_own_records < 100, "only what the last turn of a busy machine left"
    assert 0 < (counts.produce_requests or 0) < broker.requests, "the warm-up does not count"


def test_a_slow_broker_makes_batches_wait_and_grow_or_leaves_a_shortfall() -> None:
    loop, broker = run_loop(lambda _: Answer(delay_s=0.05), max_in_flight=1)
    counts = loop.account.counts
    assert counts.unsent_own_records == 0, "the broker held them up, not the generator"
    assert counts.acked_records == pytest.approx(1_000, rel=0.2), "full batches keep up"
    assert broker.records / broker.requests > 60, "five would be the batch of a fast broker"
    assert loop.account.latency.histogram.quantile(50) > 45_000, "counted from the intended time"
    small = {"max_in_flight": 1, "batch_size": 1_000}
    for options in (small, {**small, "buffer_memory": 4_000}):
        loop, broker = run_loop(lambda _: Answer(delay_s=0.05), **options)
        counts = loop.account.counts
        assert counts.acked_records < 0.5 * 1_000
        assert counts.unsent_own_records == 0
        assert counts.acked_total == broker.records
        assert options == small or loop.producers[0].buffered_bytes <= 5_000


def test_without_retries_an_error_code_or_a_missing_answer_is_counted_by_its_name() -> None:
    loop, broker = run_loop(lambda number: Answer(NOT_LEADER if number % 2 else 0, throttle_ms=3))
    counts = loop.account.counts
    assert set(counts.errors) == {"NotLeaderForPartitionError"}
    assert counts.acked_total + counts.failed_total == broker.records
    assert counts.failed_total > 0 < counts.acked_total
    assert counts.throttle_ms == 3 * broker.requests
    loop, _ = run_loop(lambda number: Answer(silent=number >= 10), request_timeout_ms=100)
    counts = loop.account.counts
    assert set(counts.errors) == {"RequestTimedOutError"}
    assert counts.failed_total > 0 < counts.acked_total
    loop, broker = run_loop(lambda _: Answer(silent=True, delay_s=0.002), acks="0")
    assert broker.metadata_requests == 1, "without an answer for all records, a close may lose some"
    assert loop.account.counts.acked_total == broker.records > 1_000, "bytes that the socket took"


def test_the_load_ends_when_its_parent_does(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([os.getppid()])
    monkeypatch.setattr(os, "getppid", lambda: next(parents, 1))
    with pytest.raises(OrphanedError):
        run_loop(_well)


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


def _all_accounted(loop: WireLoop, log: Log) -> None:
    """Every sealed record is acknowledged or failed, and the log holds at most these."""
    counts = loop.account.counts
    for partition in range(PARTITIONS):
        acked = counts.acked_by_partition.get(partition, 0)
        failed = counts.failed_by_partition.get(partition, 0)
        duplicates = counts.duplicates_by_partition.get(partition, 0)
        assert acked <= log.records_of(partition) <= acked + failed + duplicates
    (producer,) = loop.producers
    index, own = producer.index, counts.by_producer
    assert own.acked[index] == counts.acked_total
    assert own.failed.get(index, {}) == counts.errors
    assert own.sent[index] == sum(counts.sent_by_partition.values())
    assert own.duplicates.get(index, 0) == counts.duplicates_at_most
    assert own.retried.get(index, 0) == counts.retried_records


def _none_lost(loop: WireLoop, log: Log) -> None:
    """Every sent record is acknowledged and once in the log, in order."""
    counts = loop.account.counts
    assert counts.failed_total == 0
    assert counts.acked_total == log.records == sum(counts.sent_by_partition.values())
    for partition in range(PARTITIONS):
        times = log.times_of(partition)
        assert times == sorted(times) and len(times) > 3
    _all_accounted(loop, log)


def test_retries_end_with_the_drain_and_each_remaining_record_has_an_error() -> None:
    cluster = Cluster(lambda number: Answer(NOT_LEADER if number >= 10 else 0))
    loop = cluster.run(**(RETRIES | {"drain_timeout_s": 0.3}))
    counts = loop.account.counts
    assert cluster.drain_s < 1.5, "0.3 s, and what a busy machine adds"
    assert counts.errors["NotLeaderForPartitionError"] > 0
    assert set(counts.errors) <= {"NotLeaderForPartitionError", UNACKNOWLEDGED}, "or on the way"
    _all_accounted(loop, cluster.log)


@pytest.mark.parametrize("options", [{}, IDEMPOTENT])
def test_a_lost_connection_is_opened_again(options: dict[str, Any]) -> None:
    hang_ups = {15, 16, 40, 70}
    cluster = Cluster(lambda number: Answer(hang_up=number in hang_ups))
    loop = cluster.run(**RETRIES, **options)
    counts, log = loop.account.counts, cluster.log
    assert counts.failed_total == 0
    assert counts.acked_total == loop.producers[0].opened
    assert set(counts.retry_errors) <= {"ConnectionClosed", "BrokenPipeError"}
    duplicates = sum(counts.duplicates_by_partition.values())
    if options:
        assert log.records == counts.acked_total, "none lost, none twice"
        assert log.repeats > 0, "the broker got a batch that it had already"
        assert duplicates == 0
    else:
        assert counts.acked_total < log.records <= counts.acked_total + duplicates
    _all_accounted(loop, log)


@pytest.mark.parametrize("options", [{}, IDEMPOTENT])
def test_a_session_ends_without_a_lost_connection_or_a_record_sent_twice(
    options: dict[str, Any],
) -> None:
    cluster = Cluster(lambda _: Answer(delay_s=0.003))
    cluster.brokers[1].session_s = 0.6
    loop = cluster.run(measure_s=2.0, **RETRIES, **options)
    _none_lost(loop, cluster.log)
    assert loop.account.counts.retried_records == loop.account.counts.duplicates_at_most == 0
    assert cluster.brokers[1].connections > 3, "each for less than its session"


@pytest.mark.parametrize("seed", range(6))
def test_idempotence_survives_any_mix_of_failures(seed: int) -> None:
    rng = random.Random(seed)

    def script(number: int) -> Answer | None:
        chance = rng.random()
        if number > 150 or chance < 0.8:
            return Answer(delay_s=0.001)
        if chance < 0.84:
            return None
        if chance < 0.88:
            return Answer(cut=rng.randrange(60))
        return Answer(rng.choice([NOT_LEADER, TIMED_OUT]))

    cluster = Cluster(script, script)
    loop = cluster.run(**RETRIES, **IDEMPOTENT)
    _none_lost(loop, cluster.log)
    assert loop.account.counts.retry_errors


def test_without_idempotence_one_request_in_flight_keeps_the_order() -> None:
    rng = random.Random(5)
    codes = [rng.choice([0, 0, NOT_LEADER]) for _ in range(2_000)]
    cluster = Cluster(lambda number: Answer(codes[number]))
    loop = cluster.run(max_in_flight=1, batch_size=600, **RETRIES)
    _none_lost(loop, cluster.log)
    counts = loop.account.counts
    assert set(counts.retry_errors) == {"NotLeaderForPartitionError"}
    assert sum(counts.retried_by_partition.values()) == counts.retried_records > 0
    assert not counts.duplicates_by_partition, "a leader that refuses at acks=1 wrote nothing"


def test_a_new_epoch_continues_after_a_refused_batch_or_a_forgotten_producer() -> None:
    cluster = Cluster(lambda number: Answer(TOO_LARGE if number % 20 == 10 else 0, delay_s=0.003))
    loop = cluster.run(**RETRIES, **IDEMPOTENT)
    counts = loop.account.counts
    assert set(counts.errors) == {"MessageSizeTooLargeError"}
    assert counts.acked_total == cluster.log.records
    assert counts.acked_total + counts.failed_total == loop.producers[0].opened

    def forgets(number: int) -> Answer:
        if number == 30:
            cluster.log.forget_producers()
        return Answer(delay_s=0.002)

    cluster = Cluster(forgets)
    loop = cluster.run(**RETRIES, **IDEMPOTENT)
    assert "OutOfOrderSequenceNumberError" in loop.account.counts.retry_errors
    _none_lost(loop, cluster.log)


def test_while_no_broker_is_there_batches_wait_and_the_load_still_ends_in_time() -> None:
    cluster = Cluster(lambda number: Answer() if number < 20 else None)
    cluster.is_down = True
    loop = cluster.run(buffer_memory=4_000, **(RETRIES | {"drain_timeout_s": 0.4}))
    assert loop.producers[0].blocked, "its memory is full"
    assert loop.account.counts.unsent_own_records == 0
    assert cluster.drain_s < 1.6
    _all_accounted(loop, cluster.log)


def test_backoff_doubles_up_to_its_bound_with_jitter() -> None:
    options = ProducerOptions(retry_backoff_ms=100.0, retry_backoff_max_ms=1_000.0)
    rng = random.Random(1)
    for failures, expected_s in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (2_000, 1.0)):
        waits = [backoff_s(options, failures, rng) for _ in range(300)]
        assert 0.8 * expected_s <= min(waits) < 0.85 * expected_s
        assert max(waits) <= min(1.2 * expected_s, 1.0)
        assert max(waits) > min(1.15 * expected_s, 0.999)
