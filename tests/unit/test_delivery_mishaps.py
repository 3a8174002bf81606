"""Deliveries to brokers that fail in any way: a state machine, whose rules hold at each moment.

Each record is acknowledged once or named as lost, nothing waits for ever, memory is bounded, and
epochs never go back, whatever brokers answer and however late: leaders and coordinators move,
brokers fall silent, sockets fill up, sessions end, and connections close with any requests taken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from jobs.engine.producing.batch import Batch
from jobs.engine.producing.delivery import Action, Produce, Reopen, SendControlRequest
from jobs.engine.producing.producer import Connection, Producer
from jobs.engine.producing.protocol import (
    AddPartitions,
    ControlRequest,
    CoordinatorRequest,
    EndTransaction,
    FindCoordinator,
    FindLeaders,
    InitProducerId,
)
from tests.support.driven_delivery import BROKERS, RECORD_BYTES, DrivenDelivery
from tests.support.robustness import few_or_many
from tests.support.scripted_log import Log

NOT_LEADER, TIMED_OUT, TOO_LARGE, TOO_FEW_REPLICAS, UNKNOWN_PRODUCER = 6, 7, 10, 19, 59
NOT_COORDINATOR = 16
OF_A_COORDINATOR = (14, 51)  # loading, and completing the transaction before
TRANSIENT, REFUSALS = (TIMED_OUT, TOO_FEW_REPLICAS), (TOO_LARGE, UNKNOWN_PRODUCER)
JOINED = 9
"""A broker that joined after the plan was made."""
IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "acks": "all"}
END_S = 30.0
KINDS: tuple[dict[str, Any], ...] = (
    {}, {"acks": "0"}, IDEMPOTENT, IDEMPOTENT | {"transaction_duration_ms": 2_500.0}
)  # fmt: skip
CHOICES: dict[str, tuple[Any, ...]] = {
    "leaders": ((1, 2, 1), (1, 2), (1,)),
    "full": (3, 1),
    "producers": (1, 2),
    "batch_size": (1, 500),
    "max_in_flight": (3, 1),
    "linger_ms": (0.0, 400.0),
    "retries": (1_000, 3, 1),
    "buffer_memory": (1 << 25, 600),
    "delivery_timeout_ms": (120_000, 3_000),
    "request_timeout_ms": (30_000, 1_000),
}
NUMBERS = st.integers(0, 63)
EVENTS = (
    *("answer_one", "answer_all", "answer_all", "open_connections"), "close_connection",
    "end_session", "fill_or_empty_socket", "move_leader", "move_coordinator",
)  # fmt: skip
SEEN: Counter[str] = Counter()
"""What happened to the records of all examples."""


def waiting_in(producer: Producer) -> Iterator[Batch]:
    """The batches that wait to be sent, for the first time or again."""
    for queue in producer.queues.values():
        yield from queue.batches
    if producer.transactions is not None:
        yield from producer.transactions.pending


class WatchedDelivery(DrivenDelivery):
    """A delivery that is checked against its rules with each action and after each event.

    Attributes:
        added: producer → partitions that the coordinator has added to its transaction.
        reopening: connections that are being opened again.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(rate=3.0, end_s=END_S, **options)
        self.added: dict[Producer, set[int]] = defaultdict(set)
        self._dropped = 0
        self.reopening: set[Connection] = set()
        self._sent: Counter[int] = Counter()
        self._retried: Counter[int] = Counter()
        self._requests: Counter[int] = Counter()
        self._last: dict[tuple[int, int], int] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._not_before_s: dict[tuple[int, int], float] = {}
        self._failed_before: Counter[Producer] = Counter()

    # --- what it does -------------------------------------------------------

    def carry_out(self, action: Action, now: float) -> None:
        """Check an action, and carry it out."""
        connection = action.connection
        if isinstance(action, Produce):
            self._check_request(connection, action.batches, now)
        elif isinstance(action, Reopen):
            assert not connection.is_open and connection not in self.reopening, "once"
            self.reopening.add(connection)
        elif isinstance(action, SendControlRequest):
            self._check_question(connection, action.request)
        super().carry_out(action, now)

    def _check_request(self, connection: Connection, batches: Sequence[Batch], now: float) -> None:
        producer = connection.producer
        assert connection.is_open and not connection.unwritten
        assert len(connection.in_flight) <= connection.max_in_flight
        assert len({batch.partition for batch in batches}) == len(batches)
        self._requests[connection.broker] += self.account.window.holds(now)
        for batch in batches:
            of = producer.index, batch.partition
            assert self.delivery.leaders[batch.partition] == connection.broker
            if producer.transactions is not None:
                assert batch.partition in self.added[producer], "before its first batch"
            if batch.stamp is not None:
                assert batch.stamp[0] >= self._epochs.get(of, 0), "epochs never go back"
                self._epochs[of] = batch.stamp[0]
            if batch.trouble is not None:
                assert len(batches) == 1
                self._check_retry(producer, batch, now)
                continue
            assert self.delivery.is_open and now < END_S
            assert producer.due_s(batch.first + batch.records - 1) <= now + 1e-9
            queue = producer.queues.get(batch.partition)
            assert queue is None or not queue.is_muted, "no batch overtakes one that failed"
            assert batch.first > self._last.get(of, -1), "in order"
            self._last[of] = batch.first
            self._sent[batch.partition] += batch.records

    def _check_retry(self, producer: Producer, batch: Batch, now: float) -> None:
        assert batch.trouble is not None and batch.trouble.failures <= self.options.retries
        assert now - batch.due_s <= self.options.delivery_timeout_ms / 1000.0
        muted = producer.queues[batch.partition]
        assert muted.under_way is batch, "one by one"
        assert all(batch.first < later.first for later in muted.again), "in order"
        assert now >= self._not_before_s.get((producer.index, batch.partition), 0.0), "back-off"
        self._retried[batch.partition] += batch.records

    def _check_question(self, connection: Connection, request: ControlRequest) -> None:
        producer = connection.producer
        assert connection.is_open
        own = [each for way in producer.connections.values() for _, each in way.in_flight]
        if isinstance(request, FindLeaders):
            every = [each for way in self.delivery.connections for _, each in way.in_flight]
            if self.options.acks != "0":
                assert sum(isinstance(each, FindLeaders) for each in every) == 1, "one for all"
            return
        others = [each for each in own if not isinstance(each, list | FindLeaders)]
        assert others == [request], "one at a time"
        if isinstance(request, EndTransaction):
            assert not any(isinstance(each, list) for each in own)
            assert not any(queue.again for queue in producer.queues.values())
            has_failed = self._failed(producer) > self._failed_before[producer]
            assert request.is_commit is not has_failed, "all or nothing"

    def _failed(self, producer: Producer) -> int:
        return sum(self.counts.by_producer.failed.get(producer.index, {}).values())

    # --- what happens to it -------------------------------------------------

    def respond(self, connection: Connection, errors: Mapping[int, int], now: float) -> None:
        """Answer the oldest request with an error code for each partition."""
        self.now = now
        batches = self.in_flight(connection)[0]
        self.delivery.handle_produce_response(connection, errors, 0, now)
        self._note_failures(connection.producer, batches, now)

    def in_flight(self, connection: Connection) -> list[list[Batch]]:
        """The batches of each unanswered produce request."""
        return [each for _, each in connection.in_flight if isinstance(each, list)]

    def lose(self, connection: Connection, now: float, error: str = "ConnectionClosed") -> None:
        """Lose the connection."""
        requests = self.in_flight(connection)
        super().lose(connection, now, error)
        for batches in requests:
            self._note_failures(connection.producer, batches, now)

    def reopen(self, connection: Connection, now: float) -> None:
        """Reopen the connection."""
        self.reopening.discard(connection)
        super().reopen(connection, now)

    def end_transaction(self, producer: Producer) -> None:
        """Forget a transaction that the coordinator has ended."""
        self.added[producer].clear()
        self._failed_before[producer] = self._failed(producer)

    def _note_failures(self, producer: Producer, batches: Sequence[Batch], now: float) -> None:
        options = self.options
        for batch in batches:
            muted, of = producer.queues.get(batch.partition), (producer.index, batch.partition)
            if muted is None or batch not in muted.again:
                self._not_before_s.pop(of, None)
                continue
            assert batch.trouble is not None
            backoff_ms = options.retry_backoff_ms * 2 ** min(batch.trouble.failures - 1, 30)
            backoff_ms = min(backoff_ms, options.retry_backoff_max_ms)
            self._not_before_s[of] = now + 0.8 * backoff_ms / 1000.0

    def close(self) -> None:
        """End the window."""
        self._dropped = sum(
            batch.records
            for producer in self.delivery.producers
            for batch in waiting_in(producer)
            if batch.trouble is None
        )
        self.delivery.close(END_S)

    # --- what holds at each moment ------------------------------------------

    def check(self, now: float) -> None:
        """Each record is in one place, memory is bounded, and nothing waits without a cause."""
        counts, is_open = self.counts, self.delivery.is_open
        opened = unsettled = 0
        for producer in self.delivery.producers:
            waiting = list(waiting_in(producer))
            new = [batch for batch in waiting if batch.trouble is None]
            opened += producer.opened
            unsettled += sum(b.records for b in waiting if is_open or b.trouble is not None)
            for connection in producer.connections.values():
                unsettled += sum(b.records for b in connection.batches_in_flight)
            if not is_open:
                continue
            assert producer.buffered_bytes == sum(batch.size for batch in waiting)
            memory = self.options.buffer_memory
            assert producer.buffered_bytes >= memory or not producer.blocked
            more = 1 if producer.transactions is None else 2  # the last one of a transaction, too
            assert sum(batch.size for batch in new[more:]) <= memory, "bounded"
        settled = counts.acked_total + counts.failed_total
        assert opened == settled + unsettled + self._dropped
        assert dict(+Counter(counts.sent_by_partition)) == self._sent, "each counts once"
        assert dict(+Counter(counts.retried_by_partition)) == self._retried
        assert sum(counts.retry_errors.values()) == sum(self._retried.values())
        for broker in BROKERS:
            assert counts.by_broker[broker].requests == self._requests[broker]
        if unsettled:
            assert self.delivery.has_work
        elif not is_open and self.options.acks != "0" and not self.options.transaction_duration_ms:
            is_congested = any(each.unwritten for each in self.delivery.connections)
            assert self.delivery.has_work is is_congested

    def check_progress(self, now: float) -> None:
        """What could be sent has been sent, after all actions until now."""
        for connection in self.delivery.connections:
            assert not (connection.has_room and connection.has_waiting)
        longest_s = 1.2 * self.options.retry_backoff_max_ms / 1000.0
        for producer in self.delivery.producers:
            waits = producer.transactions is not None
            for queue in producer.queues.values():
                for_room = queue.connection.queues.get(queue.partition) is queue
                is_queued = queue.under_way is not None or for_room
                assert waits or is_queued or now < queue.scheduled_s <= now + longest_s


@seed(3)  # otherwise each change of the text of this class leads to other examples
class Mishaps(RuleBasedStateMachine):
    """Two brokers with one log that fail in any way, and then recover."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.now = 0.0
        self._is_well = False

    @initialize(
        kind=st.sampled_from(KINDS),
        options=st.fixed_dictionaries({k: st.sampled_from(v) for k, v in CHOICES.items()}),
        has_refusals=st.booleans(),
        coordinator=st.sampled_from((1, JOINED, 2)),
    )
    def begin(
        self, kind: dict[str, Any], options: dict[str, Any], has_refusals: bool, coordinator: int
    ) -> None:
        """A load of 30 s."""
        self.driven = WatchedDelivery(**(options | kind))
        self._codes: list[int] = [*TRANSIENT, *(REFUSALS if has_refusals else ())]
        if "enable_idempotence" not in kind and has_refusals:
            self._codes.remove(UNKNOWN_PRODUCER)
        self._keeps_all = not has_refusals and "enable_idempotence" in kind
        self._keeps_all &= options["retries"] == 1_000 and options["delivery_timeout_ms"] > 30_000
        self._leaders = list(self.driven.delivery.leaders)
        self._coordinators = dict.fromkeys(self.driven.delivery.producers, coordinator)

    def _some(self, which: int, kind: Callable[[Connection], object]) -> Connection | None:
        """One of the connections of this kind."""
        found = [each for each in self.driven.delivery.connections if kind(each)]
        return found[which % len(found)] if found else None

    # --- rules --------------------------------------------------------------

    @rule(
        seconds=st.sampled_from((0.02, 0.1, 0.4, 1.5)),
        event=st.sampled_from(EVENTS),
        which=NUMBERS,
        chance=NUMBERS,
    )
    def something_happens(self, seconds: float, event: str, which: int, chance: int) -> None:
        """Time passes, and then something happens to one of the connections."""
        if self.driven.delivery.is_open:
            self._pass(seconds)
        getattr(self, f"_{event}")(which, chance)

    def _pass(self, seconds: float) -> None:
        driven, self.now = self.driven, self.now + seconds
        driven.until(min(self.now, END_S))
        driven.check_progress(min(self.now, END_S))
        driven.delivery.expire(self.now)
        for connection in driven.delivery.overdue_connections(self.now):
            driven.lose(connection, self.now, "RequestTimedOutError")
        if self.now >= END_S:
            driven.close()

    def _answer_one(self, which: int, chance: int) -> None:
        connection = self._some(which, lambda each: each.in_flight and not each.unwritten)
        if connection is not None:
            self._answer(connection, chance)

    def _answer_all(self, _which: int, chance: int) -> None:
        for connection in self.driven.delivery.connections:
            if connection.in_flight and not connection.unwritten:
                self._answer(connection, chance)

    def _close_connection(self, which: int, chance: int) -> None:
        connection = self._some(which, lambda each: each.is_open)
        if connection is not None:
            for batches in self.driven.in_flight(connection)[: chance % 4]:
                self._take(connection, batches, 0)  # and the answer is lost on its way
            self.driven.lose(connection, self.now)

    def _open_connections(self, _which: int, _chance: int) -> None:
        for connection in tuple(self.driven.reopening):
            self.driven.reopen(connection, self.now)

    def _end_session(self, which: int, _chance: int) -> None:
        connection = self._some(which, lambda each: each.is_open and not each.has_successor)
        if connection is not None:
            self.driven.reopen(connection, self.now)

    def _fill_or_empty_socket(self, which: int, _chance: int) -> None:
        connection = self._some(which, lambda each: each.unwritten or each.in_flight)
        if connection is not None and connection.unwritten:
            self.driven.flush(connection)
        elif connection is not None:
            self.driven.congest(connection)

    def _move_leader(self, which: int, chance: int) -> None:
        self._leaders[which % len(self._leaders)] = BROKERS[chance % 2]

    def _move_coordinator(self, which: int, chance: int) -> None:
        producers = self.driven.delivery.producers
        broker = (*BROKERS, JOINED)[chance % 3]
        self._coordinators[producers[which % len(producers)]] = broker

    @invariant()
    def each_record_is_in_one_place(self) -> None:
        self.driven.check(self.now)

    # --- brokers ------------------------------------------------------------

    def _answer(self, connection: Connection, chance: int) -> None:
        request = connection.in_flight[0][1]
        is_wrong = not self._is_well and chance % 3 == 0
        if isinstance(request, list):
            code = self._codes[chance // 3 % len(self._codes)] if is_wrong else 0
            self.driven.respond(connection, self._take(connection, request, code), self.now)
        elif isinstance(request, FindLeaders):
            leaders = dict(enumerate(self._leaders))
            self.driven.answer_metadata(connection, self.now, leaders)
        else:
            code = OF_A_COORDINATOR[chance // 3 % 2] if is_wrong else 0
            self._coordinate(connection, request, code)

    def _coordinate(self, connection: Connection, request: CoordinatorRequest, code: int) -> None:
        driven, producer = self.driven, connection.producer
        answer: Any = (-1, -1)
        if isinstance(request, FindCoordinator):
            answer = self._coordinators[producer], ("host", 9092)
        elif self._coordinators[producer] != connection.broker:
            code = NOT_COORDINATOR
        elif isinstance(request, InitProducerId):
            assert producer.id_state is not None
            answer = producer.id_state.producer_id, producer.id_state.epoch + 1
        if not code and isinstance(request, AddPartitions):
            driven.added[producer].update(request.partitions)
        if not code and isinstance(request, EndTransaction | InitProducerId):
            driven.end_transaction(producer)
        driven.now = self.now
        driven.delivery.handle_coordinator_response(connection, code, answer, self.now)

    def _take(self, connection: Connection, batches: Sequence[Batch], code: int) -> dict[int, int]:
        return {each.partition: self._append(connection, each, code) for each in batches}

    def _append(self, connection: Connection, batch: Batch, code: int) -> int:
        if self._leaders[batch.partition] != connection.broker:
            return NOT_LEADER
        if code and (code != TIMED_OUT or batch.first % 2):
            return code
        epoch, sequence = batch.stamp or (-1, -1)
        state = connection.producer.id_state
        kept = SimpleNamespace(
            producer_id=-1 if state is None else state.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            records_count=batch.records,
            first_timestamp=batch.first,
        )
        return self.log.append(batch.partition, kept) or code

    # --- the end ------------------------------------------------------------

    def teardown(self) -> None:
        """The brokers recover, and all that was sent has an end."""
        if not hasattr(self, "driven"):
            return
        driven, delivery, self._is_well = self.driven, self.driven.delivery, True
        self._coordinators = dict.fromkeys(delivery.producers, 2)
        while delivery.is_open:
            self._pass(0.4)
            self._serve()
        while delivery.has_work:
            self.now += 0.05
            assert self.now < 200.0, "the delivery ends"
            driven.until(self.now)
            self._serve()
        self._check_log()

    def _serve(self) -> None:
        """All is well with each connection."""
        driven = self.driven
        for connection in driven.delivery.connections:
            if connection in driven.reopening:
                driven.reopen(connection, self.now)
            elif connection.unwritten:
                driven.flush(connection)
            elif connection.in_flight:
                self._answer(connection, 1)
        driven.check(self.now)

    def _check_log(self) -> None:
        counts, log, options = self.driven.counts, self.log, self.driven.options
        for partition in range(len(self._leaders) if options.acks != "0" else 0):
            least = counts.acked_by_partition.get(partition, 0)
            most = least + counts.failed_by_partition.get(partition, 0)
            most += counts.duplicates_by_partition.get(partition, 0)
            assert least <= log.records_of(partition) <= most
        assert sum(counts.by_producer.acked.values()) == counts.acked_total
        assert counts.acked_bytes == RECORD_BYTES * counts.acked_records
        self.driven.account.latency.fold()
        assert self.driven.account.latency.histogram.count == counts.acked_records
        if self._keeps_all and not options.transaction_duration_ms:
            assert counts.failed_total == counts.duplicates_at_most == 0
            assert counts.acked_total == log.records, "none lost, none twice"
            for partition in range(len(self._leaders) if len(self._coordinators) == 1 else 0):
                firsts = log.times_of(partition)
                assert firsts == sorted(set(firsts)), "in order"
        SEEN.update(
            failed=counts.failed_total,
            duplicates=counts.duplicates_at_most,
            retried=counts.retried_records,
            committed=counts.transactions_committed,
            aborted=counts.transactions_aborted,
            repeats=log.repeats,
            replaced=self.driven.replaced,
        )


@pytest.mark.computes
@few_or_many(100, 5_000)
def test_every_record_is_acknowledged_once_or_named_as_lost(examples: int) -> None:
    SEEN.clear()
    run_state_machine_as_test(
        Mishaps, settings=settings(max_examples=examples, stateful_step_count=60)
    )
    assert len(SEEN) == 7 and min(SEEN.values()) > 10, SEEN
