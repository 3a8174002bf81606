"""Delivery of the batches of one task's producers: what to send now, and what becomes of it.

Decides and does nothing itself: it is told what happened and what time it is, and asked what
to do next. The rules are those of Kafka's own producer: up to `max_in_flight` requests of a
connection, batches that wait while it has no room, retries after a back-off until `retries` or
`delivery_timeout_ms` are used up, leaders that are asked for again when they may have moved,
sequences that an idempotent producer keeps, and transactions, whose rules are in
`transactions.py`. The schedule is open loop: a slow broker never slows it down, it only makes
batches wait. In a closed loop records are there whenever `buffer_memory` has room for them, and
nothing else sets the pace.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Iterable, Mapping, Set

from kafka.errors import for_code

from jobs.engine.producing.account import Account
from jobs.engine.producing.batch import EXPIRED, UNACKNOWLEDGED, Batch, Trouble
from jobs.engine.producing.metadata import Metadata
from jobs.engine.producing.producer import Connection, MutedPartition, Producer
from jobs.engine.producing.reach import Reach, awaited_brokers
from jobs.engine.producing.retries import (
    DUPLICATE_SEQUENCE,
    LOST,
    OUT_OF_ORDER_SEQUENCE,
    SEQUENCE_ERRORS,
    Refusal,
    backoff_s,
)
from jobs.engine.producing.transactions import (
    ABORTED,
    COORDINATOR_NOT_AVAILABLE,
    LOG_RECORDS_OF_AN_END,
    AddPartitions,
    EndTransaction,
    FindCoordinator,
    Question,
    RenewEpoch,
    Transactions,
)
from jobs.engine.task.window import Window
from metrics.traffic.producer import ProducerPattern

_BATCHES_PER_REQUEST = 400  # two buffers each, below the 1,024 that sendmsg takes
_NEVER = float("inf")


class Produce:
    """Send these batches as one request."""

    __slots__ = ("batches", "connection")

    def __init__(self, connection: Connection, batches: list[Batch]) -> None:
        self.connection = connection
        self.batches = batches


class AskLeaders:
    """Ask for the leaders of the topics' partitions over this connection."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection


class AskCoordinator:
    """Ask the coordinator of the producer's transactions over this connection."""

    __slots__ = ("connection", "question")

    def __init__(self, connection: Connection, question: Question) -> None:
        self.connection = connection
        self.question = question


class Reopen:
    """Open this connection again; it may take as long as it takes."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection


Action = Produce | AskLeaders | AskCoordinator | Reopen


class Delivery:
    """All producers of one task.

    Whoever carries out the actions does so one by one and in their order, and tells the outcome
    before it asks for the next one. Times are of the engine's clock [s].

    Args:
        account: where every record ends up; its window is the measured one.

    Attributes:
        is_open: False once nothing may be sent for the first time.
        log_bytes: of the batches that were acknowledged since the window before ended [B].
        producers: with what they wait for.
    """

    def __init__(self, pattern: ProducerPattern, account: Account, metadata: Metadata) -> None:
        self._options = pattern.options
        self._is_answered = pattern.options.acks != "0"
        self._timeout_s = pattern.options.delivery_timeout_ms / 1000.0
        self._account = account
        self._metadata = metadata
        self._leaders = metadata.leaders
        self._reach = Reach(account.counts.by_broker, account.window)
        self._rng = random.Random(pattern.payload.seed)
        self._due: list[tuple[float, int, Producer]] = []
        self._muted: list[tuple[float, int, MutedPartition]] = []
        self._order = itertools.count()  # settles ties, as producers have no order
        self._ends: list[tuple[float, int, Producer]] = []
        self._questions: deque[AskLeaders | AskCoordinator | Reopen] = deque()
        self._filling: deque[Connection] = deque()
        self._settling: set[Connection] = set()
        self._transacting: set[Producer] = set()
        self._unanswered = 0
        self._congested = 0
        self._to_send_again = 0
        self._is_over = False
        self.is_open = True
        self.log_bytes = 0
        self.producers: list[Producer] = []

    def add(self, producer: Producer, brokers: Iterable[int]) -> None:
        """Take in a producer with an open connection to each of these brokers."""
        for broker in brokers:
            connection = Connection(broker, producer, self._options.max_in_flight)
            producer.connections[broker] = connection
        self._reach.add(producer.connections)
        self.producers.append(producer)
        self._schedule(producer, producer.ready_s)

    @property
    def connections(self) -> list[Connection]:
        """Of all producers."""
        return [each for producer in self.producers for each in producer.connections.values()]

    @property
    def has_work(self) -> bool:
        """True while something may be sent or is still to be answered."""
        waiting = self._unanswered + self._congested + self._to_send_again
        waiting += len(self._settling) + len(self._transacting)
        return self.is_open or waiting > 0

    # --- what to do ---------------------------------------------------------

    @property
    def next_s(self) -> float:
        """When there is something to do next, unless something happens before."""
        if self._questions or self._filling:
            return 0.0
        heads = (each[0][0] for each in (self._due, self._muted, self._ends) if each)
        return min(heads, default=_NEVER)

    def next(self, now: float) -> Action | None:
        """What to do now, or None; `next_s` says when to ask again."""
        self._look_at_ends(now)
        while True:
            while self._questions:
                question = self._asked(self._questions.popleft(), now)
                if question is not None:
                    return question
            request = self._next_request(now)
            if request is not None or not self._questions:
                return request

    def _next_request(self, now: float) -> Produce | None:
        filling, muted, due = self._filling, self._muted, self._due
        while filling:
            request = self._fill(filling[0], now)
            if request is not None:
                return request
            filling.popleft()
        while muted and muted[0][0] <= now:
            at_s, _, each = heapq.heappop(muted)
            if each.scheduled_s == at_s:
                request = self._go_on(each, now)
                if request is not None:
                    return request
        while due and due[0][0] <= now:
            at_s, _, producer = due[0]
            if at_s != producer.scheduled_s:
                heapq.heappop(due)
                continue
            request = self._advance(producer, now)
            if producer.scheduled_s < self._account.window.load_end_s:
                heapq.heapreplace(due, (producer.scheduled_s, next(self._order), producer))
            else:
                heapq.heappop(due)
            if request is not None:
                return request
        return None

    def _asked(
        self, question: AskLeaders | AskCoordinator | Reopen, now: float
    ) -> AskLeaders | AskCoordinator | Reopen | None:
        connection = question.connection
        if isinstance(question, Reopen):
            return question
        if isinstance(question, AskCoordinator):
            if not connection.is_open:
                return None  # which was told when it was lost
            connection.in_flight.append((now, []))
            return question
        if not connection.is_open:
            self._metadata.forget_question()
            return None
        connection.in_flight.append((now, []))
        return question

    # --- what happened ------------------------------------------------------

    def answered(
        self, connection: Connection, errors: Mapping[int, int], throttle_ms: int, now: float
    ) -> None:
        """The oldest request was answered.

        Args:
            errors: partition → Kafka's error code, 0 for none.
            throttle_ms: how long a quota held the client back [ms].
        """
        _sent_s, batches = connection.in_flight.popleft()
        self._unanswered -= 1
        self._account.counts.throttle_ms += throttle_ms
        self._reach.heard(connection.broker, now)
        producer = connection.producer
        for batch in batches:
            code = errors.get(batch.partition, -1)
            if code == 0 or self._refused(producer, batch, code, now):
                self._acknowledge(producer, batch, now)
        if connection.has_waiting:
            self._filling.append(connection)

    def written(self, connection: Connection, now: float) -> None:
        """The newest request was handed to the socket, and with acks=0 that is all there is."""
        _sent_s, batches = connection.in_flight.pop()  # a question may still be there before it
        self._unanswered -= 1
        self._reach.heard(connection.broker, now)
        for batch in batches:
            self._acknowledge(connection.producer, batch, now)

    def learned(self, connection: Connection, leaders: Mapping[int, int], now: float) -> None:
        """The oldest request, for leaders, was answered: partition → leader."""
        connection.in_flight.popleft()
        self._settling.discard(connection)
        moved = self._metadata.learned(leaders, now)
        if moved:
            self._carry_along(moved, now)
            self._wake(now)
        if connection.has_waiting:
            self._filling.append(connection)

    def coordinated(
        self, connection: Connection, code: int, answer: tuple[int, int], now: float
    ) -> None:
        """The oldest request, of the coordinator, was answered.

        Args:
            code: Kafka's error code, 0 for none.
            answer: the coordinator's broker id where it was asked for, producer id and epoch
                where these were.

        Raises:
            TransactionError: it will not do what it was asked for.
        """
        connection.in_flight.popleft()
        producer = connection.producer
        transactions = producer.transactions
        assert transactions is not None and transactions.asking is not None, "it was asked"
        question = transactions.asking
        if isinstance(question, FindCoordinator) and answer[0] not in producer.connections:
            code = code or COORDINATOR_NOT_AVAILABLE
        if code:
            transactions.refused(code, self._backoff_s(transactions), now)
        elif isinstance(question, AddPartitions):
            self._account.counts.transaction_log_records += 1
            for partition in transactions.added():
                if (muted := producer.muted.get(partition)) is not None:
                    self._look_again(muted, now)
        elif isinstance(question, EndTransaction):
            self._note_end(producer, transactions, question.is_commit, now)
            transactions.ended()
        elif isinstance(question, RenewEpoch):
            assert producer.id_state is not None, "a producer with transactions is idempotent"
            producer.id_state.renew_all(*answer)
            transactions.renewed()
        else:
            transactions.found(answer[0])
        self._ask_on(producer, now)
        if connection.has_waiting:
            self._filling.append(connection)

    def congested(self, connection: Connection) -> None:
        """The socket did not take all of the newest request."""
        if not connection.is_congested:
            connection.is_congested = True
            self._congested += 1

    def flushed(self, connection: Connection) -> None:
        """The socket has taken the rest."""
        connection.is_congested = False
        self._congested -= 1
        if connection.has_waiting:
            self._filling.append(connection)

    def lost(self, connection: Connection, error: str, now: float) -> None:
        """The connection is gone, and with it the answers to all that was sent."""
        connection.is_open = False
        producer, requests = connection.producer, list(connection.in_flight)
        connection.in_flight.clear()
        self._unanswered -= sum(1 for _, batches in requests if batches)
        self._congested -= 1 if connection.is_congested else 0
        connection.is_congested = False
        self._settling.discard(connection)
        if any(not batches for _, batches in requests):
            self._metadata.forget_question()
        self._lose_coordinator(connection, now)
        for _, batches in requests:
            for batch in batches:
                self._take_back(producer, batch, error, LOST, now)
        if self._is_over:
            return
        for partition in list(connection.pending.partitions):
            self._mute(producer, partition, now)
        if connection.open_batch_waits:
            self._mute(producer, producer.partition, now)
        for muted in connection.waiting:
            self._look_again(muted, now)
        connection.waiting = []
        self._refresh(producer, now)

    def reopened(self, connection: Connection, now: float) -> None:
        """The lost connection is open again."""
        connection.is_open = True
        connection.is_wanted = False
        self._wake(now)

    def overdue(self, now: float) -> list[Connection]:
        """Connections whose oldest request has no answer within `request_timeout_ms`."""
        since_s = now - self._options.request_timeout_ms / 1000.0
        return [c for c in self.connections if c.in_flight and c.in_flight[0][0] < since_s]

    def expire(self, now: float) -> None:
        """Give up full batches that waited for their first turn for too long."""
        for connection in self.connections:
            producer = connection.producer
            for batch in connection.pending.take_overdue(now - self._timeout_s):
                producer.unbuffer(batch)
                self._fail(producer, batch, EXPIRED, now)
            self._unblock(producer)
        for producer in self.producers if self._transacting else ():
            for muted in list(producer.muted.values()):
                if muted.pending and muted.pending[0].due_s < now - self._timeout_s:
                    self._look_again(muted, now)  # it waits for the coordinator, and so do we

    def note_silence(self, now: float) -> None:
        """See for how long each broker has not answered; to be called several times a second."""
        self._reach.look(awaited_brokers(self.producers, self._leaders), now)

    def turn(self, following: Window, now: float) -> Account:
        """A window is over and the load goes on; returns the account of the one that is over."""
        self._conclude(now)
        self._account.counts.log_bytes = self.log_bytes
        over = self._account.turn(following)
        self.log_bytes = 0
        self._reach.begin(self._account.counts.by_broker, following)
        return over

    def _conclude(self, now: float) -> None:
        """Note what is missing at the end of a window."""
        self.note_silence(now)
        self._reach.close(self.producers, self._leaders)
        unsent = sum(self._unsent_own(producer) for producer in self.producers)
        self._account.counts.unsent_own_records = unsent

    def close(self, now: float) -> None:
        """The last window is over: nothing more is sent for the first time."""
        self._conclude(now)
        self.is_open = False
        self._due.clear()
        for producer in self.producers:
            dropped = 0
            for connection in producer.connections.values():
                dropped += len(connection.pending)
                connection.pending.clear()
                connection.open_batch_waits = False
            for muted in list(producer.muted.values()):
                dropped += len(muted.pending)
                muted.pending.clear()
                muted.open_batch_waits = False
                self._look_again(muted, max(now, muted.not_before_s))
            self._end_last(producer, dropped, now)
        if not self._is_answered:
            # A broker drops what it has not read yet when a connection is closed; its answer
            # to anything says that it has read all that came before.
            self._settling.update(each for each in self.connections if each.is_open)
            self._questions.extend(map(AskLeaders, self._settling))

    def end(self, now: float) -> None:
        """The drain is over: what is not acknowledged has failed."""
        self._is_over = True
        for producer in self.producers:
            for muted in producer.muted.values():
                for batch in muted.again:
                    self._fail(producer, batch, batch.last_error, now)
                muted.again.clear()
        self._to_send_again = 0
        for connection in self.connections:
            if connection.in_flight:
                self.lost(connection, UNACKNOWLEDGED, now)
        for producer in self._transacting:
            self._leave_open(producer)
        self._transacting.clear()

    def _unsent_own(self, producer: Producer) -> int:
        """Records that were due and not sent although nothing but the generator held them up."""
        connection = producer.connections[self._leaders[producer.partition]]
        if producer.blocked or producer.partition in producer.muted:
            return 0
        if producer.transactions is not None and producer.transactions.is_ending:
            return 0
        if connection.pending or not connection.has_room:
            return 0
        end_s = self._account.window.end_s
        if producer.ready_s > end_s:
            return 0
        return producer.records_due_between(producer.due_s(producer.opened), end_s)

    # --- sending for the first time -----------------------------------------

    def _schedule(self, producer: Producer, at_s: float) -> None:
        producer.scheduled_s = at_s
        if self.is_open and at_s < self._account.window.load_end_s:
            heapq.heappush(self._due, (at_s, next(self._order), producer))

    def _advance(self, producer: Producer, now: float) -> Produce | None:
        """Send or queue what of this producer is ready, and say when to look at it again."""
        end_s = self._account.window.load_end_s
        transactions = producer.transactions
        while (ready_s := producer.ready_s) <= now and ready_s < end_s:
            connection = producer.connections[self._leaders[producer.partition]]
            is_held = transactions is not None and transactions.is_ending
            is_muted = is_held or not self._is_admitted(producer)
            if connection.has_room and not connection.pending and not is_muted:
                records = producer.records_by(ready_s)
                batch = producer.seal(records, now)
                connection.open_batch_waits = False
                if not producer.closed_loop:
                    self._account.late(now - ready_s, records, now)
                if transactions is not None:
                    transactions.unsettled += 1
                producer.scheduled_s = producer.ready_s
                return self._send(connection, [batch], now)
            waiting: Connection | MutedPartition | Transactions = connection
            if transactions is not None and is_held:
                waiting = transactions
            elif is_muted or not connection.is_open:
                waiting = self._mute(producer, producer.partition, now)
            if producer.full_s > now:
                waiting.open_batch_waits = True
                producer.scheduled_s = producer.full_s
                return None
            batch = producer.seal(producer.full_records, now)
            waiting.pending.append(batch)
            waiting.open_batch_waits = False
            if transactions is not None and not is_held:
                transactions.unsettled += 1
            producer.buffer(batch)
            if producer.buffered_bytes >= self._options.buffer_memory:
                producer.blocked = True
                producer.scheduled_s = _NEVER
                return None
        producer.scheduled_s = producer.ready_s
        return None

    def _fill(self, connection: Connection, now: float) -> Produce | None:
        """A request of what waits for this connection, if there is something and room for it."""
        while connection.waiting and connection.has_room:
            request = self._go_on(connection.waiting.pop(0), now)
            if request is not None:
                return request
        if not (self.is_open and connection.has_room):
            return None
        producer, size_bytes = connection.producer, self._options.max_request_size
        batches = connection.pending.take(_BATCHES_PER_REQUEST, size_bytes)
        for batch in batches:
            producer.unbuffer(batch)
        if (
            connection.open_batch_waits
            and not connection.pending
            and len(batches) < _BATCHES_PER_REQUEST
            and producer.partition not in producer.muted
            and all(batch.partition != producer.partition for batch in batches)
        ):
            batches.append(producer.seal(producer.records_by(now), now))
            connection.open_batch_waits = False
            if producer.transactions is not None:
                producer.transactions.unsettled += 1
            self._schedule(producer, producer.ready_s)
        self._unblock(producer)
        return self._send(connection, batches, now) if batches else None

    def _unblock(self, producer: Producer) -> None:
        """Let the producer go on if it was blocked and its memory has room again."""
        if producer.blocked and producer.buffered_bytes < self._options.buffer_memory:
            producer.blocked = False
            self._schedule(producer, producer.ready_s)

    def _send(self, connection: Connection, batches: list[Batch], now: float) -> Produce:
        producer = connection.producer
        for batch in batches:
            if producer.id_state is not None:
                producer.id_state.stamp(batch)
            if batch.trouble is None:
                self._account.sent(producer.index, batch.partition, batch.records, now)
        connection.in_flight.append((now, batches))
        self._unanswered += 1
        self._reach.sent(connection.broker, now)
        return Produce(connection, batches)

    # --- muted partitions: sending again ------------------------------------

    def _mute(self, producer: Producer, partition: int, now: float) -> MutedPartition:
        """Nothing can be sent to this partition for now."""
        muted = producer.muted.get(partition)
        if muted is None:
            muted = producer.muted[partition] = MutedPartition(producer, partition)
            self._look_again(muted, now)
        return muted

    def _look_again(self, muted: MutedPartition, at_s: float) -> None:
        muted.scheduled_s = at_s
        heapq.heappush(self._muted, (at_s, next(self._order), muted))

    def _wake(self, now: float) -> None:
        """There may be a way now to leaders to which there was none."""
        for muted in {id(muted): muted for _, _, muted in self._muted}.values():
            if muted.turns:
                muted.turns = 0
                self._look_again(muted, max(now, muted.not_before_s))

    def _carry_along(self, moved: Set[int], now: float) -> None:
        """What waits for the old leaders of these partitions goes to the new ones, in order."""
        for producer in self.producers:
            for connection in producer.connections.values():
                waiting = set(connection.pending.partitions)
                if connection.open_batch_waits:
                    waiting.add(producer.partition)
                for partition in waiting & moved:
                    self._mute(producer, partition, now)

    def _go_on(self, muted: MutedPartition, now: float) -> Produce | None:
        """The next batch to send again, if its time has come and there is a way."""
        producer = muted.producer
        if producer.muted.get(muted.partition) is not muted:
            return None  # it waited for room at an old leader, and went on at the new one
        for batch in muted.take_overdue(now - self._timeout_s):
            producer.unbuffer(batch)
            self._to_send_again -= 1 if batch.trouble else 0
            self._fail(producer, batch, batch.last_error, now)
        self._unblock(producer)
        if muted.under_way is not None:
            return None
        if not self._is_in_transaction(producer, muted.partition, now):
            return None
        connection = producer.connections[self._leaders[muted.partition]]
        if not connection.is_open:
            self._seek_way(connection, now)
            muted.turns += 1
            self._look_again(muted, now + backoff_s(self._options, muted.turns, self._rng))
        elif not muted.again:
            self._unmute(muted, connection)
        elif now < muted.not_before_s:
            self._look_again(muted, muted.not_before_s)
        elif not connection.has_room:
            connection.waiting.append(muted)
        else:
            return self._send_again(muted, connection, now)
        return None

    def _send_again(self, muted: MutedPartition, connection: Connection, now: float) -> Produce:
        producer, batch = muted.producer, muted.again.pop(0)
        self._to_send_again -= 1
        producer.unbuffer(batch)
        self._account.retried(producer.index, batch.partition, batch.last_error, batch.records)
        muted.under_way = batch
        self._unblock(producer)
        return self._send(connection, [batch], now)

    def _unmute(self, muted: MutedPartition, connection: Connection) -> None:
        """Nothing has to be sent again: what came later takes the usual way."""
        producer = muted.producer
        del producer.muted[muted.partition]
        connection.pending.extend(muted.pending)
        if muted.open_batch_waits and producer.partition == muted.partition:
            connection.open_batch_waits = True
        self._filling.append(connection)

    def _seek_way(self, connection: Connection, now: float) -> None:
        if not connection.is_wanted:
            connection.is_wanted = True
            self._questions.append(Reopen(connection))
        self._refresh(connection.producer, now)

    def _refresh(self, producer: Producer, now: float) -> None:
        """Ask for the leaders over one of the producer's connections, unless just asked."""
        ways = [c for c in producer.connections.values() if c.is_open and not c.is_congested]
        if ways and self._metadata.may_ask(now):
            self._metadata.asked()
            self._questions.append(AskLeaders(min(ways, key=lambda each: len(each.in_flight))))

    # --- batches ------------------------------------------------------------

    def _acknowledge(self, producer: Producer, batch: Batch, now: float) -> None:
        account = self._account
        account.acked(
            producer.index,
            batch.partition,
            batch.due_s,
            batch.records,
            batch.payload_bytes,
            now,
        )
        self.log_bytes += batch.size
        if producer.id_state is not None:
            producer.id_state.acknowledge(batch)
        if producer.transactions is not None:
            producer.transactions.acked_records += batch.records
            self._settle(producer, producer.transactions, now)
        if batch.trouble is not None and batch.trouble.copies:
            copied = batch.trouble.copies * batch.records
            account.duplicated(producer.index, batch.partition, copied)
        if producer.muted:
            self._no_longer_under_way(producer, batch, now)

    def _no_longer_under_way(self, producer: Producer, batch: Batch, now: float) -> None:
        muted = producer.muted.get(batch.partition)
        if muted is not None and muted.under_way is batch:
            muted.under_way = None
            muted.not_before_s = now
            self._look_again(muted, now)

    def _refused(self, producer: Producer, batch: Batch, code: int, now: float) -> bool:
        """A broker answered with this error code; True when it means that it has the batch."""
        state = producer.id_state
        if state is not None and code == DUPLICATE_SEQUENCE:
            return True
        if state is not None and code in SEQUENCE_ERRORS:
            # Out of order is no surprise behind a batch that failed; of the next one it is.
            is_broken = code != OUT_OF_ORDER_SEQUENCE or state.is_next(batch)
            if is_broken and state.is_current(batch):
                if producer.transactions is not None:
                    self._fail(producer, batch, for_code(code).__name__, now)
                    return False
                self._start_again(producer, batch.partition)
        refusal = Refusal.of(code, self._options, state is not None)
        self._take_back(producer, batch, refusal.error, refusal, now)
        if refusal.leader_moved:
            self._refresh(producer, now)
        return False

    def _take_back(
        self, producer: Producer, batch: Batch, error: str, why: Refusal, now: float
    ) -> None:
        trouble = batch.trouble = batch.trouble or Trouble()
        trouble.failures += 1
        trouble.error = error
        if why.is_unsure and producer.id_state is None:
            trouble.copies += 1
        trouble.is_unsure |= why.is_unsure
        is_overdue = now >= batch.due_s + self._timeout_s
        is_given_up = self._is_over or is_overdue or trouble.failures > self._options.retries
        is_given_up |= producer.transactions is not None and producer.transactions.is_failed
        if not why.is_retriable or is_given_up:
            self._fail(producer, batch, error, now)
            return
        muted = self._mute(producer, batch.partition, now)
        muted.put_back(batch)
        if producer.id_state is not None:
            producer.id_state.renew(batch)
        self._to_send_again += 1
        producer.buffer(batch)
        muted.not_before_s = now + backoff_s(self._options, trouble.failures, self._rng)
        self._look_again(muted, muted.not_before_s)

    def _fail(self, producer: Producer, batch: Batch, error: str, now: float) -> None:
        self._account.failed(producer.index, batch.partition, error, batch.records, now)
        self._reach.failed(self._leaders[batch.partition], batch.records, now)
        trouble = batch.trouble
        if trouble is not None:
            # An idempotent producer's last copy is counted once its epoch is over.
            last = 1 if trouble.is_unsure and producer.id_state is not None else 0
            copied = (trouble.copies + last - 1) * batch.records  # one of them is the failed
            if copied > 0:
                self._account.duplicated(producer.index, batch.partition, copied)
        muted = producer.muted.get(batch.partition)
        if muted is not None and muted.under_way is batch:
            muted.under_way = None
            self._look_again(muted, now)
        if producer.transactions is not None:
            self._abort(producer, producer.transactions, now)
            return
        state = producer.id_state
        if state is not None and not self._is_over and state.is_current(batch):
            is_unsure = trouble is not None and trouble.is_unsure
            if is_unsure or not state.withdraw(batch):
                self._start_again(producer, batch.partition)

    def _start_again(self, producer: Producer, partition: int) -> None:
        """The sequence of this partition is broken: go on with a new one."""
        state, muted = producer.id_state, producer.muted.get(partition)
        if state is None:
            return
        state.start_again(partition)
        for batch in muted.again if muted is not None else ():
            state.renew(batch)

    # --- transactions -------------------------------------------------------

    def _is_admitted(self, producer: Producer) -> bool:
        """True when the open batch's partition may be sent to."""
        if producer.partition in producer.muted:
            return False
        transactions = producer.transactions
        return transactions is None or transactions.admits(producer.partition)

    def _is_in_transaction(self, producer: Producer, partition: int, now: float) -> bool:
        """True when nothing keeps the partition's batches; else it is seen to."""
        transactions = producer.transactions
        if transactions is None or transactions.admits(partition):
            return True
        muted = producer.muted[partition]
        if not muted.pending and not muted.open_batch_waits:
            del producer.muted[partition]
            return False
        if not transactions.is_failed:
            transactions.want(partition, now)
            self._transacting.add(producer)
            self._ask_on(producer, now)
        return False

    def _backoff_s(self, transactions: Transactions) -> float:
        return backoff_s(self._options, transactions.failures + 1, self._rng)

    def _ask_on(self, producer: Producer, now: float) -> None:
        """Ask the coordinator what is next, or say when to look again."""
        transactions = producer.transactions
        if transactions is None or transactions.asking is not None or self._is_over:
            return
        ends_s = transactions.ends_s
        if ends_s is not None and now >= ends_s and not transactions.is_ending:
            self._flush(producer, transactions, now)
        if transactions.is_over:
            self._begin(producer, transactions, now)
            return
        question = transactions.question()
        if question is None:
            if ends_s is not None and not transactions.is_ending:
                self._look_at(producer, transactions, ends_s)
        elif now < transactions.not_before_s:
            self._look_at(producer, transactions, transactions.not_before_s)
        else:
            self._ask(producer, transactions, question, now)

    def _look_at_ends(self, now: float) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now:
            at_s, _, producer = heapq.heappop(ends)
            if producer.transactions is not None and producer.transactions.scheduled_s == at_s:
                self._ask_on(producer, now)

    def _look_at(self, producer: Producer, transactions: Transactions, at_s: float) -> None:
        transactions.scheduled_s = at_s
        heapq.heappush(self._ends, (at_s, next(self._order), producer))

    def _ask(
        self, producer: Producer, transactions: Transactions, question: Question, now: float
    ) -> None:
        if transactions.coordinator is not None:
            connection = producer.connections[transactions.coordinator]
            if not connection.is_open:
                self._seek_way(connection, now)
                transactions.lost(self._backoff_s(transactions), now)
                self._look_at(producer, transactions, transactions.not_before_s)
                return
            transactions.asking = question
            self._questions.append(AskCoordinator(connection, question))
            return
        ways = [each for each in producer.connections.values() if each.is_open]
        if not ways:
            transactions.lost(self._backoff_s(transactions), now)
            self._look_at(producer, transactions, transactions.not_before_s)
            for connection in producer.connections.values():
                self._seek_way(connection, now)
            return
        transactions.asking = question
        self._questions.append(AskCoordinator(min(ways, key=_load), question))

    def _lose_coordinator(self, connection: Connection, now: float) -> None:
        """What was asked over a connection that is lost has no answer."""
        producer = connection.producer
        transactions = producer.transactions
        if transactions is None or transactions.asking is None:
            return
        if transactions.coordinator in (None, connection.broker):
            transactions.lost(self._backoff_s(transactions), now)
            self._look_at(producer, transactions, transactions.not_before_s)

    def _flush(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """End the transaction: what is due by now still joins it, full or not."""
        transactions.end(now)
        for connection in producer.connections.values():
            connection.open_batch_waits = False
        for muted in producer.muted.values():
            muted.open_batch_waits = False
        if producer.closed_loop or producer.blocked or producer.due_s(producer.opened) > now:
            transactions.open_batch_waits = producer.ready_s <= now
            return
        batch = producer.seal(producer.records_by(now), now)
        transactions.unsettled += 1
        producer.buffer(batch)
        connection = producer.connections[self._leaders[batch.partition]]
        if batch.partition in producer.muted or not connection.is_open:
            self._mute(producer, batch.partition, now).pending.append(batch)
        elif transactions.admits(batch.partition):
            connection.pending.append(batch)
            self._filling.append(connection)
        else:
            self._mute(producer, batch.partition, now).pending.append(batch)
        self._schedule(producer, producer.ready_s)

    def _settle(self, producer: Producer, transactions: Transactions, now: float) -> None:
        transactions.unsettled -= 1
        if transactions.is_ending and not transactions.unsettled:
            self._ask_on(producer, now)

    def _abort(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """A batch has failed for good: nothing more of its transaction is sent."""
        is_first = not transactions.is_failed
        transactions.is_failed = True
        transactions.end(now)
        if is_first and not self._is_over:
            transactions.wanted.intersection_update(transactions.partitions)
            for batch in self._taken_out(producer, now):
                self._account.failed(producer.index, batch.partition, ABORTED, batch.records, now)
                self._reach.failed(self._leaders[batch.partition], batch.records, now)
                producer.unbuffer(batch)
                transactions.unsettled -= 1
            transactions.open_batch_waits = True
            if not producer.blocked:
                self._schedule(producer, producer.ready_s)
            self._unblock(producer)
        self._settle(producer, transactions, now)

    def _taken_out(self, producer: Producer, now: float) -> list[Batch]:
        """All batches that wait to be sent, for the first time or again."""
        batches: list[Batch] = []
        for connection in producer.connections.values():
            connection.open_batch_waits = False
            for partition in list(connection.pending.partitions):
                batches.extend(connection.pending.take_partition(partition))
        for muted in producer.muted.values():
            muted.open_batch_waits = False
            self._to_send_again -= len(muted.again)
            batches.extend((*muted.again, *muted.pending))
            muted.again.clear()
            muted.pending.clear()
            self._look_again(muted, now)
        return batches

    def _note_end(
        self, producer: Producer, transactions: Transactions, is_commit: bool, now: float
    ) -> None:
        account = self._account
        account.counts.transaction_log_records += LOG_RECORDS_OF_AN_END
        if is_commit:
            account.committed(transactions.partitions, now - transactions.ending_since_s, now)
        else:
            account.aborted(transactions.partitions, transactions.acked_records)

    def _begin(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """A transaction is over: what waited makes up the next one."""
        self._transacting.discard(producer)
        had_open_batch, transactions.open_batch_waits = transactions.open_batch_waits, False
        for batch in transactions.begin():
            if not self.is_open:
                continue
            transactions.unsettled += 1
            self._mute(producer, batch.partition, now).pending.append(batch)
        if had_open_batch and not producer.blocked:
            self._schedule(producer, producer.ready_s)

    def _end_last(self, producer: Producer, dropped: int, now: float) -> None:
        """Nothing more is sent for the first time: commit what was, without what was dropped."""
        transactions = producer.transactions
        if transactions is None:
            return
        transactions.unsettled -= dropped
        transactions.wanted.intersection_update(transactions.partitions)
        if transactions.is_open:
            transactions.end(now)
            self._ask_on(producer, now)

    def _leave_open(self, producer: Producer) -> None:
        """The drain is over, and nobody knows whether the transaction has ended, or will."""
        transactions = producer.transactions
        assert transactions is not None, "only producers with transactions are in one"
        self._account.counts.transactions_aborted += 1 if transactions.partitions else 0
        for partition in transactions.partitions:
            self._account.duplicated(producer.index, partition, 1)


def _load(connection: Connection) -> int:
    return len(connection.in_flight)
