"""The delivery core, event by event: no socket, no thread, no real time.

Each case is a script for a producer of one record per second, whose batches hold one record unless
`full` is given. The rules that hold for any events are in `test_delivery_mishaps.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from jobs.engine.producing.batch import UNACKNOWLEDGED
from jobs.engine.producing.delivery import Action, Produce, Reopen, SendControlRequest
from jobs.engine.producing.producer import Connection
from jobs.engine.producing.protocol import (
    AddPartitions,
    EndTransaction,
    FindCoordinator,
    FindLeaders,
    InitProducerId,
)
from jobs.engine.producing.transactions import TransactionError
from metrics.traffic.clients import ProducerOptions
from tests.support.driven_delivery import BROKERS, RECORD_BYTES, DrivenDelivery

BATCH_BYTES = 161
"""Size of a batch of one record, with the header [B]."""

NOT_LEADER, TIMED_OUT, TOO_LARGE, TOO_FEW_REPLICAS = 6, 7, 10, 19
OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER = 45, 46, 59
NOT_COORDINATOR, CONCURRENT, FENCED = 16, 51, 90

ALONE: dict[str, Any] = {"rate": 0.001}
"""Only record 0 is due in the window."""
IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "acks": "all"}
BOTH: dict[str, Any] = {"leaders": (1, 2), "batch_size": 1, "end_s": 40.0, "max_in_flight": 2}
COMMITS: dict[str, Any] = {
    **IDEMPOTENT, "transaction_duration_ms": 2_500.0, "sticky_partition": "round_robin",
    "batch_size": 1, "retry_backoff_ms": 500.0, "retry_backoff_max_ms": 500.0,
}  # fmt: skip
"""Transactions of 2.5 s."""
ADD, COMMIT, ABORT = AddPartitions((0,)), EndTransaction(True), EndTransaction(False)

Step = Callable[[DrivenDelivery], object]
Case = tuple[dict[str, Any], list[Step]]


# --- steps --------------------------------------------------------------------


def seen(action: Action | None) -> Any:
    """An action in short: first records of batches, a coordinator's request, or (kind, broker)."""
    if isinstance(action, Produce):
        return action.batches[0].first if len(action.batches) == 1 else batches_of(action)
    assert action is not None
    if isinstance(action, SendControlRequest) and not isinstance(action.request, FindLeaders):
        return action.request
    return "reopen" if isinstance(action, Reopen) else "metadata", action.connection.broker


def batches_of(action: Action) -> list[tuple[int, int]]:
    """First record and number of records of each batch of a produce request."""
    assert isinstance(action, Produce)
    return [(batch.first, batch.records) for batch in action.batches]


def way(driven: DrivenDelivery, broker: int, producer: int = 0) -> Connection:
    return driven.delivery.producers[producer].connections[broker]


def missing(driven: DrivenDelivery) -> list[int]:
    """Records that are missing at each broker."""
    return [driven.counts.by_broker[broker].missing_records for broker in BROKERS]


def until(now: float) -> Step:
    """Time passes, whatever the delivery does."""
    return lambda driven: driven.until(now)


def at(now: float, *expected: Any) -> Step:
    """Until this time, the delivery does exactly this."""

    def step(driven: DrivenDelivery) -> None:
        assert list(map(seen, driven.until(now))) == list(expected), f"until {now}"

    return step


def sends(now: float, *firsts: int) -> Step:
    """Until this time, it sends the batches that begin with these records, and may ask, too."""

    def step(driven: DrivenDelivery) -> None:
        actions = [each for each in driven.until(now) if isinstance(each, Produce)]
        assert list(map(seen, actions)) == list(firsts), f"until {now}"

    return step


def answer(now: float, code: int = 0, broker: int = 1, producer: int = 0) -> Step:
    return lambda driven: driven.answer(way(driven, broker, producer), now, code)


def coordinate(
    now: float, *expected: Any, code: int = 0, given: tuple[int, int] = (-1, -1), broker: int = 1
) -> Step:
    """The coordinator answers, and the delivery does this."""

    def step(driven: DrivenDelivery) -> None:
        actions = driven.coordinate(way(driven, broker), now, code, given)
        assert list(map(seen, actions)) == list(expected), f"at {now}"

    return step


def leaders(now: float, found: dict[int, int], over: int = 2) -> Step:
    return lambda driven: driven.answer_metadata(way(driven, over), now, found)


def lose(now: float, broker: int = 1) -> Step:
    return lambda driven: driven.lose(way(driven, broker), now)


def reopen(now: float, broker: int = 1) -> Step:
    return lambda driven: driven.reopen(way(driven, broker), now)


def congest(broker: int = 1) -> Step:
    return lambda driven: driven.congest(way(driven, broker))


def flush(broker: int = 1) -> Step:
    return lambda driven: driven.flush(way(driven, broker))


def expire(now: float) -> Step:
    return lambda driven: driven.delivery.expire(now)


def close(now: float) -> Step:
    return lambda driven: driven.delivery.close(now)


def end(now: float) -> Step:
    return lambda driven: driven.delivery.end(now)


def counts(**expected: Any) -> Step:
    """The account has these counts."""

    def step(driven: DrivenDelivery) -> None:
        assert {name: getattr(driven.counts, name) for name in expected} == expected

    return step


def stamps(*expected: tuple[int, int] | None, broker: int = 1) -> Step:
    """Epoch and sequence of the batches in flight."""

    def step(driven: DrivenDelivery) -> None:
        in_flight = way(driven, broker).batches_in_flight
        assert [batch.stamp for batch in in_flight] == list(expected)

    return step


def holds(state: Callable[[DrivenDelivery], object], expected: object = True) -> Step:
    """The delivery is in this state."""

    def step(driven: DrivenDelivery) -> None:
        assert state(driven) == expected

    return step


def works(expected: bool = True) -> Step:
    """Something may still be sent, or awaits an answer."""
    return holds(lambda driven: driven.delivery.has_work, expected)


def play_on(driven: DrivenDelivery, *steps: Step) -> DrivenDelivery:
    """The delivery after these steps."""
    for step in steps:
        step(driven)
    return driven


def play(options: dict[str, Any], *steps: Step) -> DrivenDelivery:
    return play_on(DrivenDelivery(**options), *steps)


NOT_MUTED = holds(lambda driven: driven.producer.queues, {})
AWAITS_ANSWERS, AWAITS_NONE = (
    holds(lambda driven: driven.one.awaits_answers, expected) for expected in (True, False)
)
BLOCKED = holds(lambda driven: driven.producer.blocked)


# fmt: off
CASES: dict[str, Case] = {
    # --- sending ---
    "each batch is sent when it is due": ({"end_s": 3.0}, [
        at(0.0, 0), holds(lambda driven: driven.delivery.next_s, 1.0), at(0.999), at(1.0, 1),
        at(9.0, 2),  # a record due at the end of the window is not sent
        holds(lambda driven: driven.delivery.next_s, math.inf), counts(sent_by_partition={0: 3}),
    ]),
    "waiting batches grow until they are full": ({"max_in_flight": 1, "full": 3}, [
        until(2.5), answer(2.5), holds(lambda d: batches_of(d.until(2.5)[0]), [(1, 2)]),
        until(7.5), answer(7.5), holds(lambda d: batches_of(d.until(7.5)[0]), [(3, 3)]),
    ]),
    "answers may gather only while no batch waits for one": ({"max_in_flight": 1}, [
        until(0.5), holds(lambda d: d.delivery.may_gather(0.5)), until(1.0),
        holds(lambda d: d.delivery.may_gather(1.0), False), answer(1.05), until(1.05),
        holds(lambda d: d.delivery.may_gather(1.09), False),  # the next will probably wait, too
        holds(lambda d: d.delivery.may_gather(1.11)), answer(1.2, NOT_LEADER),
        holds(lambda d: d.delivery.may_gather(1.2), False),
    ]),

    # --- sending again ---
    "a failed partition is muted and sent again one by one in order": ({}, [
        at(2.0, 0, 1, 2), answer(2.1, TOO_FEW_REPLICAS), answer(2.2), answer(2.3, TOO_FEW_REPLICAS),
        sends(2.3), sends(3.5, 0),  # later ones wait: 2, and 3, which is new
        answer(3.5), at(5.5, 2), answer(5.5), at(5.5, 3, 4, 5), NOT_MUTED, at(6.0, 6),
        counts(retried_by_partition={0: 2}, retry_errors={"NotEnoughReplicasError": 2},
               sent_by_partition={0: 7}),
    ]),
    "the back-off doubles up to its bound": (ALONE, [
        until(0.0), answer(10.0, TOO_FEW_REPLICAS), sends(10.079), sends(10.12, 0),
        answer(20.0, TOO_FEW_REPLICAS), sends(20.158), sends(20.24, 0),
        answer(30.0, TOO_FEW_REPLICAS), sends(30.316), sends(30.48, 0),
        answer(40.0, TOO_FEW_REPLICAS), sends(40.632), sends(40.96, 0),
        answer(80.0, TOO_FEW_REPLICAS), sends(80.79), sends(81.0, 0),
    ]),
    "a batch without a connection fails after its delivery timeout": (
        ALONE | {"delivery_timeout_ms": 3_000}, [
        until(0.0), lose(0.1), until(3.0), counts(failed_total=0),
        until(4.5), counts(errors={"ConnectionClosed": 1}),  # one longest back-off later at most
        close(4.5), works(False),
    ]),

    # --- lost connections ---
    "requests of a lost connection are sent again once it is open": ({}, [
        at(2.0, 0, 1, 2), lose(2.5), at(2.5, ("metadata", 2)), leaders(2.51, {0: 1}),
        at(4.9, ("reopen", 1), ("metadata", 2)), leaders(4.9, {0: 1}), reopen(4.9),
        sends(4.95, 0), answer(4.95), sends(4.95, 1), answer(4.95), sends(4.95, 2), answer(4.95),
        at(4.95, 3, 4), counts(retry_errors={"ConnectionClosed": 3},
                               duplicates_by_partition={0: 3}),  # they may have been written before
    ]),

    "a connection is replaced once all of its requests are answered": ({"max_in_flight": 3}, [
        at(1.0, 0, 1), reopen(1.5), at(2.5), answer(2.6), at(2.6),
        holds(lambda d: d.one.has_successor), answer(2.7), at(2.7, 2),
        holds(lambda d: d.one.has_successor, False), at(3.5, 3), counts(retried_records=0),
    ]),

    # --- leaders ---
    "a leader that was found is written to at once": (
        ALONE | {"retry_backoff_ms": 10_000.0, "retry_backoff_max_ms": 10_000.0}, [
        until(0.0), lose(0.1), until(13.0), leaders(13.0, {0: 2}), sends(13.0, 0),
    ]),
    "one request for leaders serves all producers": (
        ALONE | {"producers": 3, "retry_backoff_ms": 100.0}, [
        until(0.0), *(answer(0.1, NOT_LEADER, producer=each) for each in range(3)),
        at(0.15, ("metadata", 1)), leaders(0.2, {0: 1}, 1), until(0.25),
        *(answer(0.25, NOT_LEADER, producer=each) for each in range(3)), sends(0.29), until(0.6),
        *(answer(0.6, NOT_LEADER, producer=each) for each in range(3)), at(0.6, ("metadata", 1)),
    ]),

    # --- idempotence ---
    "a batch that failed for good leaves a gap and its partition starts again": (IDEMPOTENT, [
        until(1.0), answer(1.1, TOO_LARGE), answer(1.2, OUT_OF_ORDER), until(1.9), stamps((1, 0)),
        answer(1.9), until(2.0), stamps((1, 1)), counts(errors={"MessageSizeTooLargeError": 1}),
    ]),
    **{f"a broker that forgot the producer makes its partition start again: {code}": (IDEMPOTENT, [
        until(1.0), answer(1.1), answer(1.2, code), until(1.9), stamps((1, 0)), answer(1.9),
        counts(failed_total=0, acked_total=2),
    ]) for code in (UNKNOWN_PRODUCER, OUT_OF_ORDER)},
    "a copy that a broker would no longer know is counted": (IDEMPOTENT, [
        until(1.0), answer(1.1, TOO_LARGE), answer(1.2, TIMED_OUT),  # under the epoch before
        until(1.9), stamps((1, 0)), answer(1.9), counts(duplicates_by_partition={0: 1}),
    ]),

    # --- sockets and memory that are full ---
    "answers are awaited when batches wait for them only": ({"max_in_flight": 2}, [
        until(1.0), AWAITS_NONE, until(2.0), AWAITS_ANSWERS, congest(), AWAITS_NONE, flush(),
        AWAITS_ANSWERS, answer(2.1), AWAITS_NONE, lose(2.2), AWAITS_NONE,
    ]),
    "a full memory blocks the producer without a change of due times": (
        {"max_in_flight": 1, "buffer_memory": 2 * BATCH_BYTES}, [
        until(9.5), BLOCKED, holds(lambda d: d.producer.opened, 3),
        holds(lambda d: d.delivery.next_s, math.inf), answer(9.5), at(9.5, 1), BLOCKED,
        answer(9.5), at(9.5, 2), answer(9.5), at(9.5, 3), BLOCKED,  # the next one takes the room
        holds(lambda d: next(d.one.batches_in_flight).due_s, 3.0),
    ]),

    # --- the end ---
    "after the window batches that wait for room stay unsent and never fail": (
        {"end_s": 4.0, "max_in_flight": 1, "delivery_timeout_ms": 100}, [
        until(4.0), close(4.0), holds(lambda d: d.one.has_waiting, False), expire(50.0),
        answer(50.1), at(90.0), works(False),
        counts(acked_total=1, failed_total=0),
    ]),
    "records that the generator did not send in time are its own": ({"end_s": 4.0}, [
        until(1.0), close(4.0), counts(unsent_own_records=2), at(9.0),  # due at 2 and at 3
    ]),
    **{f"records that a broker held up are no fault of the generator: {name}": (
        {"end_s": 8.0, "max_in_flight": 2} | options, [
        until(1.0), *steps, close(8.0), counts(unsent_own_records=0),
    ]) for name, options, steps in (
        ("in flight", {}, ()), ("congested", {}, (answer(1.0), congest())),
        ("lost", {}, (lose(1.0),)), ("muted", {}, (answer(1.0, TOO_FEW_REPLICAS),)),
        ("blocked", {"max_in_flight": 1, "buffer_memory": BATCH_BYTES}, (until(4.0), BLOCKED)),
    )},

    # --- without answers ---
    "with acks 0 a last request checks that each broker has read all": (
        {"acks": "0", "end_s": 1.0}, [
        until(1.0), close(1.0),
        holds(lambda d: sorted(map(seen, d.until(1.0))), [("metadata", 1), ("metadata", 2)]),
        leaders(1.1, {0: 1}, 1), works(), lose(1.2, 2), works(False),  # it answers no more
    ]),

    # --- transactions ---
    "a commit waits for every batch and later records for the next": (COMMITS, [
        at(0.0, ADD), coordinate(0.1, 0), at(2.2, 1, 2), at(2.9), answer(2.9), at(3.5),
        answer(3.6), answer(3.7), at(3.7, COMMIT), at(4.5),
        coordinate(4.5, ADD),  # with records 3 and 4
        counts(transactions_committed=1, transactions_aborted=0, transaction_log_records=3,
               commit_s=pytest.approx(2.0), commit_mean_ms=pytest.approx(2_000.0),
               control_records_by_partition={0: 1}),
        coordinate(4.6, 3, 4),
    ]),
    "a batch is sent before the commit, full or not": (COMMITS | {"full": 10, "max_in_flight": 1}, [
        at(0.0, ADD), coordinate(0.1, 0), at(2.6), answer(2.7),
        holds(lambda d: batches_of(d.until(2.7)[0]), [(1, 2)]), until(3.2), answer(3.3),
        at(3.3, COMMIT), coordinate(3.4, ADD),  # for record 3
    ]),
    "a search goes on where another connection is lost": (COMMITS, [
        until(0.0), coordinate(0.1, code=NOT_COORDINATOR), at(0.8, FindCoordinator()),
        lose(0.9, 2), at(2.9, ("metadata", 1)), coordinate(2.9, ADD, given=(1, -1)),
    ]),
    "a failed batch aborts its transaction": (COMMITS | {"max_in_flight": 2}, [
        at(0.0, ADD), coordinate(0.1, 0), at(1.0, 1), answer(1.5), at(2.2, 2),
        answer(2.3, TOO_LARGE), at(2.3), answer(2.4), at(2.4, ABORT), at(3.1),
        coordinate(3.2, InitProducerId()), coordinate(3.3, code=CONCURRENT),
        at(4.0, InitProducerId()), coordinate(4.0, ADD, given=(0, 1)), coordinate(4.1, 3, 4),
        stamps((1, 0), (1, 1)),
        counts(transactions_committed=0, transactions_aborted=1, aborted_records=2,
               control_records_by_partition={0: 1}, errors={"MessageSizeTooLargeError": 1}),
    ]),
    "a transaction that is left open may end once more in the log": (COMMITS | {"end_s": 2.0}, [
        at(0.0, ADD), coordinate(0.1, 0), close(2.0), end(3.0), works(False),
        counts(transactions_aborted=1, control_records_by_partition={},
               duplicates_by_partition={0: 1}, errors={UNACKNOWLEDGED: 1}),
    ]),
    "a closed loop commits": (
        COMMITS | {"rate": math.inf, "max_in_flight": 1, "buffer_memory": 300}, [
        at(0.0, ADD), coordinate(0.1, 0), answer(1.0), at(1.0, 1), answer(2.0), at(2.0, 2),
        answer(3.0), at(3.0, 3), answer(4.0), at(4.0, 4), answer(5.0), at(5.0, COMMIT),
        coordinate(6.5, ADD), coordinate(6.6, 5),
    ]),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_a_script(name: str) -> None:
    options, steps = CASES[name]
    play(options, *steps)


def test_times_count_from_the_due_time_and_lateness_is_the_generators() -> None:
    driven = DrivenDelivery(**ALONE)
    driven.now = 0.25  # a busy generator comes to it only now
    play_on(driven, at(0.25, 0), answer(0.75), counts(acked_total=1, acked_bytes=RECORD_BYTES))
    for log, expected_us in ((driven.account.lateness, 250_000), (driven.account.latency, 750_000)):
        log.fold()
        assert log.histogram.quantile(50) == pytest.approx(expected_us, rel=0.001)
    held_up = play({"max_in_flight": 1}, until(3.5), answer(3.5), until(3.9))
    held_up.account.lateness.fold()
    assert held_up.account.lateness.histogram.count == 1, "only the first, which nothing held up"


def test_a_permanent_refusal_of_the_coordinator_ends_the_load_with_a_sentence() -> None:
    with pytest.raises(TransactionError, match="refused to add partitions to a transaction, with "):
        play(COMMITS, until(0.0), coordinate(0.1, code=FENCED))


def test_impossible_transactions_are_refused() -> None:
    for options, part in (
        ({"acks": "1"}, "enable_idempotence false, with acks 1; expected enable_idempotence true"),
        ({"acks": "all"}, "expected enable_idempotence true and acks all"),
        (IDEMPOTENT | {"delivery_timeout_ms": 899_950}, "expected a sum of at most 900000"),
    ):
        wrong = ProducerOptions(rate_bytes_per_s=1_000.0, transaction_duration_ms=100.0, **options)
        with pytest.raises(ValueError, match=f"transaction_duration_ms is 100.*{part}"):
            wrong.require_consistent()
    longest = ProducerOptions(transaction_duration_ms=100.0).transaction_timeout_ms
    assert longest == 120_100, "brokers wait with an abort for as long as a batch may take"


# --- brokers out of reach -----------------------------------------------------


def only_one_answers(end_s: float) -> Step:
    """Broker 1 answers at once, broker 2 never; the silence is updated every second."""

    def step(driven: DrivenDelivery) -> None:
        for second in range(int(end_s) + 1):
            driven.until(float(second))
            while driven.one.in_flight:
                driven.answer(driven.one, driven.now)
                driven.until(driven.now)
            driven.update_silence(driven.now)

    return step


def test_records_are_missing_at_the_broker_that_does_not_answer() -> None:
    """Broker 2 never answers, its memory is full, or its connection is lost without a request."""
    full = {"buffer_memory": 2 * BATCH_BYTES}
    for options, steps in ((BOTH, []), (BOTH | full, []), (BOTH, [lose(0.0, broker=2)])):
        driven = play(options, *steps, only_one_answers(40.0), close(40.0))
        one, two = (driven.counts.by_broker[broker] for broker in BROKERS)
        assert missing(driven) == [0, 40 - driven.counts.acked_records]
        assert two.missing_records > 5 and two.waiting_connections == 1
        assert two.silent_s > 20.0 > one.silent_s
        assert driven.counts.produce_requests == one.requests + two.requests


def test_unsent_records_are_missing_at_the_broker_that_fills_more_of_the_memory() -> None:
    driven = play(BOTH | {"buffer_memory": 6 * BATCH_BYTES}, until(40.0))  # neither answers
    one, two = (
        sum(batch.records for queue in way.queues.values() for batch in queue.batches)
        + sum(batch.records for batch in way.batches_in_flight)
        for way in (driven.one, driven.two)
    )
    assert one > two > 0, "the fuller is not the last by its number"
    assert driven.producer.blocked and driven.producer.partition == 1, "nor the next in turn"
    driven.delivery.close(40.0)
    assert missing(driven) == [40 - two, two]


def test_records_of_an_open_batch_are_missing_at_the_broker_of_its_partition() -> None:
    room = {"batch_size": 3 * BATCH_BYTES, "linger_ms": 60_000.0, "end_s": 32.0, "full": 3}
    driven = play(BOTH | room, only_one_answers(32.0))
    producer = driven.producer
    collected = producer.records_due_between(producer.due_s(producer.opened), 32.0)
    assert not producer.blocked and producer.partition == 0 and collected > 0
    driven.delivery.close(32.0)
    one, two = (driven.counts.by_broker[broker] for broker in BROKERS)
    assert two.waiting_connections == 1, "broker 2 is silent"
    assert (one.missing_records, one.waiting_connections) == (collected, 0)


def test_a_broker_that_is_slow_or_has_no_requests_is_not_silent() -> None:
    for rate, unanswered, longest_s in ((1.0, 3, 4.0), (0.05, 0, 0.0)):
        driven = DrivenDelivery(rate=rate)
        for second in range(100):
            driven.until(float(second))
            if len(driven.one.in_flight) > unanswered:
                driven.answer(driven.one, second + 0.1)
            driven.update_silence(second + 0.2)
        driven.delivery.close(100.0)
        assert driven.counts.by_broker[1].silent_s <= longest_s
        assert driven.counts.by_broker[2].silent_s == 0.0
