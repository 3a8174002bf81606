"""Transactions of producers: requests, waiting batches, and counts."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.engine.producing.delivery import Action, Produce, Reopen, SendCoordinatorRequest
from jobs.engine.producing.transactions import (
    AddPartitions,
    EndTransaction,
    FindCoordinator,
    RenewEpoch,
    TransactionError,
)
from metrics.traffic.producer import ProducerOptions
from tests.support.driven_delivery import DrivenDelivery

CONCURRENT, LOADING, NOT_COORDINATOR, FENCED = 51, 14, 16, 90
TIMED_OUT, TOO_LARGE = 7, 10
COMMIT, ABORT = EndTransaction(True), EndTransaction(False)


def driven(leaders: tuple[int, ...] = (1,), **options: Any) -> DrivenDelivery:
    """A producer of one record each second to partitions in turn, with a commit every 2.5 s."""
    given: dict[str, Any] = {
        "acks": "all",
        "enable_idempotence": True,
        "transaction_duration_ms": 2_500.0,
        "sticky_partition": "round_robin",
        "batch_size": 1,
        "retry_backoff_ms": 500.0,
        "retry_backoff_max_ms": 500.0,
    }
    return DrivenDelivery(leaders, **(given | options))


def requests_in(actions: list[Action]) -> list[Any]:
    """The coordinator requests of these actions."""
    return [each.request for each in actions if isinstance(each, SendCoordinatorRequest)]


def sent(actions: list[Action]) -> list[int]:
    """First records of the batches that these actions send."""
    return [batch.first for each in actions if isinstance(each, Produce) for batch in each.batches]


def begun(driven: DrivenDelivery) -> DrivenDelivery:
    """A producer with its first partition in the transaction, and its first batch sent."""
    assert requests_in(driven.until(0.0)) == [AddPartitions((0,))]
    assert sent(driven.coordinate(driven.one, 0.1)) == [0]
    return driven


def test_a_partition_is_added_once_before_its_first_batch() -> None:
    each = driven((1, 2))
    first = each.until(0.0)
    assert (requests_in(first), sent(first)) == ([AddPartitions((0,))], [])
    assert sent(each.coordinate(each.one, 0.1)) == [0]
    second = each.until(1.0)
    assert (requests_in(second), sent(second)) == ([AddPartitions((1,))], []), "to the coordinator"
    assert sent(each.coordinate(each.one, 1.1) if not each.one.in_flight[0][1] else []) == []
    each.answer(each.one, 1.1)
    assert sent(each.coordinate(each.one, 1.2)) == [1]
    third = each.until(2.0)
    assert (requests_in(third), sent(third)) == ([], [2]), "partition 0 is in it already"


def test_a_commit_waits_for_every_batch_and_later_records_for_the_next() -> None:
    each = begun(driven())
    assert sent(each.until(2.2)) == [1, 2]
    assert each.until(2.9) == [], "the transaction began at 0.0 and is old enough at 2.5"
    each.answer(each.one, 2.9)
    assert each.until(3.5) == [], "record 3 is due and waits"
    each.answer(each.one, 3.6)
    each.answer(each.one, 3.7)
    assert requests_in(each.until(3.7)) == [COMMIT]
    assert each.until(4.5) == []
    assert requests_in(each.coordinate(each.one, 4.5)) == [AddPartitions((0,))], (
        "with records 3 and 4"
    )
    counts = each.counts
    assert (counts.transactions_committed, counts.transactions_aborted) == (1, 0)
    assert counts.commit_s == pytest.approx(2.0), "from 2.5 to 4.5"
    assert counts.commit_mean_ms == pytest.approx(2_000.0)
    assert counts.control_records_by_partition == {0: 1}
    assert counts.transaction_log_records == 3, "one addition, and two for the end"
    assert sent(each.coordinate(each.one, 4.6)) == [3, 4]


def test_a_lingering_batch_is_sent_before_the_commit() -> None:
    each = driven(full=10, linger_ms=60_000.0, request_timeout_ms=30_000)
    assert each.until(0.0) == []
    each = begun(driven(full=10, linger_ms=0.0, max_in_flight=1))
    assert each.until(2.4) == [], "records 1 and 2 wait for the answer"
    assert each.until(2.6) == []
    each.answer(each.one, 2.7)
    (request,) = each.until(2.7)
    assert isinstance(request, Produce)
    assert [(batch.first, batch.records) for batch in request.batches] == [(1, 2)], "full or not"
    each.until(3.2)
    each.answer(each.one, 3.3)
    assert requests_in(each.until(3.3)) == [COMMIT]
    assert requests_in(each.coordinate(each.one, 3.4)) == [AddPartitions((0,))], (
        "record 3 is of the next"
    )


def test_no_transaction_begins_without_a_record() -> None:
    each = begun(driven(rate=0.1))
    each.answer(each.one, 1.0)
    assert requests_in(each.until(2.5)) == [COMMIT]
    assert each.coordinate(each.one, 2.6) == []
    assert each.until(9.9) == []
    assert requests_in(each.until(10.0)) == [AddPartitions((0,))]


def test_requests_are_repeated_while_the_coordinator_completes_or_loads() -> None:
    each = begun(driven())
    each.answer(each.one, 0.2)
    each.until(2.4)
    each.answer(each.one, 2.4)
    each.answer(each.one, 2.4)
    assert requests_in(each.until(2.5)) == [COMMIT]
    assert each.coordinate(each.one, 2.6, LOADING) == []
    assert requests_in(each.until(3.2)) == [COMMIT], "after retry_backoff_ms, 20 % up or down"
    assert requests_in(each.coordinate(each.one, 3.2)) == [AddPartitions((0,))]
    assert each.coordinate(each.one, 3.3, CONCURRENT) == []
    assert requests_in(each.until(3.33)) == [AddPartitions((0,))], (
        "soon, as the one before completes"
    )
    assert sent(each.coordinate(each.one, 3.4)) == [3]


def test_a_moved_coordinator_is_found_again() -> None:
    each = driven()
    each.until(0.0)
    assert each.coordinate(each.one, 0.1, NOT_COORDINATOR) == []
    (find,) = (a for a in each.until(0.8) if isinstance(a, SendCoordinatorRequest))
    assert find.request == FindCoordinator()
    (add,) = each.coordinate(find.connection, 0.8, 0, (2, -1))
    assert isinstance(add, SendCoordinatorRequest)
    assert (add.connection, add.request) == (each.two, AddPartitions((0,)))
    assert sent(each.coordinate(each.two, 0.9)) == [0]


def test_a_lost_coordinator_is_found_and_the_request_is_repeated() -> None:
    each = driven()
    each.until(0.0)
    each.lose(each.one, 0.1)
    later = each.until(0.8)
    assert requests_in(later) == [FindCoordinator()]
    assert requests_in(each.coordinate(each.two, 0.8, 0, (2, -1))) == [AddPartitions((0,))]
    assert [type(each) for each in each.coordinate(each.two, 0.9)] == [Reopen], "to the leader"


def test_a_coordinator_without_a_connection_is_looked_up_again() -> None:
    each = driven()
    each.until(0.0)
    each.coordinate(each.one, 0.1, NOT_COORDINATOR)
    each.until(0.8)
    way = each.one if each.one.in_flight else each.two
    assert each.coordinate(way, 0.8, 0, (9, -1)) == []
    assert requests_in(each.until(1.5)) == [FindCoordinator()]


def test_a_permanent_refusal_ends_the_load_with_a_sentence() -> None:
    each = driven()
    each.until(0.0)
    with pytest.raises(TransactionError, match="refused to add partitions to a transaction, with "):
        each.coordinate(each.one, 0.1, FENCED)


def test_a_failed_batch_aborts_its_transaction() -> None:
    each = begun(driven(max_in_flight=2))
    assert sent(each.until(1.0)) == [1]
    each.answer(each.one, 1.5)
    assert each.until(2.2) != [], "record 2 is sent"
    each.answer(each.one, 2.3, TOO_LARGE)
    assert each.until(2.3) == [], "another one is under way"
    each.answer(each.one, 2.4)
    assert requests_in(each.until(2.4)) == [ABORT]
    assert each.until(3.1) == [], "record 3 waits"
    assert requests_in(each.coordinate(each.one, 3.2)) == [RenewEpoch()]
    assert each.coordinate(each.one, 3.3, CONCURRENT) == []
    assert requests_in(each.until(4.0)) == [RenewEpoch()]
    assert requests_in(each.coordinate(each.one, 4.0, 0, (0, 1))) == [AddPartitions((0,))]
    request, _of_record_4 = each.coordinate(each.one, 4.1)
    assert isinstance(request, Produce)
    assert [(b.first, b.stamp) for b in request.batches] == [(3, (1, 0))], "a new epoch"
    counts = each.counts
    assert (counts.transactions_committed, counts.transactions_aborted) == (0, 1)
    assert counts.aborted_records == 2, "acknowledged, and invisible to read_committed"
    assert counts.control_records_by_partition == {0: 1}
    assert counts.errors == {"MessageSizeTooLargeError": 1}


def test_no_batch_of_a_failed_transaction_is_sent_again() -> None:
    each = begun(driven(max_in_flight=2))
    each.until(1.0)
    each.answer(each.one, 1.5, TOO_LARGE)
    each.answer(each.one, 1.6, TIMED_OUT)
    assert requests_in(each.until(1.6)) == [ABORT]
    assert each.counts.errors == {"MessageSizeTooLargeError": 1, "RequestTimedOutError": 1}
    assert each.counts.retried_records == 0


def test_batches_behind_a_failed_batch_fail() -> None:
    each = begun(driven(max_in_flight=1))
    each.until(2.2)
    each.answer(each.one, 2.3, TOO_LARGE)
    assert requests_in(each.until(2.3)) == [ABORT]
    assert each.counts.errors == {"MessageSizeTooLargeError": 1, "TransactionAbortedError": 1}
    assert each.producer.buffered_bytes == 0
    each.coordinate(each.one, 2.4)
    assert requests_in(each.coordinate(each.one, 2.5, 0, (0, 1))) == [AddPartitions((0,))], (
        "record 2 is new"
    )
    assert sent(each.coordinate(each.one, 2.6)) == [2]


def test_an_abort_waits_for_batches_in_flight_only() -> None:
    each = begun(driven(max_in_flight=2, transaction_duration_ms=9_000.0))
    each.until(3.2)
    each.answer(each.one, 3.3, TOO_LARGE)
    assert each.counts.errors["TransactionAbortedError"] == 1, "record 2 waited"
    assert requests_in(each.until(3.3)) == [], "record 1 is under way"
    each.answer(each.one, 3.4)
    assert requests_in(each.until(3.4)) == [ABORT]


def test_a_batch_that_expires_before_its_partition_is_added_needs_no_abort() -> None:
    each = driven(request_timeout_ms=1_000, delivery_timeout_ms=1_000)
    each.until(0.0)
    assert each.until(1.2) == []
    each.delivery.expire(1.2)
    each.until(1.2)
    each.coordinate(each.one, 1.2, LOADING)
    later = each.until(2.0)
    assert requests_in(later) == [RenewEpoch()], (
        "the coordinator has no transaction of this producer"
    )
    assert each.counts.transactions_aborted == 0
    assert each.counts.errors == {"KafkaTimeoutError": 1}


def test_an_abort_keeps_the_memory_that_the_next_transaction_fills() -> None:
    each = begun(driven(buffer_memory=320))
    each.until(9.5)
    assert (each.producer.blocked, each.producer.opened) == (True, 5), "records 3 and 4 wait"
    for _ in range(3):
        each.answer(each.one, 9.5, TOO_LARGE)
    assert requests_in(each.until(9.6)) == [ABORT]
    assert each.producer.opened == 5
    each.coordinate(each.one, 9.7)
    each.coordinate(each.one, 9.8, 0, (0, 1))
    assert sent(each.coordinate(each.one, 9.9))[:2] == [3, 4], "and then it continues"
    assert each.producer.opened > 5


def test_an_open_batch_waits_for_its_partition_and_does_not_expire() -> None:
    each = driven(full=10)
    assert requests_in(each.until(0.0)) == [AddPartitions((0,))]
    each.delivery.expire(0.5)
    assert sent(each.coordinate(each.one, 0.6)) == [0]
    assert each.counts.failed_total == 0


def test_the_last_transaction_is_committed_in_the_drain() -> None:
    each = begun(driven(end_s=2.0, max_in_flight=1))
    each.until(1.9)
    each.delivery.close(2.0)
    assert each.delivery.has_work
    each.answer(each.one, 2.1)
    assert requests_in(each.until(2.1)) == [COMMIT], "record 1 waited and is dropped"
    assert each.delivery.has_work
    assert each.coordinate(each.one, 2.2) == []
    assert not each.delivery.has_work
    assert each.counts.control_records_by_partition == {0: 1}
    assert each.counts.transactions_committed == 0, "after the window"


def test_a_transaction_that_is_left_open_may_end_once_more_in_the_log() -> None:
    each = begun(driven(end_s=2.0))
    each.delivery.close(2.0)
    each.delivery.end(3.0)
    assert not each.delivery.has_work
    assert each.counts.transactions_aborted == 1
    assert each.counts.control_records_by_partition == {}
    assert each.counts.duplicates_by_partition == {0: 1}
    assert each.counts.errors == {"Unacknowledged": 1}


def test_a_retry_at_the_end_of_the_drain_fails_once() -> None:
    each = begun(driven(end_s=2.0))
    each.until(1.0)
    each.answer(each.one, 1.9, TIMED_OUT)
    each.delivery.close(2.0)
    each.delivery.end(2.1)
    assert each.counts.errors == {"RequestTimedOutError": 1, "Unacknowledged": 1}
    assert not each.delivery.has_work


def test_a_closed_loop_commits() -> None:
    each = driven(rate=float("inf"), max_in_flight=1, buffer_memory=300)
    assert requests_in(each.until(0.0)) == [AddPartitions((0,))]
    assert sent(each.coordinate(each.one, 0.1)) != []
    for at_s in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        if each.one.in_flight and each.one.in_flight[0][1]:
            each.answer(each.one, at_s)
            requests = requests_in(each.until(at_s))
            if requests:
                break
    assert requests == [COMMIT]
    assert requests_in(each.coordinate(each.one, 6.5)) == [AddPartitions((0,))]
    assert sent(each.coordinate(each.one, 6.6)) != []


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"acks": "1"}, "enable_idempotence false, with acks 1; expected enable_idempotence true"),
        ({"acks": "all"}, "expected enable_idempotence true and acks all"),
        (
            {"acks": "all", "enable_idempotence": True, "delivery_timeout_ms": 899_950},
            "expected at most 900000 together",
        ),
    ],
)
def test_impossible_transactions_are_refused(options: dict[str, Any], part: str) -> None:
    wrong = ProducerOptions(rate_bytes_per_s=1_000.0, transaction_duration_ms=100.0, **options)
    with pytest.raises(ValueError, match="transaction_duration_ms is 100") as caught:
        wrong.require_consistent()
    assert part in str(caught.value)


def test_brokers_wait_with_an_abort_for_as_long_as_a_batch_may_take() -> None:
    assert ProducerOptions(transaction_duration_ms=100.0).transaction_timeout_ms == 120_100
    quick = ProducerOptions(transaction_duration_ms=100.0, delivery_timeout_ms=40_000)
    assert quick.transaction_timeout_ms == 60_000
