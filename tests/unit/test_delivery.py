"""The delivery core, event by event: no socket, no thread, no real time.

Each case is a script for a producer of one record per second, whose batches hold one record unless
`full` is given. The rules that hold for any events are in `test_delivery_mishaps.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from jobs.engine.producing.delivery import Action, Produce, Reopen, SendControlRequest
from jobs.engine.producing.producer import Connection
from jobs.engine.producing.protocol import EXPIRED, UNACKNOWLEDGED
from jobs.engine.producing.transactions import (
    AddPartitions,
    EndTransaction,
    FindCoordinator,
    RenewEpoch,
    TransactionError,
)
from metrics.traffic.clients import ProducerOptions
from tests.support.driven_delivery import BROKERS, RECORD_BYTES, DrivenDelivery

BATCH_BYTES = 161
"""Size of a batch of one record, with the header [B]."""

NOT_LEADER, TIMED_OUT, TOO_LARGE, TOO_FEW_REPLICAS = 6, 7, 10, 19
OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER = 45, 46, 59
LOADING, NOT_COORDINATOR, CONCURRENT, FENCED = 14, 16, 51, 90

ALONE: dict[str, Any] = {"rate": 0.001}
"""Only record 0 is due in the window."""
IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "acks": "all"}
SHARED: dict[str, Any] = {"leaders": (1, 1), "batch_size": 1}
"""Two partitions at one leader; each batch chooses one of them."""
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
    if isinstance(action, SendControlRequest) and action.request is not None:
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
    return lambda driven: driven.delivery.mark_congested(way(driven, broker))


def flush(broker: int = 1) -> Step:
    return lambda driven: driven.delivery.mark_flushed(way(driven, broker))


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
        in_flight = [batch for _, sent in way(driven, broker).in_flight for batch in sent]
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


NOT_MUTED = holds(lambda driven: driven.producer.muted, {})
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
    "one request takes the waiting batches of all partitions": (
        {"leaders": (1,) * 4, "max_in_flight": 1, "batch_size": 1}, [
        until(6.5), answer(6.5), at(6.5, [(1, 1), (3, 1), (4, 1), (5, 1)]),
    ]),
    "answers may gather only while no batch waits for one": ({"max_in_flight": 1}, [
        until(0.5), holds(lambda d: d.delivery.may_gather(0.5)), until(1.0),
        holds(lambda d: d.delivery.may_gather(1.0), False), answer(1.05), until(1.05),
        holds(lambda d: d.delivery.may_gather(1.09), False),  # the next will probably wait, too
        holds(lambda d: d.delivery.may_gather(1.11)), answer(1.2, NOT_LEADER),
        holds(lambda d: d.delivery.may_gather(1.2), False),
    ]),
    "a partition without an answer of its own has failed": (ALONE, [
        until(0.0), lambda d: d.delivery.handle_produce_response(d.one, {}, 0, 0.1),
        counts(acked_total=0, errors={"UnknownError": 1}),
    ]),
    "throttling and records in the log are summed": ({}, [
        until(1.0), lambda d: d.delivery.handle_produce_response(d.one, {0: 0}, 30, 1.1),
        lambda d: d.delivery.handle_produce_response(d.one, {0: 0}, 12, 1.2),
        counts(throttle_ms=42), holds(lambda d: d.delivery.log_bytes, 2 * BATCH_BYTES),
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
    "a batch is given up after its retries and the next one is sent": ({"retries": 2}, [
        until(0.0), answer(0.1, TOO_FEW_REPLICAS), sends(0.4, 0), answer(0.5, TOO_FEW_REPLICAS),
        sends(0.8, 0), answer(0.9, TOO_FEW_REPLICAS), sends(1.2, 1), NOT_MUTED,
        counts(errors={"NotEnoughReplicasError": 1}, retried_records=2),
    ]),
    "a permanent error is not retried": ({}, [
        until(0.0), answer(0.1, TOO_LARGE), at(0.9), NOT_MUTED,
        counts(errors={"MessageSizeTooLargeError": 1}),
    ]),
    "a refused batch fails after its delivery timeout": (ALONE | {"delivery_timeout_ms": 1_000}, [
        until(0.0), answer(0.5, TOO_FEW_REPLICAS), sends(0.99, 0), counts(failed_total=0),
        answer(1.0, TOO_FEW_REPLICAS), counts(errors={"NotEnoughReplicasError": 1}), sends(9.0),
    ]),
    "a batch without a connection fails after its delivery timeout": (
        ALONE | {"delivery_timeout_ms": 3_000}, [
        until(0.0), lose(0.1), until(3.0), counts(failed_total=0),
        until(4.5), counts(errors={"ConnectionClosed": 1}),  # one longest back-off later at most
        close(4.5), works(False),
    ]),
    "batches without a connection are checked soon after another one opened": (
        ALONE | {"delivery_timeout_ms": 5_500, "retry_backoff_ms": 1_000.0,
                 "retry_backoff_max_ms": 60_000.0}, [
        until(0.0), lose(0.1, 1), lose(0.1, 2), until(5.0), reopen(5.0, 2), until(5.0),
        counts(failed_total=0), until(6.2), counts(errors={"ConnectionClosed": 1}),
    ]),
    "batches that were never sent expire": ({"max_in_flight": 1, "delivery_timeout_ms": 5_000}, [
        until(3.5), expire(6.0), counts(failed_total=0), expire(6.1), counts(errors={EXPIRED: 1}),
        answer(6.1), at(6.1, 2),
    ]),
    "batches behind a batch that is sent again expire": (
        {"delivery_timeout_ms": 5_000, "end_s": 4.0}, [
        until(0.0), answer(0.1, TOO_FEW_REPLICAS), until(4.0), answer(6.5), at(6.5, 2, 3),
        counts(errors={EXPIRED: 1}), answer(6.6), answer(6.7), close(7.0), works(False),
    ]),
    "a request without an answer is overdue": (ALONE | {"request_timeout_ms": 2_000}, [
        until(0.0), holds(lambda d: d.delivery.overdue_connections(2.0), []),
        holds(lambda d: d.delivery.overdue_connections(2.1) == [d.one]), answer(2.1),
        holds(lambda d: d.delivery.overdue_connections(2.1), []),
    ]),

    # --- lost connections ---
    "requests of a lost connection are sent again once it is open": ({}, [
        at(2.0, 0, 1, 2), lose(2.5), at(2.5, ("metadata", 2)), leaders(2.51, {0: 1}),
        at(4.9, ("reopen", 1), ("metadata", 2)), leaders(4.9, {0: 1}), reopen(4.9),
        sends(4.95, 0), answer(4.95), sends(4.95, 1), answer(4.95), sends(4.95, 2), answer(4.95),
        at(4.95, 3, 4), counts(retry_errors={"ConnectionClosed": 3},
                               duplicates_by_partition={0: 3}),  # they may have been written before
    ]),
    "a failed batch that may be in the log is no duplicate": (ALONE | {"retries": 0}, [
        until(0.0), lose(0.1),
        counts(errors={"ConnectionClosed": 1}, duplicates_by_partition={}), close(0.2),
        holds(missing, [1, 0]),
    ]),
    "a failed batch is a duplicate with its second copy": (ALONE | {"retries": 1}, [
        until(0.0), lose(0.1), reopen(0.2), until(0.9), lose(1.1),
        counts(errors={"ConnectionClosed": 1}, duplicates_by_partition={0: 1}),
    ]),
    "a new batch for a lost connection opens it": ({}, [
        until(0.0), answer(0.1), lose(0.2), at(0.9, ("metadata", 2)),
        at(1.5, ("reopen", 1)), reopen(1.6), at(1.6, 1), counts(retried_records=0),
    ]),

    "a connection is replaced once all of its requests are answered": ({"max_in_flight": 3}, [
        at(1.0, 0, 1), reopen(1.5), at(2.5), answer(2.6), at(2.6),
        holds(lambda d: d.one.has_successor), answer(2.7), at(2.7, 2),
        holds(lambda d: d.one.has_successor, False), at(3.5, 3), counts(retried_records=0),
    ]),
    "a connection without answers is replaced once the broker has read its requests": (
        {"acks": "0"}, [
        at(1.0, 0, 1), reopen(1.5), at(2.5, ("metadata", 1)),  # it is answered after all others
        leaders(2.6, {0: 1}, 1), at(2.6, 2),
    ]),
    "a connection that is lost while its successor waits is replaced at once": (ALONE, [
        at(0.0, 0), reopen(0.1), lose(0.2), at(0.9, ("metadata", 2), 0),
        counts(retry_errors={"ConnectionClosed": 1}),
    ]),

    # --- leaders ---
    "a moved leader is looked up and written to": ({"rate": 0.1}, [
        until(0.0), answer(0.1, NOT_LEADER), at(0.1, ("metadata", 1)), leaders(0.15, {0: 2}, 1),
        at(0.5, 0), answer(0.5, broker=2), at(10.0, 1), answer(10.1, broker=2),
        counts(duplicates_at_most=0),  # a broker that does not lead wrote nothing
    ]),
    "a leader that was found is written to at once": (
        ALONE | {"retry_backoff_ms": 10_000.0, "retry_backoff_max_ms": 10_000.0}, [
        until(0.0), lose(0.1), until(13.0), leaders(13.0, {0: 2}), sends(13.0, 0),
    ]),
    "a leader that is unknown to the task is no leader": (ALONE, [
        until(0.0), answer(0.1, NOT_LEADER), until(0.1), leaders(0.15, {0: 9}, 1), at(0.5, 0),
        answer(0.5),
    ]),
    "one request for leaders serves all producers": (
        ALONE | {"producers": 3, "retry_backoff_ms": 100.0}, [
        until(0.0), *(answer(0.1, NOT_LEADER, producer=each) for each in range(3)),
        at(0.15, ("metadata", 1)), leaders(0.2, {0: 1}, 1), until(0.25),
        *(answer(0.25, NOT_LEADER, producer=each) for each in range(3)), sends(0.29), until(0.6),
        *(answer(0.6, NOT_LEADER, producer=each) for each in range(3)), at(0.6, ("metadata", 1)),
    ]),
    "a lost metadata request is repeated over another connection": (ALONE, [
        until(0.0), answer(0.1, NOT_LEADER), until(0.1), lose(0.11), at(0.11, ("metadata", 2)),
    ]),
    "a metadata request uses the least busy connection": ({}, [
        until(1.0), answer(1.1, NOT_LEADER), at(1.1, ("metadata", 2)),
    ]),
    "a metadata request uses no congested connection": ({}, [
        until(1.0), congest(2), answer(1.1, NOT_LEADER), at(1.1, ("metadata", 1)),
    ]),
    "a partition that left its old leader is not checked there again": (
        SHARED | {"max_in_flight": 2, "seed": 4, "end_s": 3.0}, [
        until(1.9), answer(1.95, NOT_LEADER), sends(2.5, 2),  # to broker 1, which is full now
        leaders(2.5, {0: 2, 1: 1}), until(3.0), close(3.0), sends(3.0, 0), answer(3.1, broker=2),
        until(3.1), answer(3.2), at(3.2), answer(3.3), NOT_MUTED, works(False),
    ]),
    "a partition that left its old leader hides no later failure there": (
        SHARED | {"max_in_flight": 3, "seed": 1, "end_s": 3.9}, [
        until(2.9), answer(2.95, NOT_LEADER), until(3.5), leaders(3.5, {0: 2, 1: 1}), until(3.9),
        close(3.9), sends(3.9, 0), answer(3.95, broker=2), until(3.95), answer(4.0, NOT_LEADER),
        until(6.0), end(10.0), holds(lambda d: d.counts.acked_total + d.counts.failed_total, 4),
        counts(sent_by_partition={0: 3, 1: 1}),
    ]),

    # --- idempotence ---
    "batches are sent again under their own sequences": (IDEMPOTENT, [
        until(2.0), stamps((0, 0), (0, 1), (0, 2)), answer(2.1, TOO_FEW_REPLICAS),
        answer(2.2, OUT_OF_ORDER), answer(2.3, OUT_OF_ORDER),  # behind a missing one
        until(3.5), stamps((0, 0)), answer(3.5), until(3.5), stamps((0, 1)), answer(3.5),
        until(3.5), stamps((0, 2)), answer(3.5), until(4.0), stamps((0, 3), (0, 4)),
        counts(failed_total=0),
    ]),
    "a batch that the broker has already is acknowledged and no duplicate": (ALONE | IDEMPOTENT, [
        until(0.0), lose(0.1), reopen(0.2), until(1.0), stamps((0, 0)), answer(1.0, DUPLICATE),
        counts(acked_total=1, failed_total=0, duplicates_at_most=0),
    ]),
    "a batch that failed for good leaves a gap and its partition starts again": (IDEMPOTENT, [
        until(1.0), answer(1.1, TOO_LARGE), answer(1.2, OUT_OF_ORDER), until(1.9), stamps((1, 0)),
        answer(1.9), until(2.0), stamps((1, 1)), counts(errors={"MessageSizeTooLargeError": 1}),
    ]),
    "the last batch gives its sequence back when it failed": (IDEMPOTENT, [
        until(0.0), answer(0.1, TOO_LARGE), until(1.0), stamps((0, 0)),
    ]),
    "a batch that may be in the log does not give its sequence back": (
        IDEMPOTENT | {"retries": 1}, [
        until(0.0), answer(0.1, TIMED_OUT), until(0.5), answer(0.5, TIMED_OUT),
        counts(errors={"RequestTimedOutError": 1}), until(1.0), stamps((1, 0)),
    ]),
    **{f"a broker that forgot the producer makes its partition start again: {code}": (IDEMPOTENT, [
        until(1.0), answer(1.1), answer(1.2, code), until(1.9), stamps((1, 0)), answer(1.9),
        counts(failed_total=0, acked_total=2),
    ]) for code in (UNKNOWN_PRODUCER, OUT_OF_ORDER)},
    "a copy that a broker would no longer know is counted": (IDEMPOTENT, [
        until(1.0), answer(1.1, TOO_LARGE), answer(1.2, TIMED_OUT),  # under the epoch before
        until(1.9), stamps((1, 0)), answer(1.9), counts(duplicates_by_partition={0: 1}),
    ]),
    "two copies that may be in the log are the failed one and a duplicate": (
        ALONE | IDEMPOTENT | {"retries": 2}, [
        until(0.0), lose(0.1), reopen(0.2), until(1.0), answer(1.0, UNKNOWN_PRODUCER), until(2.0),
        lose(2.1), counts(failed_total=1, duplicates_at_most=1),  # the second, of another epoch
    ]),
    "without idempotence batches have no stamp": ({}, [until(1.0), stamps(None, None)]),

    # --- sockets and memory that are full ---
    "answers are awaited when batches wait for them only": ({"max_in_flight": 2}, [
        until(1.0), AWAITS_NONE, until(2.0), AWAITS_ANSWERS, congest(), AWAITS_NONE, flush(),
        AWAITS_ANSWERS, answer(2.1), AWAITS_NONE, lose(2.2), AWAITS_NONE,
    ]),
    "a congested connection counts once as work and not after its loss": (ALONE | {"retries": 0}, [
        until(0.0), congest(), congest(), answer(0.1), close(0.2), works(), lose(0.3),
        works(False), reopen(0.4), until(0.4), holds(lambda d: d.one.has_room),
    ]),
    "a full memory blocks the producer without a change of due times": (
        {"max_in_flight": 1, "buffer_memory": 2 * BATCH_BYTES}, [
        until(9.5), BLOCKED, holds(lambda d: d.producer.opened, 3),
        holds(lambda d: d.delivery.next_s, math.inf), answer(9.5), at(9.5, 1), BLOCKED,
        answer(9.5), at(9.5, 2), answer(9.5), at(9.5, 3), BLOCKED,  # the next one takes the room
        holds(lambda d: d.one.in_flight[0][1][0].due_s, 3.0),
    ]),
    "a generator that runs late takes no record from after the window": (
        {"end_s": 4.0, "max_in_flight": 1}, [
        until(0.0), lambda d: setattr(d, "now", 9.5), at(9.5),
        holds(lambda d: d.producer.opened, 4),
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
    "records that linger are no fault of the generator": (
        {"end_s": 4.0, "full": 10, "linger_ms": 5_000.0}, [
        until(4.0), close(4.0), counts(unsent_own_records=0),
    ]),
    **{f"records that a broker held up are no fault of the generator: {name}": (
        {"end_s": 8.0, "max_in_flight": 2} | options, [
        until(1.0), *steps, close(8.0), counts(unsent_own_records=0),
    ]) for name, options, steps in (
        ("in flight", {}, ()), ("congested", {}, (answer(1.0), congest())),
        ("lost", {}, (lose(1.0),)), ("muted", {}, (answer(1.0, TOO_FEW_REPLICAS),)),
        ("blocked", {"max_in_flight": 1, "buffer_memory": BATCH_BYTES}, (until(4.0), BLOCKED)),
    )},
    "at the end of the drain every sent record has an outcome": ({"end_s": 4.0}, [
        until(3.0), answer(3.1, TOO_FEW_REPLICAS), close(4.0), end(3.11),
        counts(errors={"NotEnoughReplicasError": 1, UNACKNOWLEDGED: 3}, acked_total=0),
        works(False),
    ]),

    # --- without answers ---
    "with acks 0 written records are acknowledged": (
        {"acks": "0", "end_s": 3.0, "max_in_flight": 1}, [
        at(3.0, 0, 1, 2), counts(acked_total=3), holds(lambda d: len(d.one.in_flight), 0),
    ]),
    "with acks 0 a last request checks that each broker has read all": (
        {"acks": "0", "end_s": 1.0}, [
        until(1.0), close(1.0),
        holds(lambda d: sorted(map(seen, d.until(1.0))), [("metadata", 1), ("metadata", 2)]),
        leaders(1.1, {0: 1}, 1), works(), lose(1.2, 2), works(False),  # it answers no more
    ]),
    "with acks 0 batches are written while a metadata request is in flight": (
        BOTH | {"sticky_partition": "round_robin", "acks": "0", "max_in_flight": 5}, [
        at(0.0, 0), lose(0.1), at(0.1, ("metadata", 2)), sends(1.5, 1),
        counts(acked_by_partition={0: 1, 1: 1}), leaders(1.6, {0: 2}), sends(3.5, 2, 3),
        holds(lambda d: len(d.two.in_flight), 0),
    ]),
    "with acks 0 bytes that a lost connection did not take are sent again": (
        ALONE | {"acks": "0"}, [
        holds(lambda d: seen(d.delivery.next(0.0)), 0), lose(0.0), counts(acked_total=0),
        reopen(0.5), sends(0.5, 0), counts(acked_total=1, retry_errors={"ConnectionClosed": 1}),
    ]),

    # --- transactions ---
    "a partition is added once before its first batch": (COMMITS | {"leaders": (1, 2)}, [
        at(0.0, ADD), coordinate(0.1, 0), at(1.0, AddPartitions((1,))), answer(1.1),
        coordinate(1.2, 1), at(2.0, 2),
    ]),
    "a commit waits for every batch and later records for the next": (COMMITS, [
        at(0.0, ADD), coordinate(0.1, 0), at(2.2, 1, 2), at(2.9), answer(2.9), at(3.5),
        answer(3.6), answer(3.7), at(3.7, COMMIT), at(4.5),
        coordinate(4.5, ADD),  # with records 3 and 4
        counts(transactions_committed=1, transactions_aborted=0, transaction_log_records=3,
               commit_s=pytest.approx(2.0), commit_mean_ms=pytest.approx(2_000.0),
               control_records_by_partition={0: 1}),
        coordinate(4.6, 3, 4),
    ]),
    "a lingering batch waits": (
        COMMITS | {"full": 10, "linger_ms": 60_000.0, "request_timeout_ms": 30_000}, [at(0.0)]),
    "a batch is sent before the commit, full or not": (COMMITS | {"full": 10, "max_in_flight": 1}, [
        at(0.0, ADD), coordinate(0.1, 0), at(2.6), answer(2.7),
        holds(lambda d: batches_of(d.until(2.7)[0]), [(1, 2)]), until(3.2), answer(3.3),
        at(3.3, COMMIT), coordinate(3.4, ADD),  # for record 3
    ]),
    "no transaction begins without a record": (COMMITS | {"rate": 0.1}, [
        at(0.0, ADD), coordinate(0.1, 0), answer(1.0), at(2.5, COMMIT), coordinate(2.6), at(9.9),
        at(10.0, ADD),
    ]),
    "requests are repeated while the coordinator loads or completes": (COMMITS, [
        at(0.0, ADD), coordinate(0.1, 0), answer(0.2), at(2.4, 1, 2), answer(2.4), answer(2.4),
        at(2.5, COMMIT), coordinate(2.6, code=LOADING), at(2.99), at(3.2, COMMIT),
        coordinate(3.2, ADD), coordinate(3.3, code=CONCURRENT), at(3.33, ADD), coordinate(3.4, 3),
    ]),
    "a moved coordinator is found again": (COMMITS, [
        until(0.0), coordinate(0.1, code=NOT_COORDINATOR), at(0.8, FindCoordinator()),
        coordinate(0.8, ADD, given=(2, -1)), coordinate(0.9, 0, broker=2),
    ]),
    "a lost coordinator is found and the request is repeated": (COMMITS, [
        until(0.0), lose(0.1), at(0.8, ("metadata", 2), FindCoordinator()), leaders(0.8, {0: 1}),
        coordinate(0.8, ADD, given=(2, -1), broker=2), coordinate(0.9, ("reopen", 1), broker=2),
    ]),
    "a search goes on where another connection is lost": (COMMITS, [
        until(0.0), coordinate(0.1, code=NOT_COORDINATOR), at(0.8, FindCoordinator()),
        lose(0.9, 2), at(2.9, ("metadata", 1)), coordinate(2.9, ADD, given=(1, -1)),
    ]),
    "a search is lost with its connection, and no other request": (COMMITS, [
        until(0.0), lose(0.1), at(0.1, ("metadata", 2)), reopen(0.2), at(0.8, FindCoordinator()),
        lose(0.9), at(2.5, FindCoordinator()), leaders(2.5, {0: 1}),
        coordinate(2.6, ADD, given=(2, -1), broker=2),
    ]),
    "a coordinator without a connection is looked up again": (COMMITS, [
        until(0.0), coordinate(0.1, code=NOT_COORDINATOR), until(0.8),
        coordinate(0.8, given=(9, -1)), at(1.5, FindCoordinator()),
    ]),
    "a failed batch aborts its transaction": (COMMITS | {"max_in_flight": 2}, [
        at(0.0, ADD), coordinate(0.1, 0), at(1.0, 1), answer(1.5), at(2.2, 2),
        answer(2.3, TOO_LARGE), at(2.3), answer(2.4), at(2.4, ABORT), at(3.1),
        coordinate(3.2, RenewEpoch()), coordinate(3.3, code=CONCURRENT), at(4.0, RenewEpoch()),
        coordinate(4.0, ADD, given=(0, 1)), coordinate(4.1, 3, 4), stamps((1, 0), (1, 1)),
        counts(transactions_committed=0, transactions_aborted=1, aborted_records=2,
               control_records_by_partition={0: 1}, errors={"MessageSizeTooLargeError": 1}),
    ]),
    "no batch of a failed transaction is sent again": (COMMITS | {"max_in_flight": 2}, [
        at(0.0, ADD), coordinate(0.1, 0), until(1.0), answer(1.5, TOO_LARGE),
        answer(1.6, TIMED_OUT), at(1.6, ABORT), counts(retried_records=0),
        counts(errors={"MessageSizeTooLargeError": 1, "RequestTimedOutError": 1}),
    ]),
    "batches behind a failed batch fail": (COMMITS | {"max_in_flight": 1}, [
        at(0.0, ADD), coordinate(0.1, 0), until(2.2), answer(2.3, TOO_LARGE), at(2.3, ABORT),
        counts(errors={"MessageSizeTooLargeError": 1, "TransactionAbortedError": 1}),
        holds(lambda d: d.producer.buffered_bytes, 0), coordinate(2.4, RenewEpoch()),
        coordinate(2.5, ADD, given=(0, 1)), coordinate(2.6, 2),
    ]),
    "a batch that expires before its partition is added needs no abort": (
        COMMITS | {"request_timeout_ms": 1_000, "delivery_timeout_ms": 1_000}, [
        at(0.0, ADD), at(1.2), expire(1.2), until(1.2), coordinate(1.2, code=LOADING),
        at(2.0, RenewEpoch()), counts(transactions_aborted=0, errors={"KafkaTimeoutError": 1}),
    ]),
    "an abort keeps the memory that the next transaction fills": (
        COMMITS | {"buffer_memory": 320}, [
        at(0.0, ADD), coordinate(0.1, 0), until(9.5), BLOCKED,
        holds(lambda d: d.producer.opened, 5),
        *[answer(9.5, TOO_LARGE)] * 3, at(9.6, ABORT), holds(lambda d: d.producer.opened, 5),
        coordinate(9.7, RenewEpoch()), coordinate(9.8, ADD, given=(0, 1)),
        coordinate(9.9, 3, 4, 5, 6, 7), holds(lambda d: d.producer.opened > 5),
    ]),
    "an open batch waits for its partition and does not expire": (COMMITS | {"full": 10}, [
        at(0.0, ADD), expire(0.5), coordinate(0.6, 0), counts(failed_total=0),
    ]),
    "the last transaction is committed in the drain": (
        COMMITS | {"end_s": 2.0, "max_in_flight": 1}, [
        at(0.0, ADD), coordinate(0.1, 0), until(1.9), close(2.0), works(), answer(2.1),
        at(2.1, COMMIT), works(), coordinate(2.2), works(False),  # record 1 waited, is dropped
        counts(control_records_by_partition={0: 1}, transactions_committed=0),  # after the window
    ]),
    "a transaction that is left open may end once more in the log": (COMMITS | {"end_s": 2.0}, [
        at(0.0, ADD), coordinate(0.1, 0), close(2.0), end(3.0), works(False),
        counts(transactions_aborted=1, control_records_by_partition={},
               duplicates_by_partition={0: 1}, errors={UNACKNOWLEDGED: 1}),
    ]),
    "a retry at the end of the drain fails once": (COMMITS | {"end_s": 2.0}, [
        at(0.0, ADD), coordinate(0.1, 0), until(1.0), answer(1.9, TIMED_OUT), close(2.0), end(2.1),
        counts(errors={"RequestTimedOutError": 1, UNACKNOWLEDGED: 1}), works(False),
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
        (IDEMPOTENT | {"delivery_timeout_ms": 899_950}, "expected at most 900000 together"),
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
            driven.delivery.update_silence(driven.now)

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
        way.pending.records + sum(batch.records for _, sent in way.in_flight for batch in sent)
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
            driven.delivery.update_silence(second + 0.2)
        driven.delivery.close(100.0)
        assert driven.counts.by_broker[1].silent_s <= longest_s
        assert driven.counts.by_broker[2].silent_s == 0.0
