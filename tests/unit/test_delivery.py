"""The delivery core with its events and times: no socket, no thread, no real time."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engine.producing.batch import EXPIRED, UNACKNOWLEDGED, Batch
from jobs.engine.producing.delivery import Action, Produce, Reopen, SendMetadataRequest
from jobs.engine.producing.producer import Connection
from tests.support.driven_delivery import BROKERS, RECORD_BYTES, DrivenDelivery
from tests.support.scripted_log import Log

BATCH_BYTES = 161
"""Size of a batch of one record, with the header [B]."""

NOT_LEADER = 6
TIMED_OUT = 7
TOO_LARGE = 10
TOO_FEW_REPLICAS = 19
OUT_OF_ORDER = 45
DUPLICATE = 46
UNKNOWN_PRODUCER = 59

IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "acks": "all"}
ALONE = 0.001
"""A rate at which only record 0 is due in the window [1/s]."""


def sent(actions: Sequence[Action]) -> list[int]:
    """Index of the first record of each batch, of requests with one batch each."""
    found = []
    for action in actions:
        if isinstance(action, Produce):
            (batch,) = action.batches
            found.append(batch.first)
    return found


def other(actions: Sequence[Action]) -> list[tuple[type[Action], int]]:
    """The actions other than produce requests, with their brokers."""
    return [
        (type(action), action.connection.broker)
        for action in actions
        if not isinstance(action, Produce)
    ]


def stamps(connection: Connection) -> list[tuple[int, int] | None]:
    """Epoch and sequence of the batches in flight."""
    return [batch.stamp for _, batches in connection.in_flight for batch in batches]


# --- sending ----------------------------------------------------------------


def test_each_batch_is_sent_when_it_is_due() -> None:
    driven = DrivenDelivery(end_s=3.0)
    assert sent(driven.until(0.0)) == [0]
    assert driven.delivery.next_s == 1.0
    assert driven.until(0.999) == []
    assert sent(driven.until(1.0)) == [1]
    assert sent(driven.until(9.0)) == [2], "a record due at the end of the window is not sent"
    assert driven.delivery.next_s == math.inf
    assert driven.counts.sent_by_partition == {0: 3}


def test_a_generator_that_runs_late_takes_no_record_from_after_the_window() -> None:
    driven = DrivenDelivery(end_s=4.0, max_in_flight=1)
    driven.until(0.0)
    driven.now = 9.5
    assert driven.until(9.5) == []
    assert driven.producer.opened == 4


def test_latency_counts_from_the_due_time_and_lateness_is_the_generators() -> None:
    driven = DrivenDelivery(rate=ALONE)
    driven.now = 0.25  # a busy generator comes to it only now
    assert sent(driven.until(0.25)) == [0]
    driven.answer(driven.one, 0.75)
    for log, expected_us in ((driven.account.lateness, 250_000), (driven.account.latency, 750_000)):
        log.fold()
        assert log.histogram.quantile(50) == pytest.approx(expected_us, rel=0.001)
    assert (driven.counts.acked_records, driven.counts.acked_bytes) == (1, RECORD_BYTES)


def test_batches_that_the_broker_delayed_are_not_late() -> None:
    driven = DrivenDelivery(max_in_flight=1)
    driven.until(3.5)
    driven.answer(driven.one, 3.5)
    driven.until(3.9)
    driven.account.lateness.fold()
    assert driven.account.lateness.histogram.count == 1, "only the first, which nothing held up"


def test_a_connection_holds_no_more_requests_than_allowed() -> None:
    driven = DrivenDelivery(max_in_flight=2)
    assert sent(driven.until(3.5)) == [0, 1]
    driven.answer(driven.one, 3.5)
    assert sent(driven.until(3.5)) == [2], "one answer makes room for one request"
    driven.answer(driven.one, 3.6)
    assert sent(driven.until(3.6)) == [3], "its open batch was ready and goes along"


def test_answers_may_gather_only_while_no_batch_waits_for_one() -> None:
    driven = DrivenDelivery(max_in_flight=1)
    driven.until(0.5)
    assert driven.delivery.may_gather(0.5), "a request in flight holds up nothing"
    driven.until(1.0)
    assert not driven.delivery.may_gather(1.0)
    driven.answer(driven.one, 1.05)
    driven.until(1.05)
    assert not driven.delivery.may_gather(1.09), "the next batch will probably wait, too"
    assert driven.delivery.may_gather(1.11)
    driven.answer(driven.one, 1.2, NOT_LEADER)
    assert not driven.delivery.may_gather(1.2), "a batch waits to be sent again"


def test_batches_that_wait_grow_until_they_are_full() -> None:
    driven = DrivenDelivery(max_in_flight=1, full=3)
    driven.until(2.5)
    driven.answer(driven.one, 2.5)
    (request,) = driven.until(2.5)
    assert isinstance(request, Produce)
    assert [(each.first, each.records) for each in request.batches] == [(1, 2)]
    driven.until(7.5)
    driven.answer(driven.one, 7.5)
    (request,) = driven.until(7.5)
    assert isinstance(request, Produce)
    assert [(each.first, each.records) for each in request.batches] == [(3, 3)]


def test_one_request_takes_the_waiting_batches_of_all_partitions() -> None:
    driven = DrivenDelivery(leaders=(1,) * 4, max_in_flight=1, batch_size=1)
    driven.until(6.5)
    driven.answer(driven.one, 6.5)
    (request,) = driven.until(6.5)
    assert isinstance(request, Produce)
    partitions = [batch.partition for batch in request.batches]
    assert len(set(partitions)) == len(partitions) > 1


def test_partitions_are_written_to_at_their_leaders() -> None:
    driven = DrivenDelivery(leaders=(1, 2), batch_size=1)
    requests = [each for each in driven.until(9.0) if isinstance(each, Produce)]
    assert {(each.batches[0].partition, each.connection.broker) for each in requests} == {
        (0, 1), (1, 2)
    }  # fmt: skip


def test_throttling_and_records_in_the_log_are_summed() -> None:
    driven = DrivenDelivery()
    driven.until(1.0)
    driven.delivery.handle_produce_response(driven.one, {0: 0}, 30, 1.1)
    driven.delivery.handle_produce_response(driven.one, {0: 0}, 12, 1.2)
    assert driven.counts.throttle_ms == 42
    assert driven.delivery.log_bytes == 2 * BATCH_BYTES


def test_a_partition_without_an_answer_of_its_own_has_failed() -> None:
    driven = DrivenDelivery(rate=ALONE)
    driven.until(0.0)
    driven.delivery.handle_produce_response(driven.one, {}, 0, 0.1)
    assert (driven.counts.acked_total, driven.counts.errors) == (0, {"UnknownError": 1})


# --- sending again ----------------------------------------------------------


def test_a_failed_partition_is_muted_and_sent_again_one_by_one_in_order() -> None:
    driven = DrivenDelivery()
    assert sent(driven.until(2.0)) == [0, 1, 2]
    driven.answer(driven.one, 2.1, TOO_FEW_REPLICAS)
    driven.answer(driven.one, 2.2)
    driven.answer(driven.one, 2.3, TOO_FEW_REPLICAS)
    assert driven.until(2.3) == [], "there is a back-off"
    assert sent(driven.until(3.5)) == [0], "later batches wait: 2, and 3, which is new"
    driven.answer(driven.one, 3.5)
    assert sent(driven.until(5.5)) == [2]
    driven.answer(driven.one, 5.5)
    assert sent(driven.until(5.5)) == [3, 4, 5], "in order, as fast as the connection takes them"
    assert not driven.producer.muted
    assert sent(driven.until(6.0)) == [6], "and the next batch follows"
    assert driven.counts.retried_by_partition == {0: 2}
    assert driven.counts.retry_errors == {"NotEnoughReplicasError": 2}
    assert driven.counts.sent_by_partition == {0: 7}, "each counts once"
    assert driven.producer.buffered_bytes == 0


def test_other_partitions_and_other_producers_continue() -> None:
    driven = DrivenDelivery(leaders=(1, 1), producers=2, batch_size=1)
    driven.until(0.0)
    (refused,) = driven.one.in_flight[0][1]
    driven.answer(driven.one, 0.0, TOO_FEW_REPLICAS)
    for connection in (driven.one, driven.delivery.producers[1].connections[1]):
        connection.max_in_flight = 100
    requests = [each for each in driven.until(9.0) if isinstance(each, Produce)]
    own = [each.batches[0] for each in requests if each.connection is driven.one]
    assert {batch.partition for batch in own if batch is not refused} == {1 - refused.partition}
    others = [each.batches[0] for each in requests if each.connection is not driven.one]
    assert {batch.partition for batch in others} == {0, 1}, "no batch of the other producer failed"


def test_the_back_off_doubles_up_to_its_bound() -> None:
    driven = DrivenDelivery(rate=ALONE, retry_backoff_ms=100.0, retry_backoff_max_ms=1_000.0)
    driven.until(0.0)
    for failures, mean_s in enumerate((0.1, 0.2, 0.4, 0.8), 1):
        now = 10.0 * failures
        driven.answer(driven.one, now, TOO_FEW_REPLICAS)
        assert sent(driven.until(now + 0.79 * mean_s)) == []
        assert sent(driven.until(now + 1.2 * mean_s)) == [0]
    driven.answer(driven.one, 80.0, TOO_FEW_REPLICAS)
    assert sent(driven.until(80.79)) == []
    assert sent(driven.until(81.0)) == [0]


def test_room_on_the_connection_does_not_shorten_the_back_off() -> None:
    driven = DrivenDelivery(leaders=(1, 1), batch_size=1, max_in_flight=3, seed=1)
    assert sent(driven.until(2.0)) == [0, 1, 2], "all for partition 0"
    driven.answer(driven.one, 2.95, TOO_FEW_REPLICAS)
    assert sent(driven.until(3.4)) == [3], "for partition 1; 0 waits for room now"
    driven.answer(driven.one, 3.5, TOO_FEW_REPLICAS)  # 1, which has a back-off of its own
    assert driven.until(3.57) == []
    assert sent(driven.until(3.63)) == [0]


def test_a_retry_that_waits_for_room_is_sent_as_soon_as_there_is_some() -> None:
    driven = DrivenDelivery(leaders=(1, 1), batch_size=1, max_in_flight=3, seed=1)
    driven.until(2.0)
    driven.answer(driven.one, 2.95, TOO_FEW_REPLICAS)
    assert sent(driven.until(3.4)) == [3], "for partition 1, as in the test before"
    assert len(driven.one.in_flight) == 3
    driven.answer(driven.one, 3.5)
    assert sent(driven.until(3.5)) == [0]


def test_a_batch_is_given_up_after_its_retries_and_the_next_one_is_sent() -> None:
    driven = DrivenDelivery(retries=2)
    driven.until(0.0)
    for now in (0.1, 0.5, 0.9):
        driven.answer(driven.one, now, TOO_FEW_REPLICAS)
        driven.until(now + 0.3)
    assert driven.counts.errors == {"NotEnoughReplicasError": 1}
    assert driven.counts.retried_records == 2
    assert not driven.producer.muted
    assert driven.one.in_flight[0][1][0].first == 1


def test_a_permanent_error_is_not_retried() -> None:
    driven = DrivenDelivery()
    driven.until(0.0)
    driven.answer(driven.one, 0.1, TOO_LARGE)
    assert driven.until(0.9) == []
    assert driven.counts.errors == {"MessageSizeTooLargeError": 1}
    assert not driven.producer.muted


def test_a_refused_batch_fails_once_its_delivery_timeout_has_passed() -> None:
    driven = DrivenDelivery(rate=ALONE, delivery_timeout_ms=1_000)
    driven.until(0.0)
    driven.answer(driven.one, 0.5, TOO_FEW_REPLICAS)
    assert sent(driven.until(0.99)) == [0]
    assert driven.counts.failed_total == 0
    driven.answer(driven.one, 1.0, TOO_FEW_REPLICAS)
    assert driven.counts.errors == {"NotEnoughReplicasError": 1}
    assert driven.until(9.0) == []


def test_a_batch_without_a_connection_fails_after_its_delivery_timeout() -> None:
    driven = DrivenDelivery(rate=ALONE, delivery_timeout_ms=3_000)
    driven.until(0.0)
    driven.lose(driven.one, 0.1)
    driven.until(3.0)
    assert driven.counts.failed_total == 0
    driven.until(4.5)  # at the next look, one longest back-off later at most
    assert driven.counts.errors == {"ConnectionClosed": 1}
    assert driven.producer.buffered_bytes == 0
    driven.delivery.close(4.5)
    assert not driven.delivery.has_work


def test_batches_without_a_connection_are_checked_soon_after_another_connection_opened() -> None:
    driven = DrivenDelivery(
        rate=ALONE,
        delivery_timeout_ms=5_500,
        retry_backoff_ms=1_000.0,
        retry_backoff_max_ms=60_000.0,
    )
    driven.until(0.0)
    for connection in (driven.one, driven.two):
        driven.lose(connection, 0.1)
    driven.until(5.0)
    driven.reopen(driven.two, 5.0)
    driven.until(5.0)
    assert driven.counts.failed_total == 0
    driven.until(6.2)  # one shortest back-off later, 20 % up or down
    assert driven.counts.errors == {"ConnectionClosed": 1}


def test_batches_that_were_never_sent_expire() -> None:
    driven = DrivenDelivery(max_in_flight=1, delivery_timeout_ms=5_000)
    driven.until(3.5)
    driven.delivery.expire(6.0)
    assert driven.counts.failed_total == 0
    driven.delivery.expire(6.1)
    assert driven.counts.errors == {EXPIRED: 1}, "record 1, which was due at 1"
    driven.answer(driven.one, 6.1)
    assert sent(driven.until(6.1)) == [2]


def test_batches_behind_a_batch_that_is_sent_again_expire() -> None:
    driven = DrivenDelivery(delivery_timeout_ms=5_000, end_s=4.0)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, TOO_FEW_REPLICAS)
    driven.until(4.0)
    driven.answer(driven.one, 6.5)  # 0 is there at last
    assert sent(driven.until(6.5)) == [2, 3]
    assert driven.counts.errors == {EXPIRED: 1}
    for now in (6.6, 6.7):
        driven.answer(driven.one, now)
    driven.delivery.close(7.0)
    assert not driven.delivery.has_work


def test_a_request_without_an_answer_is_overdue() -> None:
    driven = DrivenDelivery(leaders=(1, 2), batch_size=1, request_timeout_ms=2_000)
    driven.until(0.0)
    assert driven.delivery.overdue_connections(2.0) == []
    (connection,) = driven.delivery.overdue_connections(2.1)
    assert connection.in_flight[0][0] == 0.0
    driven.answer(connection, 2.1)
    assert driven.delivery.overdue_connections(2.1) == []


# --- lost connections -------------------------------------------------------


def test_requests_of_a_lost_connection_are_sent_again_when_it_is_open_again() -> None:
    driven = DrivenDelivery()
    assert sent(driven.until(2.0)) == [0, 1, 2]
    driven.lose(driven.one, 2.5)
    assert other(driven.until(2.5)) == [(SendMetadataRequest, 2)], (
        "the leader may be another one now"
    )
    driven.answer_metadata(driven.two, 2.51, {0: 1})
    seen = other(driven.until(4.9))
    assert seen.count((Reopen, 1)) == 1, "it is being opened, once"
    assert (SendMetadataRequest, 2) in seen, "and leaders are requested again"
    driven.answer_metadata(driven.two, 4.9, {0: 1})
    driven.reopen(driven.one, 4.9)
    for first in (0, 1, 2):
        assert sent(driven.until(4.95)) == [first]
        driven.answer(driven.one, 4.95)
    assert sent(driven.until(4.95)) == [3, 4]
    assert driven.counts.retry_errors == {"ConnectionClosed": 3}
    assert driven.counts.duplicates_by_partition == {0: 3}, "they may have been written before"


def test_batches_that_waited_for_a_lost_connection_wait_for_the_next() -> None:
    driven = DrivenDelivery(max_in_flight=1)
    driven.until(2.5)
    assert driven.one.open_batch_waits and driven.one.pending
    driven.lose(driven.one, 2.5)
    assert not driven.one.open_batch_waits and not driven.one.pending
    driven.reopen(driven.one, 2.9)
    for first in (0, 1, 2):
        assert sent(driven.until(2.95)) == [first]
        driven.answer(driven.one, 2.95)
    assert driven.counts.retried_by_partition == {0: 1}, "only one of them was sent before"
    assert driven.counts.duplicates_by_partition == {0: 1}


@pytest.mark.parametrize(
    ("lost_s", "linger_ms", "firsts"), [(1.5, 0.0, [1]), (2.5, 0.0, [1, 2]), (2.3, 500.0, [1])]
)
def test_batches_that_waited_without_requests_in_flight_wait_for_the_next_connection(
    lost_s: float, linger_ms: float, firsts: list[int]
) -> None:
    """Cases: an open batch; a full one, and an open one for another partition; a full one alone."""
    driven = DrivenDelivery(leaders=(1, 1), batch_size=1, seed=2, end_s=lost_s, linger_ms=linger_ms)
    driven.until(0.5)
    driven.delivery.mark_congested(driven.one)
    driven.answer(driven.one, 0.6)
    driven.until(lost_s - 0.1)
    driven.lose(driven.one, lost_s - 0.1)
    assert (Reopen, 1) in other(driven.until(lost_s - 0.01))
    driven.reopen(driven.one, lost_s - 0.01)
    requests = [each for each in driven.until(lost_s) if isinstance(each, Produce)]
    assert sorted(batch.first for each in requests for batch in each.batches) == firsts
    assert driven.counts.retried_records == 0


def test_a_retry_that_waited_for_room_waits_for_the_next_connection() -> None:
    driven = DrivenDelivery(leaders=(1, 1), batch_size=1, max_in_flight=2, seed=4)
    driven.until(1.0)
    (refused,) = driven.one.in_flight[0][1]
    driven.answer(driven.one, 1.95, TOO_FEW_REPLICAS)
    driven.until(2.5)
    (muted,) = driven.one.waiting
    assert muted.again == [refused], "two batches for the other partition are under way"
    driven.lose(driven.one, 2.5)
    driven.reopen(driven.one, 2.9)
    assert refused.first in sent(driven.until(2.95))


def test_a_failed_batch_that_may_be_in_the_log_is_a_duplicate_only_with_a_second_copy() -> None:
    for retries, duplicates in ((0, {}), (1, {0: 1})):
        driven = DrivenDelivery(rate=ALONE, retries=retries)
        driven.until(0.0)
        for now in range(retries + 1):
            driven.lose(driven.one, now + 0.1)
            driven.reopen(driven.one, now + 0.2)
            driven.until(now + 0.9)
        assert driven.counts.errors == {"ConnectionClosed": 1}
        assert driven.counts.duplicates_by_partition == duplicates


def test_a_new_batch_for_a_lost_connection_opens_it() -> None:
    driven = DrivenDelivery()
    driven.until(0.0)
    driven.answer(driven.one, 0.1)
    driven.lose(driven.one, 0.2)
    assert (Reopen, 1) not in other(driven.until(0.9)), "no batch needs it"
    assert (Reopen, 1) in other(driven.until(1.5))
    driven.reopen(driven.one, 1.6)
    assert sent(driven.until(1.6)) == [1]
    assert driven.counts.retried_records == 0


def test_a_connection_that_is_lost_again_is_opened_again() -> None:
    driven = DrivenDelivery(rate=ALONE)
    driven.until(0.0)
    for now in (1.0, 5.0):
        driven.lose(driven.one, now)
        assert other(driven.until(now + 0.5)).count((Reopen, 1)) == 1
        driven.reopen(driven.one, now + 0.5)
        assert sent(driven.until(now + 1.0)) == [0]
    driven.answer(driven.one, 7.0)
    assert driven.counts.duplicates_by_partition == {0: 2}, "each time it may have been written"


def test_a_connection_is_replaced_once_all_of_its_requests_are_answered() -> None:
    driven = DrivenDelivery(max_in_flight=3)
    assert sent(driven.until(1.0)) == [0, 1]
    driven.reopen(driven.one, 1.5)
    assert driven.until(2.5) == [], "nothing more goes over the old connection"
    driven.answer(driven.one, 2.6)
    assert driven.until(2.6) == [] and driven.one.has_successor
    driven.answer(driven.one, 2.7)
    assert sent(driven.until(2.7)) == [2] and not driven.one.has_successor
    assert driven.counts.retried_records == driven.counts.duplicates_at_most == 0
    assert (Reopen, 1) not in other(driven.until(3.5))


def test_a_connection_without_answers_is_replaced_once_the_broker_has_read_its_requests() -> None:
    driven = DrivenDelivery(acks="0")
    assert sent(driven.until(1.0)) == [0, 1]
    driven.reopen(driven.one, 1.5)
    assert other(driven.until(2.5)) == [(SendMetadataRequest, 1)], "it is answered after all others"
    driven.answer_metadata(driven.one, 2.6, {0: 1})
    assert sent(driven.until(2.6)) == [2]


def test_a_connection_that_is_lost_while_its_successor_waits_is_replaced_at_once() -> None:
    driven = DrivenDelivery(rate=ALONE)
    driven.until(0.0)
    driven.reopen(driven.one, 0.1)
    driven.lose(driven.one, 0.2)
    done = driven.until(0.9)
    assert sent(done) == [0] and (Reopen, 1) not in other(done)
    assert driven.counts.retry_errors == {"ConnectionClosed": 1}


# --- leaders ----------------------------------------------------------------


def test_a_moved_leader_is_looked_up_and_written_to() -> None:
    driven = DrivenDelivery(rate=0.1)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, NOT_LEADER)
    assert other(driven.until(0.1)) == [(SendMetadataRequest, 1)]
    driven.answer_metadata(driven.one, 0.15, {0: 2})
    (request,) = driven.until(0.5)
    assert (request.connection, sent([request])) == (driven.two, [0])
    driven.answer(driven.two, 0.5)
    (request,) = driven.until(10.0)
    assert (request.connection, sent([request])) == (driven.two, [1]), "and so is what follows"
    assert driven.counts.duplicates_at_most == 0, "a broker that does not lead wrote nothing"


def test_a_leader_that_was_found_is_written_to_at_once() -> None:
    driven = DrivenDelivery(rate=ALONE, retry_backoff_ms=10_000.0, retry_backoff_max_ms=10_000.0)
    driven.until(0.0)
    driven.lose(driven.one, 0.1)
    driven.until(13.0)
    driven.answer_metadata(driven.two, 13.0, {0: 2})
    assert sent(driven.until(13.0)) == [0], "the next look would be later than 16"


def test_a_leader_that_is_unknown_to_the_task_is_no_leader() -> None:
    driven = DrivenDelivery(rate=ALONE)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, NOT_LEADER)
    driven.until(0.1)
    driven.answer_metadata(driven.one, 0.15, {0: 9})
    (request,) = driven.until(0.5)
    assert request.connection is driven.one


def test_one_request_for_leaders_serves_all_producers() -> None:
    driven = DrivenDelivery(
        producers=3, rate=ALONE, request_timeout_ms=10_000, retry_backoff_ms=100.0
    )
    driven.until(0.0)
    ways = [each.connections[1] for each in driven.delivery.producers]
    for connection in ways:
        driven.answer(connection, 0.1, NOT_LEADER)
    questions = driven.until(0.15)
    assert other(questions) == [(SendMetadataRequest, 1)]
    driven.answer_metadata(questions[0].connection, 0.2, {0: 1})
    driven.until(0.25)
    for connection in ways:
        driven.answer(connection, 0.25, NOT_LEADER)
    assert other(driven.until(0.29)) == [], "the answer is fresh"
    driven.until(0.6)
    for connection in ways:
        driven.answer(connection, 0.6, NOT_LEADER)
    assert other(driven.until(0.6)) == [(SendMetadataRequest, 1)]


def test_a_lost_metadata_request_is_repeated_over_another_connection() -> None:
    driven = DrivenDelivery(rate=ALONE)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, NOT_LEADER)
    (question,) = driven.until(0.1)
    driven.lose(question.connection, 0.11)
    assert other(driven.until(0.11)) == [(SendMetadataRequest, 2)]


def test_a_metadata_request_uses_no_connection_that_was_lost_meanwhile() -> None:
    driven = DrivenDelivery(rate=ALONE)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, NOT_LEADER)
    driven.lose(driven.one, 0.1)
    assert (SendMetadataRequest, 1) not in other(driven.until(5.0))
    assert not driven.one.in_flight


def test_a_metadata_request_uses_the_least_busy_connection_that_is_not_congested() -> None:
    driven = DrivenDelivery()
    driven.until(1.0)
    driven.answer(driven.one, 1.1, NOT_LEADER)
    assert other(driven.until(1.1)) == [(SendMetadataRequest, 2)], (
        "one request is still under way to 1"
    )
    driven = DrivenDelivery()
    driven.until(1.0)
    driven.delivery.mark_congested(driven.two)
    driven.answer(driven.one, 1.1, NOT_LEADER)
    assert other(driven.until(1.1)) == [(SendMetadataRequest, 1)]


# --- idempotence ------------------------------------------------------------


def test_batches_are_sent_again_under_their_own_sequences() -> None:
    driven = DrivenDelivery(**IDEMPOTENT)
    driven.until(2.0)
    assert stamps(driven.one) == [(0, 0), (0, 1), (0, 2)]
    driven.answer(driven.one, 2.1, TOO_FEW_REPLICAS)
    for now in (2.2, 2.3):
        driven.answer(
            driven.one, now, OUT_OF_ORDER
        )  # a broker's answer for batches behind a missing one
    for sequence in (0, 1, 2):
        driven.until(3.5)
        assert stamps(driven.one) == [(0, sequence)]
        driven.answer(driven.one, 3.5)
    driven.until(4.0)
    assert stamps(driven.one) == [(0, 3), (0, 4)]
    assert driven.counts.failed_total == 0


def test_a_batch_that_the_broker_has_already_is_acknowledged_and_no_duplicate() -> None:
    driven = DrivenDelivery(rate=ALONE, **IDEMPOTENT)
    driven.until(0.0)
    driven.lose(driven.one, 0.1)
    driven.reopen(driven.one, 0.2)
    driven.until(1.0)
    assert stamps(driven.one) == [(0, 0)]
    driven.answer(driven.one, 1.0, DUPLICATE)
    assert driven.counts.acked_total == 1
    assert (driven.counts.failed_total, driven.counts.duplicates_at_most) == (0, 0)


def test_a_batch_that_failed_for_good_leaves_a_gap_and_its_partition_starts_again() -> None:
    driven = DrivenDelivery(**IDEMPOTENT)
    driven.until(1.0)
    driven.answer(driven.one, 1.1, TOO_LARGE)
    driven.answer(driven.one, 1.2, OUT_OF_ORDER)
    driven.until(1.9)
    assert stamps(driven.one) == [(1, 0)], "1 is the first of a new epoch"
    driven.answer(driven.one, 1.9)
    driven.until(2.0)
    assert stamps(driven.one) == [(1, 1)]
    assert driven.counts.errors == {"MessageSizeTooLargeError": 1}


def test_the_last_batch_gives_its_sequence_back_when_it_failed() -> None:
    driven = DrivenDelivery(**IDEMPOTENT)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, TOO_LARGE)
    driven.until(1.0)
    assert stamps(driven.one) == [(0, 0)]


def test_a_batch_that_may_be_in_the_log_does_not_give_its_sequence_back() -> None:
    driven = DrivenDelivery(retries=1, **IDEMPOTENT)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, TIMED_OUT)
    driven.until(0.5)
    driven.answer(driven.one, 0.5, TIMED_OUT)
    assert driven.counts.errors == {"RequestTimedOutError": 1}
    driven.until(1.0)
    assert stamps(driven.one) == [(1, 0)]


@pytest.mark.parametrize("code", [UNKNOWN_PRODUCER, OUT_OF_ORDER])
def test_a_broker_that_forgot_the_producer_makes_its_partition_start_again(code: int) -> None:
    driven = DrivenDelivery(**IDEMPOTENT)
    driven.until(1.0)
    driven.answer(driven.one, 1.1)
    driven.answer(driven.one, 1.2, code)
    driven.until(1.9)
    assert stamps(driven.one) == [(1, 0)]
    assert driven.counts.failed_total == 0
    driven.answer(driven.one, 1.9)
    assert driven.counts.acked_total == 2


def test_a_copy_that_a_broker_would_no_longer_know_is_counted() -> None:
    driven = DrivenDelivery(**IDEMPOTENT)
    driven.until(1.0)
    driven.answer(driven.one, 1.1, TOO_LARGE)
    driven.answer(driven.one, 1.2, TIMED_OUT)  # it may be there, under the epoch of before
    driven.until(1.9)
    assert stamps(driven.one) == [(1, 0)]
    driven.answer(driven.one, 1.9)
    assert driven.counts.duplicates_by_partition == {0: 1}


def test_without_idempotence_batches_have_no_stamp() -> None:
    driven = DrivenDelivery()
    driven.until(1.0)
    assert stamps(driven.one) == [None, None]


# --- sockets and memory that are full ---------------------------------------


def test_a_congested_connection_gets_nothing_until_its_socket_has_taken_the_rest() -> None:
    driven = DrivenDelivery()
    driven.until(0.0)
    driven.delivery.mark_congested(driven.one)
    assert driven.until(2.5) == []
    driven.answer(driven.one, 2.5)
    assert driven.until(2.5) == [], "an answer is no room in the socket"
    driven.delivery.mark_flushed(driven.one)
    assert sent(driven.until(2.5)) == [1, 2]


def test_answers_are_awaited_when_batches_wait_for_them_only() -> None:
    driven = DrivenDelivery(max_in_flight=2)
    driven.until(1.0)
    assert not driven.one.awaits_answers, "nothing waits behind the two that are under way"
    driven.until(2.0)
    assert driven.one.awaits_answers
    driven.delivery.mark_congested(driven.one)
    assert not driven.one.awaits_answers, "an answer would be no room"
    driven.delivery.mark_flushed(driven.one)
    assert driven.one.awaits_answers
    driven.answer(driven.one, 2.1)
    assert not driven.one.awaits_answers, "there is room"
    driven.lose(driven.one, 2.2)
    assert not driven.one.awaits_answers


def test_a_congested_connection_counts_once_as_work_and_not_after_its_loss() -> None:
    driven = DrivenDelivery(rate=ALONE, retries=0)
    driven.until(0.0)
    for _ in range(2):
        driven.delivery.mark_congested(driven.one)
    driven.answer(driven.one, 0.1)
    driven.delivery.close(0.2)
    assert driven.delivery.has_work
    driven.lose(driven.one, 0.3)
    assert not driven.delivery.has_work
    driven.reopen(driven.one, 0.4)
    driven.until(0.4)
    assert driven.one.has_room


def test_a_full_memory_blocks_the_producer_without_a_change_of_due_times() -> None:
    driven = DrivenDelivery(max_in_flight=1, buffer_memory=2 * BATCH_BYTES)
    driven.until(9.5)
    assert driven.producer.blocked
    assert driven.producer.buffered_bytes == 2 * BATCH_BYTES
    assert driven.producer.opened == 3, "one under way, two wait"
    assert driven.delivery.next_s == math.inf
    for first in (1, 2, 3):
        driven.answer(driven.one, 9.5)
        assert sent(driven.until(9.5)) == [first]
        assert driven.producer.buffered_bytes == 2 * BATCH_BYTES, "the next one takes the room"
    assert driven.one.in_flight[0][1][0].due_s == 3.0


def test_expired_and_repeated_batches_give_their_memory_back() -> None:
    driven = DrivenDelivery(max_in_flight=1, buffer_memory=BATCH_BYTES, delivery_timeout_ms=5_000)
    driven.until(2.5)
    assert driven.producer.blocked
    driven.delivery.expire(6.5)
    driven.now = 6.5
    driven.until(6.5)
    assert driven.producer.opened == 3, "1 expired, and 2 has its room"
    driven = DrivenDelivery(buffer_memory=BATCH_BYTES)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, TOO_FEW_REPLICAS)
    assert driven.producer.buffered_bytes == BATCH_BYTES
    assert sent(driven.until(0.9)) == [0]
    assert (driven.producer.buffered_bytes, driven.producer.blocked) == (0, False)


# --- the end ----------------------------------------------------------------


def test_after_the_window_only_failed_batches_are_sent_again() -> None:
    driven = DrivenDelivery(end_s=4.0)
    driven.until(2.0)
    driven.answer(driven.one, 2.1, TOO_FEW_REPLICAS)
    driven.answer(driven.one, 2.2)
    driven.answer(driven.one, 2.3, TOO_FEW_REPLICAS)
    assert sent(driven.until(4.0)) == [0], "3 is due behind them"
    driven.delivery.close(4.0)
    for first in (0, 2):
        driven.answer(driven.one, 4.1 + first)
        assert sent(driven.until(5.0 + first)) == ([2] if first == 0 else [])
    assert not driven.delivery.has_work
    assert (driven.counts.acked_total, driven.counts.failed_total) == (3, 0)
    assert driven.counts.sent_by_partition == {0: 3}


def test_batches_behind_a_failed_batch_at_the_end_of_the_window_are_unsent_and_not_failed() -> None:
    driven = DrivenDelivery(end_s=4.0, delivery_timeout_ms=5_000)
    driven.until(0.0)
    driven.answer(driven.one, 0.1, TOO_FEW_REPLICAS)
    driven.until(4.0)
    driven.delivery.close(4.0)
    driven.answer(driven.one, 20.0, TOO_FEW_REPLICAS)
    assert driven.until(30.0) == []
    assert driven.counts.errors == {"NotEnoughReplicasError": 1}
    assert not driven.delivery.has_work


def test_after_the_window_batches_that_wait_for_room_stay_unsent() -> None:
    driven = DrivenDelivery(end_s=4.0, max_in_flight=1)
    driven.until(4.0)
    driven.delivery.close(4.0)
    driven.answer(driven.one, 4.1)
    assert driven.until(9.0) == []
    assert not driven.delivery.has_work
    assert (driven.counts.acked_total, driven.counts.failed_total) == (1, 0)


def test_records_that_the_generator_did_not_send_in_time_are_unsent_by_its_own_fault() -> None:
    driven = DrivenDelivery(end_s=4.0)
    driven.until(1.0)
    driven.delivery.close(4.0)
    assert driven.counts.unsent_own_records == 2, "those that were due at 2 and at 3"
    assert driven.until(9.0) == []


def test_records_that_linger_at_the_end_of_the_window_are_no_fault_of_the_generator() -> None:
    driven = DrivenDelivery(end_s=4.0, full=10, linger_ms=5_000.0)
    driven.until(4.0)
    driven.delivery.close(4.0)
    assert driven.counts.unsent_own_records == 0


@pytest.mark.parametrize("hindrance", ["in flight", "congested", "lost", "muted", "blocked"])
def test_records_that_a_broker_held_up_are_no_fault_of_the_generator(hindrance: str) -> None:
    is_small = hindrance == "blocked"
    driven = DrivenDelivery(
        end_s=8.0,
        max_in_flight=1 if is_small else 2,
        buffer_memory=BATCH_BYTES if is_small else 100 * BATCH_BYTES,
    )
    driven.until(1.0)
    if hindrance == "congested":
        driven.answer(driven.one, 1.0)
        driven.delivery.mark_congested(driven.one)
    elif hindrance == "lost":
        driven.lose(driven.one, 1.0)
    elif hindrance == "muted":
        driven.answer(driven.one, 1.0, TOO_FEW_REPLICAS)
    elif hindrance == "blocked":
        driven.until(4.0)
        assert driven.producer.blocked
    driven.delivery.close(8.0)
    assert driven.counts.unsent_own_records == 0


def test_at_the_end_of_the_drain_every_sent_record_has_an_outcome() -> None:
    driven = DrivenDelivery(end_s=4.0)
    driven.until(3.0)
    driven.answer(driven.one, 3.1, TOO_FEW_REPLICAS)
    driven.delivery.close(4.0)
    driven.delivery.end(3.11)
    assert driven.counts.errors == {"NotEnoughReplicasError": 1, UNACKNOWLEDGED: 3}
    assert driven.counts.acked_total == 0
    assert not driven.delivery.has_work


# --- without answers --------------------------------------------------------


def test_with_acks_0_written_records_are_acknowledged() -> None:
    driven = DrivenDelivery(acks="0", end_s=3.0, max_in_flight=1)
    assert sent(driven.until(3.0)) == [0, 1, 2]
    assert driven.counts.acked_total == 3
    assert not driven.one.in_flight


def test_with_acks_0_a_last_request_checks_that_each_broker_has_read_all() -> None:
    driven = DrivenDelivery(acks="0", end_s=1.0)
    driven.until(1.0)
    driven.delivery.close(1.0)
    assert sorted(broker for _, broker in other(driven.until(1.0))) == [1, 2]
    driven.answer_metadata(driven.one, 1.1, {0: 1})
    assert driven.delivery.has_work
    driven.lose(driven.two, 1.2)
    assert not driven.delivery.has_work, "a lost connection answers no more"


def test_with_acks_0_batches_are_written_while_a_metadata_request_is_in_flight() -> None:
    driven = DrivenDelivery(leaders=(1, 2), batch_size=1, sticky_partition="round_robin", acks="0")
    driven.until(0.0)
    driven.lose(driven.one, 0.1)
    assert other(driven.until(0.1)) == [(SendMetadataRequest, 2)]
    assert sent(driven.until(1.5)) == [1]
    assert driven.counts.acked_by_partition == {0: 1, 1: 1}
    driven.answer_metadata(driven.two, 1.6, {0: 2})
    assert sent(driven.until(3.5)) == [2, 3]
    assert not driven.two.in_flight


def test_with_acks_0_bytes_that_a_lost_connection_did_not_take_are_sent_again() -> None:
    driven = DrivenDelivery(acks="0", rate=ALONE)
    action = driven.delivery.next(0.0)
    assert isinstance(action, Produce)
    driven.lose(driven.one, 0.0, "BrokenPipeError")
    assert driven.counts.acked_total == 0
    driven.reopen(driven.one, 0.5)
    assert sent(driven.until(0.5)) == [0]
    assert driven.counts.acked_total == 1
    assert driven.counts.retry_errors == {"BrokenPipeError": 1}


# --- any mix ----------------------------------------------------------------


# --- a leader that moves while batches wait for the old one -----------------------


def test_a_partition_that_left_its_old_leader_is_not_checked_there_again() -> None:
    driven = DrivenDelivery(leaders=(1, 1), batch_size=1, max_in_flight=2, seed=4, end_s=3.0)
    driven.until(1.9)  # 0 for partition 0, 1 for partition 1
    driven.answer(driven.one, 1.95, NOT_LEADER)
    assert (SendMetadataRequest, 2) in other(
        driven.until(2.5)
    )  # 2 went to broker 1, which is full now
    assert len(driven.one.waiting) == 1
    driven.answer_metadata(driven.two, 2.5, {0: 2, 1: 1})
    driven.until(3.0)
    driven.delivery.close(3.0)
    assert sent(driven.until(3.0)) == [0]
    driven.answer(driven.two, 3.1)
    driven.until(3.1)
    driven.answer(driven.one, 3.2)
    assert sent(driven.until(3.2)) == []
    driven.answer(driven.one, 3.3)
    assert not driven.producer.muted and not driven.delivery.has_work


def test_a_partition_that_left_its_old_leader_hides_no_later_failure_there() -> None:
    driven = DrivenDelivery(leaders=(1, 1), batch_size=1, max_in_flight=3, seed=1, end_s=3.9)
    driven.until(2.9)  # 0, 1, 2 for partition 0
    driven.answer(driven.one, 2.95, NOT_LEADER)
    driven.until(3.5)  # 3 for partition 1
    driven.answer_metadata(driven.two, 3.5, {0: 2, 1: 1})
    driven.until(3.9)
    driven.delivery.close(3.9)
    assert sent(driven.until(3.9)) == [0]
    driven.answer(driven.two, 3.95)
    driven.until(3.95)
    driven.answer(driven.one, 4.0, NOT_LEADER)  # 1
    driven.until(6.0)
    driven.delivery.end(10.0)
    counts = driven.counts
    assert counts.acked_total + counts.failed_total == sum(counts.sent_by_partition.values()) == 4


def test_batches_that_wait_at_the_old_leader_go_to_the_new_one_before_later_ones() -> None:
    driven = DrivenDelivery(producers=2, max_in_flight=1, **IDEMPOTENT)
    driven.until(2.5)
    assert driven.one.pending
    neighbor = driven.delivery.producers[1].connections
    driven.answer(neighbor[1], 2.5, NOT_LEADER)
    (question,) = [each for each in driven.until(2.5) if not isinstance(each, Produce)]
    driven.answer_metadata(question.connection, 2.6, {0: 2})
    actions = driven.until(3.5)
    driven.answer(driven.one, 3.5)
    actions += driven.until(3.5)
    own = [
        each.batches[0].first
        for each in actions
        if isinstance(each, Produce) and each.connection.producer is driven.producer
    ]
    assert own and own == sorted(own) and own[0] == 1


def test_two_copies_that_may_be_in_the_log_are_the_failed_one_and_a_duplicate() -> None:
    driven = DrivenDelivery(rate=ALONE, retries=2, **IDEMPOTENT)
    driven.until(0.0)
    driven.lose(driven.one, 0.1)  # a first copy may be there
    driven.reopen(driven.one, 0.2)
    driven.until(1.0)
    driven.answer(driven.one, 1.0, UNKNOWN_PRODUCER)
    driven.until(2.0)
    driven.lose(driven.one, 2.1)  # and a second one, of another epoch
    assert driven.counts.failed_total == driven.counts.duplicates_at_most == 1


def test_batches_that_wait_for_room_at_the_end_of_the_window_are_unsent_and_never_fail() -> None:
    driven = DrivenDelivery(max_in_flight=1, end_s=3.0, delivery_timeout_ms=100)
    driven.until(3.0)
    assert driven.one.pending
    driven.delivery.close(3.0)
    driven.delivery.expire(50.0)
    assert driven.counts.failed_total == 0 and not driven.one.has_waiting


class Mishaps:
    """Two brokers with one log that fail in any way, and then recover.

    Args:
        codes: errors that they answer at times, instead of taking a batch.
    """

    def __init__(self, driven: DrivenDelivery, rng: random.Random, codes: Sequence[int]) -> None:
        self.log = Log()
        self.is_well = False
        self._driven = driven
        self._rng = rng
        self._codes = codes
        self._leaders = list(driven.metadata.leaders)

    def happen(self, now: float) -> None:  # noqa: C901 - a table of chances
        """One random event."""
        driven, rng = self._driven, self._rng
        connection = rng.choice(driven.delivery.connections)
        chance = 0.0 if self.is_well else rng.random()
        if not connection.is_open:
            if connection.is_wanted and chance < 0.5:
                driven.reopen(connection, now)
        elif connection.is_congested:
            driven.delivery.mark_flushed(connection)
        elif chance < 0.7:
            if connection.in_flight:
                self._answer(connection, now)
        elif chance < 0.8:
            for _, batches in list(connection.in_flight)[: rng.randrange(4)]:
                self._take(connection, batches)  # and the answer is lost on its way
            driven.lose(connection, now)
        elif chance < 0.85 and connection.in_flight:
            driven.delivery.mark_congested(connection)
        elif chance < 0.9:
            self._leaders[rng.randrange(len(self._leaders))] = rng.choice(BROKERS)
        elif chance < 0.95 and not connection.has_successor:
            driven.reopen(connection, now)  # as its session ends soon

    def _answer(self, connection: Connection, now: float) -> None:
        batches = connection.in_flight[0][1]
        if not batches:
            self._driven.answer_metadata(connection, now, dict(enumerate(self._leaders)))
            return
        self._driven.now = now
        self._driven.delivery.handle_produce_response(
            connection, self._take(connection, batches), 0, now
        )

    def _take(self, connection: Connection, batches: Sequence[Batch]) -> dict[int, int]:
        return {batch.partition: self._append(connection, batch) for batch in batches}

    def _append(self, connection: Connection, batch: Batch) -> int:
        if self._leaders[batch.partition] != connection.broker:
            return NOT_LEADER
        if not self.is_well and self._rng.random() < 0.2:
            code = self._rng.choice(self._codes)
            if code != TIMED_OUT or self._rng.random() < 0.5:
                return code
            return self._keep(connection, batch) or TIMED_OUT
        return self._keep(connection, batch)

    def _keep(self, connection: Connection, batch: Batch) -> int:
        epoch, sequence = batch.stamp or (-1, -1)
        state = connection.producer.id_state
        kept = SimpleNamespace(
            producer_id=-1 if state is None else state.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            records_count=batch.records,
            first_timestamp=batch.first,
        )
        return self.log.append(batch.partition, kept)


def befall(seed: int, codes: Sequence[int], **options: Any) -> tuple[DrivenDelivery, Log]:
    """A load of 30 s on brokers that fail all the time, and recover in the drain."""
    rng = random.Random(seed)
    driven = DrivenDelivery(
        leaders=(1, 2, 1), full=3, rate=3.0, end_s=30.0, batch_size=500, max_in_flight=3, **options
    )
    mishaps = Mishaps(driven, rng, codes)
    now = 0.0
    while driven.delivery.is_open:
        now += rng.expovariate(10.0)
        driven.until(min(now, 30.0))
        if now >= 30.0:
            driven.delivery.close(30.0)
        mishaps.happen(max(now, driven.now))
    mishaps.is_well = True
    while driven.delivery.has_work:
        now += 0.05
        assert now < 200.0, "the delivery ends"
        driven.until(now)
        mishaps.happen(now)
    return driven, mishaps.log


def unsent(driven: DrivenDelivery) -> int:
    """Number of records that were sealed and not sent before the end of the window."""
    (producer,) = driven.delivery.producers
    sent_records: int = sum(driven.counts.sent_by_partition.values())
    return producer.opened - sent_records


def test_an_idempotent_producer_loses_and_repeats_no_record_and_keeps_the_order() -> None:
    repeats = retried = replaced = 0
    for seed in (*range(100), 909, 3037):
        driven, log = befall(seed, (TIMED_OUT, TOO_FEW_REPLICAS), **IDEMPOTENT)
        counts = driven.counts
        assert counts.failed_total == counts.duplicates_at_most == 0, seed
        assert counts.acked_total == log.records == driven.producer.opened - unsent(driven), seed
        for partition in range(3):
            firsts = log.times_of(partition)
            assert firsts == sorted(set(firsts)), seed
        repeats += log.repeats
        retried += counts.retried_records
        replaced += driven.replaced
    assert repeats > 100 < retried, "brokers got batches that they had, and other failures occurred"
    assert replaced > 100


@pytest.mark.computes
@pytest.mark.parametrize("options", [{}, IDEMPOTENT])
@pytest.mark.parametrize("retries", [1, 3, 1_000])
def test_every_record_is_accounted_for_under_any_failures(
    options: dict[str, Any], retries: int
) -> None:
    codes = [TIMED_OUT, TOO_FEW_REPLICAS, TOO_LARGE]
    codes += [UNKNOWN_PRODUCER] if options else []
    failed = duplicates = 0
    for seed in (*range(100), 1276):
        driven, log = befall(seed, codes, retries=retries, **options)
        counts = driven.counts
        accounted = counts.acked_total + counts.failed_total
        assert accounted == driven.producer.opened - unsent(driven), seed
        for partition in range(3):
            least = counts.acked_by_partition.get(partition, 0)
            most = least + counts.failed_by_partition.get(partition, 0)
            most += counts.duplicates_by_partition.get(partition, 0)
            assert least <= log.records_of(partition) <= most, seed
        failed += counts.failed_total
        duplicates += counts.duplicates_at_most
    assert failed > 100 < duplicates


# --- brokers out of reach ---------------------------------------------------

BOTH: dict[str, Any] = {"leaders": (1, 2), "batch_size": 1, "end_s": 40.0, "max_in_flight": 2}


def only_one_answers(driven: DrivenDelivery, end_s: float) -> None:
    """Broker 1 answers at once, broker 2 never; the silence is updated every second."""
    for second in range(int(end_s) + 1):
        driven.until(float(second))
        while driven.one.in_flight:
            driven.answer(driven.one, driven.now)
            driven.until(driven.now)
        driven.delivery.update_silence(driven.now)


def test_records_for_a_silent_broker_are_missing() -> None:
    driven = DrivenDelivery(**BOTH)
    only_one_answers(driven, 40.0)
    driven.delivery.close(40.0)
    one, two = (driven.counts.by_broker[broker] for broker in BROKERS)
    first_s = driven.two.in_flight[0][0]
    assert (one.missing_records, one.waiting_connections, one.silent_s) == (0, 0, 0.0)
    assert (two.requests, two.waiting_connections) == (2, 1)
    assert two.silent_s == pytest.approx(40.0 - first_s, abs=1.0)
    assert one.requests == driven.counts.acked_records == 40 - two.missing_records
    assert driven.counts.produce_requests == one.requests + two.requests


def test_unsent_records_are_missing_at_the_broker_that_fills_the_memory() -> None:
    driven = DrivenDelivery(**BOTH, buffer_memory=2 * BATCH_BYTES)
    only_one_answers(driven, 40.0)
    driven.delivery.close(40.0)
    assert driven.producer.blocked
    assert driven.producer.partition == 0, "the next record is for the other broker"
    one, two = (driven.counts.by_broker[broker] for broker in BROKERS)
    assert (one.missing_records, two.missing_records) == (0, 40 - driven.counts.acked_records)


def test_unsent_records_are_missing_at_the_broker_that_fills_more_of_the_memory() -> None:
    driven = DrivenDelivery(**BOTH, buffer_memory=6 * BATCH_BYTES)
    driven.until(40.0)  # neither of them answers
    one, two = (
        way.pending.records + sum(batch.records for _, sent in way.in_flight for batch in sent)
        for way in (driven.one, driven.two)
    )
    assert one > two > 0, "the fuller is not the last by its number"
    assert driven.producer.blocked and driven.producer.partition == 1, "nor the next in turn"
    driven.delivery.close(40.0)
    missing = [driven.counts.by_broker[broker].missing_records for broker in BROKERS]
    assert missing == [40 - two, two]


def test_records_of_an_open_batch_are_missing_at_the_broker_of_its_partition() -> None:
    room = {"batch_size": 3 * BATCH_BYTES, "linger_ms": 60_000.0, "end_s": 32.0}
    driven = DrivenDelivery(**(BOTH | room), full=3)
    only_one_answers(driven, 32.0)
    producer = driven.producer
    collected = producer.records_due_between(producer.due_s(producer.opened), 32.0)
    assert not producer.blocked and producer.partition == 0 and collected > 0
    driven.delivery.close(32.0)
    one, two = (driven.counts.by_broker[broker] for broker in BROKERS)
    assert two.waiting_connections == 1, "broker 2 is silent"
    assert (one.missing_records, one.waiting_connections) == (collected, 0)


def test_a_broker_whose_connection_cannot_be_opened_again_is_silent() -> None:
    driven = DrivenDelivery(**BOTH)
    driven.lose(driven.two, 0.0)  # with no request in flight, so that no error shows it
    only_one_answers(driven, 40.0)
    driven.delivery.close(40.0)
    one, two = (driven.counts.by_broker[broker] for broker in BROKERS)
    assert (one.missing_records, two.missing_records) == (0, 40 - driven.counts.acked_records)
    assert two.missing_records > 5 and two.waiting_connections == 1
    assert two.silent_s > 20.0 > one.silent_s


def test_records_that_are_given_up_are_missing() -> None:
    driven = DrivenDelivery(end_s=2.0, retries=0)
    driven.until(1.0)
    for _ in range(2):
        driven.answer(driven.one, 1.5, TIMED_OUT)
    driven.delivery.close(2.0)
    assert driven.counts.by_broker[1].missing_records == 2


def test_a_slow_broker_that_answers_now_and_then_is_not_silent() -> None:
    driven = DrivenDelivery(end_s=40.0)
    for second in range(40):
        driven.until(float(second))
        if len(driven.one.in_flight) > 3:
            driven.answer(driven.one, float(second))
        driven.delivery.update_silence(float(second))
        assert driven.one.in_flight
    driven.delivery.close(40.0)
    assert driven.counts.by_broker[1].silent_s <= 4.0


def test_a_broker_without_requests_is_not_silent() -> None:
    driven = DrivenDelivery(rate=0.05)  # a record in twenty seconds
    for second in range(100):
        driven.until(float(second))
        if driven.one.in_flight:
            driven.answer(driven.one, second + 0.1)
        driven.delivery.update_silence(second + 0.2)
    driven.delivery.close(100.0)
    assert [driven.counts.by_broker[broker].silent_s for broker in BROKERS] == [0.0, 0.0]
