"""Batches that fail are sent again as a real producer does, and every record is accounted for."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from jobs.engine.batches.pool import BatchPool
from jobs.engine.network.transport import PlainTransport
from jobs.engine.producing.batch import UNACKNOWLEDGED
from jobs.engine.producing.loop import WireLoop
from jobs.engine.producing.retries import backoff_s
from metrics.common.errors import RedlineError
from metrics.traffic.producer import ProducerOptions
from tests.support.patterns import plan
from tests.support.scripted_broker import Answer, Script, ScriptedBroker
from tests.support.scripted_log import Log
from tests.support.simulated_time import SimulatedTime
from tests.support.wire_loops import EPOCH_S

PARTITIONS = 4
NOT_LEADER = 6
TIMED_OUT = 7
TOO_LARGE = 10

QUICK = {"retry_backoff_ms": 5.0, "retry_backoff_max_ms": 20.0, "linger_ms": 2.0}


class Cluster:
    """Brokers 1, 2, … of a scripted cluster, and one producer's trial on it.

    Attributes:
        drain_s: time from the window's end to the trial's [s].
    """

    def __init__(self, *scripts: Script, leaders: Mapping[int, int] | None = None) -> None:
        self.log = Log()
        self.time = SimulatedTime()
        self.leaders = dict(leaders or dict.fromkeys(range(PARTITIONS), 1))
        self.brokers = {
            number: ScriptedBroker(script, self.leaders, self.log, self.time)
            for number, script in enumerate(scripts, 1)
        }
        self.is_down = False
        self.drain_s = 0.0

    def _open(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], PlainTransport]:
        if self.is_down:
            raise RedlineError("connection refused")
        brokers = self.brokers
        return {key: self._transport(brokers[key[1]], brokers[key[1]].connect()) for key in wanted}

    def _transport(self, broker: ScriptedBroker, sock: socket.socket) -> PlainTransport:
        return PlainTransport(sock, self.time.now_s + 0.5 * broker.session_s)

    def run(self, rate: float = 2_000.0, drain_timeout_s: float = 20.0, **options: Any) -> WireLoop:
        fields: dict[str, Any] = {"pool_bytes": 200_000, **QUICK}
        trial = plan(
            leaders=(1,) * PARTITIONS,
            brokers={number: ("scripted", number) for number in self.brokers},
            rate_records_per_s=rate,
            drain_timeout_s=drain_timeout_s,
            **(fields | options),
        )
        pattern, client_id = trial.pattern.producer, trial.producer_name(0)
        ids = {client_id: 77} if pattern.options.enable_idempotence else {}
        with contextlib.ExitStack() as stack:
            for broker in self.brokers.values():
                stack.enter_context(broker)
            stack.enter_context(self.time.passing())
            transports = {
                (client_id, number): self._transport(broker, broker.client_socket)
                for number, broker in self.brokers.items()
            }
            pool = BatchPool(pattern)
            loop = WireLoop(
                trial, 0, transports, pool, self.time.clock, producer_ids=ids, opener=self._open
            )
            loop.run(self.time.now_s + 0.05, EPOCH_S)
            self.drain_s = self.time.now_s - loop.account.window.end_s
            for transport in transports.values():
                transport.close()
        return loop


def _well(_number: int) -> Answer:
    return Answer()


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


def test_a_transient_error_is_retried_until_it_passes() -> None:
    cluster = Cluster(lambda number: Answer(NOT_LEADER if 10 <= number < 14 else 0))
    loop = cluster.run()
    counts = loop.account.counts
    assert counts.failed_total == 0
    assert counts.acked_total == cluster.log.records == loop.producers[0].opened
    assert set(counts.retry_errors) == {"NotLeaderForPartitionError"}
    assert counts.retried_records >= 4
    assert counts.by_producer.retried == {0: counts.retried_records}
    assert sum(counts.retried_by_partition.values()) == counts.retried_records
    _all_accounted(loop, cluster.log)
    assert not counts.duplicates_by_partition, "a leader that refuses at acks=1 wrote nothing"
    assert not loop.producers[0].muted


def test_a_permanent_error_is_not_retried() -> None:
    loop = Cluster(lambda number: Answer(TOO_LARGE if number == 10 else 0)).run()
    counts = loop.account.counts
    assert set(counts.errors) == {"MessageSizeTooLargeError"}
    assert not counts.retry_errors


def test_retries_are_counted_and_bounded() -> None:
    cluster = Cluster(lambda _: Answer(NOT_LEADER))
    loop = cluster.run(rate=20.0, retries=2, linger_ms=0)
    counts = loop.account.counts
    assert set(counts.errors) == {"NotLeaderForPartitionError"}
    assert counts.failed_total > 0 == counts.acked_total
    assert counts.retried_records == 2 * counts.failed_total
    assert counts.sent_records <= counts.failed_total, "each counts once"


def test_the_delivery_timeout_bounds_retries() -> None:
    cluster = Cluster(lambda _: Answer(NOT_LEADER))
    loop = cluster.run(rate=50.0, delivery_timeout_ms=200, linger_ms=0)
    counts = loop.account.counts
    assert counts.failed_total > 0
    assert set(counts.errors) <= {"NotLeaderForPartitionError", "KafkaTimeoutError"}
    assert cluster.drain_s < 1.8, "given up 0.2 s after the last was due"


def test_retries_end_with_the_drain_and_each_remaining_record_has_an_error() -> None:
    cluster = Cluster(lambda number: Answer(NOT_LEADER if number >= 10 else 0))
    loop = cluster.run(drain_timeout_s=0.3)
    counts = loop.account.counts
    assert cluster.drain_s < 1.5, "0.3 s, and what a busy machine adds"
    assert counts.errors["NotLeaderForPartitionError"] > 0
    assert set(counts.errors) <= {"NotLeaderForPartitionError", UNACKNOWLEDGED}, "or on the way"
    _all_accounted(loop, cluster.log)


def test_a_moved_leader_is_found_and_written_to() -> None:
    cluster = Cluster(_well, _well)

    def moves(number: int) -> Answer:
        if number < 20:
            return Answer()
        cluster.leaders.update(dict.fromkeys(range(PARTITIONS), 2))
        return Answer(NOT_LEADER)

    cluster.brokers[1].script = moves
    loop = cluster.run()
    assert loop.account.counts.failed_total == 0
    assert cluster.brokers[2].requests > 50
    assert cluster.brokers[1].requests < 60, "requests go to the new leader"
    assert cluster.log.records == loop.producers[0].opened


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_a_lost_connection_is_opened_again(is_idempotent: bool) -> None:
    hang_ups = {15, 16, 40, 70}
    cluster = Cluster(lambda number: Answer(hang_up=number in hang_ups))
    acks = "all" if is_idempotent else "1"
    loop = cluster.run(enable_idempotence=is_idempotent, acks=acks)
    counts, log = loop.account.counts, cluster.log
    assert counts.failed_total == 0
    assert counts.acked_total == loop.producers[0].opened
    assert set(counts.retry_errors) <= {"ConnectionClosed", "BrokenPipeError"}
    duplicates = sum(counts.duplicates_by_partition.values())
    if is_idempotent:
        assert log.records == counts.acked_total, "none lost, none twice"
        assert log.repeats > 0, "the broker got a batch that it had already"
        assert duplicates == 0
    else:
        assert counts.acked_total < log.records <= counts.acked_total + duplicates
    _all_accounted(loop, log)


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_session_ends_without_a_lost_connection_or_a_record_sent_twice(acks: str) -> None:
    cluster = Cluster(lambda _: Answer(delay_s=0.003))
    cluster.brokers[1].session_s = 0.6
    loop = cluster.run(enable_idempotence=acks == "all", acks=acks, measure_s=2.0)
    counts = loop.account.counts
    assert counts.failed_total == counts.retried_records == counts.duplicates_at_most == 0
    assert cluster.log.records == counts.acked_total == loop.producers[0].opened
    assert cluster.brokers[1].connections > 3, "each for less than its session"
    for partition in range(PARTITIONS):
        times = cluster.log.times_of(partition)
        assert times == sorted(times)


def test_with_one_request_in_flight_the_order_is_kept() -> None:
    rng = random.Random(5)
    codes = [rng.choice([0, 0, NOT_LEADER]) for _ in range(2_000)]
    cluster = Cluster(lambda number: Answer(codes[number]))
    cluster.run(max_in_flight=1, batch_size=600)
    for partition in range(PARTITIONS):
        times = cluster.log.times_of(partition)
        assert times == sorted(times) and len(times) > 3


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
            return Answer(hang_up=True)
        return Answer(rng.choice([NOT_LEADER, TIMED_OUT]))

    cluster = Cluster(script, script)
    loop = cluster.run(enable_idempotence=True, acks="all")
    counts, log = loop.account.counts, cluster.log
    assert counts.failed_total == 0
    assert counts.retry_errors
    assert log.records == counts.acked_total == loop.producers[0].opened
    for partition in range(PARTITIONS):
        times = log.times_of(partition)
        assert times == sorted(times), "sequences keep the order, too"


def test_after_a_refused_batch_a_new_epoch_continues() -> None:
    cluster = Cluster(lambda number: Answer(TOO_LARGE if number % 20 == 10 else 0, delay_s=0.003))
    loop = cluster.run(enable_idempotence=True, acks="all")
    counts = loop.account.counts
    assert set(counts.errors) == {"MessageSizeTooLargeError"}
    assert counts.acked_total == cluster.log.records
    assert counts.acked_total + counts.failed_total == loop.producers[0].opened


def test_a_broker_that_forgot_the_producer_gets_a_new_epoch() -> None:
    cluster = Cluster(_well)

    def forgets(number: int) -> Answer:
        if number == 30:
            cluster.log.forget_producers()
        return Answer(delay_s=0.002)

    cluster.brokers[1].script = forgets
    loop = cluster.run(enable_idempotence=True, acks="all")
    counts = loop.account.counts
    assert "OutOfOrderSequenceNumberError" in counts.retry_errors
    assert counts.failed_total == 0
    assert counts.acked_total == cluster.log.records == loop.producers[0].opened


def test_while_no_broker_is_there_batches_wait_and_the_load_still_ends_in_time() -> None:
    cluster = Cluster(lambda number: Answer() if number < 20 else None)
    cluster.is_down = True
    loop = cluster.run(drain_timeout_s=0.4, buffer_memory=4_000)
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
