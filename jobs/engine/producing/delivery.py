"""Delivery of the batches of one task's producers: what to send now, and what becomes of it.

The delivery decides and does no I/O: it takes events with their times, and returns the next
action. It follows the rules of Kafka's own producer: up to `max_in_flight` requests of a
connection, batches that wait while it has no room, retries after a back-off until `retries` or
`delivery_timeout_ms` are used up, a metadata request when leaders may have moved, sequences that an
idempotent producer keeps, and transactions, whose rules are in `transactions.py`. The schedule is
open loop: a slow broker makes batches wait and never slows the schedule down. In a closed loop
records are there whenever `buffer_memory` has room for them, and nothing else sets the pace.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka.errors import for_code

from jobs.engine.producing.account import Account
from jobs.engine.producing.producer import Connection, MutedPartition, Producer, WaitingPlace
from jobs.engine.producing.protocol import EXPIRED, UNACKNOWLEDGED, Batch, Trouble
from jobs.engine.producing.retries import (
    DUPLICATE_SEQUENCE,
    LOST,
    OUT_OF_ORDER_SEQUENCE,
    SEQUENCE_ERRORS,
    Metadata,
    Reach,
    Refusal,
    awaited_brokers,
    backoff_s,
)
from jobs.engine.producing.transactions import (
    ABORTED,
    COORDINATOR_NOT_AVAILABLE,
    LOG_RECORDS_OF_AN_END,
    AddPartitions,
    CoordinatorRequest,
    EndTransaction,
    FindCoordinator,
    RenewEpoch,
    Transactions,
)
from jobs.engine.task.window import Window
from metrics.traffic.clients import ProducerPattern

_BATCHES_PER_REQUEST = 400  # two buffers each, below the 1,024 that sendmsg takes
_NEVER = float("inf")
_PRESSURE_S = 0.1
"""Time after a batch had to wait in which each answer is handled at once [s]."""


@dataclass(slots=True)
class Produce:
    """The action to send these batches as one request."""

    connection: Connection
    batches: list[Batch]


@dataclass(slots=True)
class SendControlRequest:
    """The action to send a request to the coordinator of transactions over this connection; or,
    with None, to ask for the leaders of the topics' partitions.
    """

    connection: Connection
    request: CoordinatorRequest | None = None


@dataclass(slots=True)
class Reopen:
    """The action to open this connection again, without a time limit."""

    connection: Connection


@dataclass(slots=True)
class Replace:
    """The action to continue on this connection over its successor; nothing is in flight."""

    connection: Connection


ControlAction = SendControlRequest | Reopen
Action = Produce | Replace | ControlAction


class Delivery:
    """All producers of one task.

    The caller carries out the actions one by one and in their order, and reports the outcome of
    each before it asks for the next one. Times are of the engine's clock [s].

    Args:
        account: counts what becomes of every record; its window is the measured one.

    Attributes:
        is_open: False once nothing may be sent for the first time.
        log_bytes: size of the batches that were acknowledged in this window [B].
        producers: the producers and the batches that wait in them.
        connections: the connections of all producers.
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
        self._tie_breaker = itertools.count()  # settles ties, as producers have no order
        self._transaction_ends: list[tuple[float, int, Producer]] = []
        self._requests: deque[ControlAction] = deque()
        self._filling: deque[Connection] = deque()
        self._settling: set[Connection] = set()
        self._transacting: set[Producer] = set()
        self._unanswered = 0
        self._congested = 0
        self._to_send_again = 0
        self._gather_from_s = 0.0
        self._is_over = False
        self.is_open = True
        self.log_bytes = 0
        self.producers: list[Producer] = []
        self.connections: list[Connection] = []

    def add(self, producer: Producer, brokers: Iterable[int]) -> None:
        """Take in a producer with an open connection to each of these brokers."""
        for broker in brokers:
            connection = Connection(broker, producer, self._options.max_in_flight)
            producer.connections[broker] = connection
            self.connections.append(connection)
        self._reach.add(producer.connections)
        self.producers.append(producer)
        self._schedule(producer, producer.ready_s)

    @property
    def has_work(self) -> bool:
        """True while something may be sent or awaits an answer."""
        if self.is_open:
            return True
        waiting = self._unanswered + self._congested + self._to_send_again
        return waiting + len(self._settling) + len(self._transacting) > 0

    def may_gather(self, now: float) -> bool:
        """True while no batch waits for an answer, so that answers may be handled together."""
        return now >= self._gather_from_s and not self._muted and not self._transacting

    # --- what to do ---------------------------------------------------------

    @property
    def next_s(self) -> float:
        """Time of the next action, unless an event comes before it."""
        if self._requests or self._filling:
            return 0.0
        next_s = self._due[0][0] if self._due else _NEVER
        for heap in (self._muted, self._transaction_ends):
            if heap and heap[0][0] < next_s:
                next_s = heap[0][0]
        return next_s

    def next(self, now: float) -> Action | None:
        """The action to carry out now, or None; `next_s` says when to call again."""
        ends = self._transaction_ends
        while ends and ends[0][0] <= now:
            at_s, _, producer = heapq.heappop(ends)
            if producer.transactions is not None and producer.transactions.scheduled_s == at_s:
                self._advance_transaction(producer, now)
        while True:
            while self._requests:
                action = self._requests.popleft()
                if isinstance(action, Reopen):
                    return action
                if action.connection.is_open:  # otherwise `handle_lost` has given the request up
                    action.connection.in_flight.append((now, []))
                    return action
            request = self._next_request(now)
            if request is not None or not self._requests:
                return request

    def _next_request(self, now: float) -> Produce | Replace | None:
        filling, muted, due = self._filling, self._muted, self._due
        while filling:
            request = self._fill(filling[0], now)
            if request is not None:
                return request
            filling.popleft()
        while muted and muted[0][0] <= now:
            at_s, _, each = heapq.heappop(muted)
            if each.scheduled_s == at_s:
                request = self._resume(each, now)
                if request is not None:
                    return request
        while due and due[0][0] <= now:
            at_s, _, producer = due[0]
            if at_s != producer.scheduled_s:
                heapq.heappop(due)
                continue
            request = self._advance(producer, now)
            if producer.scheduled_s < self._account.window.load_end_s:
                heapq.heapreplace(due, (producer.scheduled_s, next(self._tie_breaker), producer))
            else:
                heapq.heappop(due)
            if request is not None:
                return request
        return None

    # --- what happened ------------------------------------------------------

    def handle_produce_response(
        self, connection: Connection, errors: Mapping[int, int], throttle_ms: int, now: float
    ) -> None:
        """Handle the answer to the oldest request.

        Args:
            errors: partition → Kafka's error code, 0 for success.
            throttle_ms: how long a quota held the client back [ms].
        """
        _sent_s, batches = connection.in_flight.popleft()
        self._unanswered -= 1
        if throttle_ms:
            self._account.counts.throttle_ms += throttle_ms
        self._reach.answered_s[connection.broker] = now
        producer = connection.producer
        for batch in batches:
            code = errors.get(batch.partition, -1)
            if code == 0 or self._handle_error(producer, batch, code, now):
                self._acknowledge(producer, batch, now)
        if connection.has_waiting:
            self._filling.append(connection)

    def handle_written(self, connection: Connection, now: float) -> None:
        """Handle that the socket took the newest request, which with acks=0 settles its batches."""
        _sent_s, batches = connection.in_flight.pop()  # an older metadata request may be in flight
        self._unanswered -= 1
        self._reach.answered_s[connection.broker] = now
        for batch in batches:
            self._acknowledge(connection.producer, batch, now)

    def handle_metadata(
        self, connection: Connection, leaders: Mapping[int, int], now: float
    ) -> None:
        """Handle the answer to the oldest request, which asked for leaders: partition → leader."""
        connection.in_flight.popleft()
        self._settling.discard(connection)
        moved = self._metadata.update(leaders, now)
        if moved:
            self._migrate(moved, now)
            self._wake(now)
        if connection.has_waiting:
            self._filling.append(connection)

    def handle_coordinator_response(
        self, connection: Connection, code: int, answer: tuple[int, int], now: float
    ) -> None:
        """Handle the coordinator's answer to the oldest request.

        Args:
            code: Kafka's error code, 0 for success.
            answer: the coordinator's broker id, or the producer id and epoch, whichever the request
                asked for.

        Raises:
            TransactionError: the coordinator refused, and a retry cannot succeed.
        """
        connection.in_flight.popleft()
        producer = connection.producer
        transactions = producer.transactions
        assert transactions is not None, "a producer with transactions sent the request"
        assert transactions.awaits(connection.broker), "the request was sent over this connection"
        request = transactions.request_in_flight
        if isinstance(request, FindCoordinator) and answer[0] not in producer.connections:
            code = code or COORDINATOR_NOT_AVAILABLE
        if code:
            transactions.fail_request(code, self._backoff_s(transactions), now)
        elif isinstance(request, AddPartitions):
            self._account.counts.transaction_log_records += 1
            for partition in transactions.take_added():
                if (muted := producer.muted.get(partition)) is not None:
                    self._reschedule(muted, now)
        elif isinstance(request, EndTransaction):
            account = self._account
            account.counts.transaction_log_records += LOG_RECORDS_OF_AN_END
            if request.is_commit:
                took_s = now - transactions.ending_since_s
                account.count_commit(transactions.partitions, took_s, now)
            else:
                account.count_abort(transactions.partitions, transactions.acked_records)
            transactions.finish()
        elif isinstance(request, RenewEpoch):
            assert producer.id_state is not None, "a producer with transactions is idempotent"
            producer.id_state.renew_all(*answer)
            transactions.renew()
        else:
            transactions.set_coordinator(answer[0])
        self._advance_transaction(producer, now)
        if connection.has_waiting:
            self._filling.append(connection)

    def mark_congested(self, connection: Connection) -> None:
        """Mark that the socket did not take all of the newest request."""
        if not connection.is_congested:
            connection.is_congested = True
            self._congested += 1

    def mark_flushed(self, connection: Connection) -> None:
        """Mark that the socket has taken the rest."""
        connection.is_congested = False
        self._congested -= 1
        if connection.has_waiting:
            self._filling.append(connection)

    def handle_lost(self, connection: Connection, error: str, now: float) -> None:
        """Handle a lost connection, over which no answer will come."""
        connection.is_open = False
        producer, requests = connection.producer, list(connection.in_flight)
        connection.in_flight.clear()
        self._unanswered -= sum(1 for _, batches in requests if batches)
        self._congested -= 1 if connection.is_congested else 0
        connection.is_congested = False
        self._settling.discard(connection)
        self._metadata.forget_request(connection)
        transactions = producer.transactions
        if transactions is not None and transactions.awaits(connection.broker):
            self._lose_coordinator_request(producer, transactions, now)
        for _, batches in requests:
            for batch in batches:
                self._retry_or_fail(producer, batch, error, LOST, now)
        if self._is_over:
            return
        for partition in connection.waiting_partitions:
            self._mute(producer, partition, now)
        for muted in connection.waiting:
            self._reschedule(muted, now)
        connection.waiting = []
        if connection.has_successor:
            self._filling.append(connection)
        self._request_metadata(producer, now)

    def handle_reopened(self, connection: Connection) -> None:
        """Handle that a lost connection, or one whose session ends soon, has a successor."""
        connection.is_wanted = connection.has_successor = True
        if connection.is_open and not self._is_answered:
            self._requests.append(SendControlRequest(connection))  # as in `close`
        self._filling.append(connection)

    def handle_replaced(self, connection: Connection, now: float) -> None:
        """Handle that the successor has replaced a connection."""
        connection.is_open = True
        connection.is_wanted = connection.has_successor = False
        self._wake(now)

    def overdue_connections(self, now: float) -> list[Connection]:
        """Connections whose oldest request has waited longer than `request_timeout_ms`."""
        since_s = now - self._options.request_timeout_ms / 1000.0
        return [c for c in self.connections if c.in_flight and c.in_flight[0][0] < since_s]

    def expire(self, now: float) -> None:
        """Fail full batches that have waited too long for their first sending."""
        for connection in self.connections:
            producer = connection.producer
            if not (producer.buffered_bytes or producer.blocked):
                continue  # as almost all of many producers
            for batch in connection.pending.take_overdue(now - self._timeout_s):
                producer.unbuffer(batch)
                self._fail(producer, batch, EXPIRED, now)
            self._unblock(producer)
        for producer in self.producers if self._transacting else ():
            for muted in list(producer.muted.values()):
                if any(batch.due_s < now - self._timeout_s for batch in muted.pending):
                    self._reschedule(muted, now)  # while it waits for the coordinator

    def update_silence(self, now: float) -> None:
        """Update how long each broker has not answered; to be called several times a second."""
        self._reach.update_silence(awaited_brokers(self.producers, self._leaders), now)

    def begin_window(self, following: Window, now: float) -> Account:
        """Begin the following window of the load; returns the account of the one that has ended."""
        self._end_window(now)
        self._account.counts.log_bytes = self.log_bytes
        over = self._account.begin_window(following)
        self.log_bytes = 0
        self._reach.begin(self._account.counts.by_broker, following)
        return over

    def _end_window(self, now: float) -> None:
        """Count what is missing at the end of a window."""
        self.update_silence(now)
        self._reach.close(self.producers, self._leaders)
        leaders, end_s = self._leaders, self._account.window.end_s
        unsent = sum(each.own_backlog(leaders[each.partition], end_s) for each in self.producers)
        self._account.counts.unsent_own_records = unsent

    def close(self, now: float) -> None:
        """End the last window: nothing more is sent for the first time."""
        self._end_window(now)
        self.is_open = False
        self._due.clear()
        for producer in self.producers:
            dropped, producer.waits_at = 0, None
            for connection in producer.connections.values():
                dropped += len(connection.pending)
                connection.pending.queues.clear()
            for muted in list(producer.muted.values()):
                again = muted.again
                dropped += len(muted.pending) - len(again)
                muted.pending = deque(again)
                self._reschedule(muted, max(now, muted.not_before_s))
            transactions = producer.transactions
            if transactions is None:
                continue
            transactions.unsettled -= dropped
            transactions.wanted.intersection_update(transactions.partitions)
            if transactions.is_open:  # commit what was sent, without the dropped batches
                transactions.end(now)
                self._advance_transaction(producer, now)
        if not self._is_answered:
            # A broker drops unread requests when a connection is closed. It answers in order, so
            # its answer to a last request shows that it has read all earlier ones.
            self._settling.update(each for each in self.connections if each.is_open)
            self._requests.extend(map(SendControlRequest, self._settling))

    def end(self, now: float) -> None:
        """End the drain: records that are not acknowledged by now have failed."""
        self._is_over = True
        for producer in self.producers:
            for muted in producer.muted.values():
                for batch in muted.again:
                    self._fail(producer, batch, batch.last_error, now)
                muted.pending.clear()
        self._to_send_again = 0
        for connection in self.connections:
            if connection.in_flight:
                self.handle_lost(connection, UNACKNOWLEDGED, now)
        for producer in self._transacting:  # their transactions have no known end
            transactions = producer.transactions
            assert transactions is not None, "only producers with transactions are in one"
            self._account.counts.transactions_aborted += 1 if transactions.partitions else 0
            for partition in transactions.partitions:
                self._account.count_duplicates(producer.index, partition, 1)
        self._transacting.clear()

    # --- sending for the first time -----------------------------------------

    def _schedule(self, producer: Producer, at_s: float) -> None:
        producer.scheduled_s = at_s
        if self.is_open and at_s < self._account.window.load_end_s:
            heapq.heappush(self._due, (at_s, next(self._tie_breaker), producer))

    def _advance(  # noqa: C901 - one more call for each batch would cost CPU time
        self, producer: Producer, now: float
    ) -> Produce | None:
        """Send or queue the ready batches of this producer, and set when to look at it again."""
        end_s = self._account.window.load_end_s
        transactions = producer.transactions
        while (ready_s := producer.ready_s) <= now and ready_s < end_s:
            connection = producer.connections[self._leaders[producer.partition]]
            is_held = transactions is not None and transactions.is_ending
            is_muted = (
                is_held
                or producer.partition in producer.muted
                or (transactions is not None and not transactions.admits(producer.partition))
            )
            if not is_muted and not connection.pending.queues and connection.has_room:
                records = producer.records_by(ready_s)
                if producer.spread is None:
                    batches = [producer.seal(records, now)]
                else:
                    batches = producer.divide(records, now, self._leaders, connection.broker)
                producer.waits_at = None
                if not producer.closed_loop:
                    self._account.count_late(now - ready_s, records, now)
                if transactions is not None:
                    transactions.unsettled += 1
                producer.scheduled_s = producer.ready_s
                return self._send(connection, batches, now)
            self._gather_from_s = now + _PRESSURE_S
            waiting: WaitingPlace = connection
            if transactions is not None and is_held:
                waiting = transactions
            elif is_muted or not connection.is_open:
                waiting = self._mute(producer, producer.partition, now)
            if producer.full_s > now:
                producer.waits_at = waiting
                producer.scheduled_s = producer.full_s
                return None
            batch = producer.seal(producer.full_records, now)
            waiting.pending.append(batch)
            producer.waits_at = None
            if transactions is not None and not is_held:
                transactions.unsettled += 1
            producer.buffer(batch)
            if producer.buffered_bytes >= self._options.buffer_memory:
                producer.blocked = True
                producer.scheduled_s = _NEVER
                return None
        producer.scheduled_s = producer.ready_s
        return None

    def _fill(self, connection: Connection, now: float) -> Produce | Replace | None:
        """The next request over this connection; None when nothing waits or it has no room."""
        if connection.has_successor:
            is_drained = not connection.in_flight and not connection.is_congested
            return Replace(connection) if is_drained else None
        while connection.waiting and connection.has_room:
            request = self._resume(connection.waiting.pop(0), now)
            if request is not None:
                return request
        if not (self.is_open and connection.has_room):
            return None
        producer, size_bytes = connection.producer, self._options.max_request_size
        batches = connection.pending.take(_BATCHES_PER_REQUEST, size_bytes)
        for batch in batches:
            producer.unbuffer(batch)
        if (
            producer.waits_at is connection
            and not connection.pending
            and len(batches) < _BATCHES_PER_REQUEST
            and producer.partition not in producer.muted
            and all(batch.partition != producer.partition for batch in batches)
        ):
            records = producer.records_by(now)
            if producer.spread is None:
                batches.append(producer.seal(records, now))
            else:
                taken = {each.partition for each in batches}
                batches += producer.divide(records, now, self._leaders, connection.broker, taken)
            producer.waits_at = None
            if producer.transactions is not None:
                producer.transactions.unsettled += 1
            self._schedule(producer, producer.ready_s)
        self._unblock(producer)
        return self._send(connection, batches, now) if batches else None

    def _unblock(self, producer: Producer) -> None:
        """Resume a blocked producer whose memory has room again."""
        if producer.blocked and producer.buffered_bytes < self._options.buffer_memory:
            producer.blocked = False
            self._schedule(producer, producer.ready_s)

    def _send(self, connection: Connection, batches: list[Batch], now: float) -> Produce:
        producer = connection.producer
        state, account = producer.id_state, self._account
        for batch in batches:
            if state is not None:
                state.stamp(batch)
            if batch.trouble is None:
                account.count_sent(producer.index, batch.partition, batch.records, now)
        connection.in_flight.append((now, batches))
        self._unanswered += 1
        self._reach.count_request(connection.broker, now)
        return Produce(connection, batches)

    # --- muted partitions: sending again ------------------------------------

    def _mute(self, producer: Producer, partition: int, now: float) -> MutedPartition:
        """Hold back what goes to this partition until its leader can take it."""
        muted = producer.muted.get(partition)
        if muted is None:
            muted = producer.muted[partition] = MutedPartition(producer, partition)
            self._reschedule(muted, now)
        return muted

    def _reschedule(self, muted: MutedPartition, at_s: float) -> None:
        muted.scheduled_s = at_s
        heapq.heappush(self._muted, (at_s, next(self._tie_breaker), muted))

    def _wake(self, now: float) -> None:
        """Try muted partitions again whose leader had no open connection."""
        for muted in {id(muted): muted for _, _, muted in self._muted}.values():
            if muted.turns:
                muted.turns = 0
                self._reschedule(muted, max(now, muted.not_before_s))

    def _migrate(self, moved: frozenset[int], now: float) -> None:
        """Move the batches that wait for old leaders to the new ones, in order."""
        for producer in self.producers:
            for connection in producer.connections.values():
                for partition in moved.intersection(connection.waiting_partitions):
                    self._mute(producer, partition, now)

    def _resume(self, muted: MutedPartition, now: float) -> Produce | None:
        """The next batch to send again; None before its time or without an open connection."""
        producer = muted.producer
        if producer.muted.get(muted.partition) is not muted:
            return None  # it waited for room at an old leader, and is done at the new one
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
            self._reconnect(connection, now)
            muted.turns += 1
            self._reschedule(muted, now + backoff_s(self._options, muted.turns, self._rng))
        elif not muted.pending or muted.pending[0].trouble is None:
            self._unmute(muted, connection)
        elif now < muted.not_before_s:
            self._reschedule(muted, muted.not_before_s)
        elif not connection.has_room:
            connection.waiting.append(muted)
        else:
            return self._send_again(muted, connection, now)
        return None

    def _send_again(self, muted: MutedPartition, connection: Connection, now: float) -> Produce:
        producer, batch = muted.producer, muted.pending.popleft()
        self._to_send_again -= 1
        producer.unbuffer(batch)
        self._account.count_retried(
            producer.index, batch.partition, batch.last_error, batch.records
        )
        muted.under_way = batch
        self._unblock(producer)
        return self._send(connection, [batch], now)

    def _unmute(self, muted: MutedPartition, connection: Connection) -> None:
        """Return the waiting batches to the normal queue, as none has to be sent again."""
        producer = muted.producer
        del producer.muted[muted.partition]
        connection.pending.extend(muted.pending)
        if producer.waits_at is muted:
            producer.waits_at = connection if producer.partition == muted.partition else None
        self._filling.append(connection)

    def _reconnect(self, connection: Connection, now: float) -> None:
        if not connection.is_wanted:
            connection.is_wanted = True
            self._requests.append(Reopen(connection))
        self._request_metadata(connection.producer, now)

    def _request_metadata(self, producer: Producer, now: float) -> None:
        """Ask for the leaders over one of the producer's connections, unless asked recently."""
        ways = [c for c in producer.connections.values() if c.is_open and not c.is_congested]
        if ways and self._metadata.may_request(now):
            connection = min(ways, key=lambda each: len(each.in_flight))
            self._metadata.mark_requested(connection)
            self._requests.append(SendControlRequest(connection))

    # --- batches ------------------------------------------------------------

    def _acknowledge(self, producer: Producer, batch: Batch, now: float) -> None:
        account = self._account
        account.count_acked(
            producer.index,
            batch.partition,
            batch.due_s,
            batch.records,
            batch.section.payload_of(batch.records),
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
            account.count_duplicates(producer.index, batch.partition, copied)
        muted = producer.muted.get(batch.partition) if producer.muted else None
        if muted is not None and muted.under_way is batch:
            muted.under_way = None
            muted.not_before_s = now
            self._reschedule(muted, now)

    def _handle_error(self, producer: Producer, batch: Batch, code: int, now: float) -> bool:
        """Handle a broker's error code for a batch; True when it means that the broker has it."""
        self._account.refused += 1
        state = producer.id_state
        if state is not None and code == DUPLICATE_SEQUENCE:
            return True
        if state is not None and code in SEQUENCE_ERRORS:
            # Behind a batch that failed, out of order is expected; for the next batch it is not.
            is_broken = code != OUT_OF_ORDER_SEQUENCE or state.is_next(batch)
            if is_broken and state.is_current(batch):
                if producer.transactions is not None:
                    self._fail(producer, batch, for_code(code).__name__, now)
                    return False
                self._restart_sequence(producer, batch.partition)
        refusal = Refusal.of(code, self._options, state is not None)
        self._retry_or_fail(producer, batch, refusal.error, refusal, now)
        if refusal.leader_moved:
            self._request_metadata(producer, now)
        return False

    def _retry_or_fail(
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
        self._reschedule(muted, muted.not_before_s)

    def _fail(self, producer: Producer, batch: Batch, error: str, now: float) -> None:
        self._account.count_failed(producer.index, batch.partition, error, batch.records, now)
        self._reach.count_failed(self._leaders[batch.partition], batch.records, now)
        trouble = batch.trouble
        if trouble is not None:
            # An idempotent producer's last copy is counted once its epoch is over.
            last = 1 if trouble.is_unsure and producer.id_state is not None else 0
            copied = (trouble.copies + last - 1) * batch.records  # one of them is the failed
            if copied > 0:
                self._account.count_duplicates(producer.index, batch.partition, copied)
        muted = producer.muted.get(batch.partition)
        if muted is not None and muted.under_way is batch:
            muted.under_way = None
            self._reschedule(muted, now)
        if producer.transactions is not None:
            self._abort(producer, producer.transactions, now)
            return
        state = producer.id_state
        if state is not None and not self._is_over and state.is_current(batch):
            is_unsure = trouble is not None and trouble.is_unsure
            if is_unsure or not state.withdraw(batch):
                self._restart_sequence(producer, batch.partition)

    def _restart_sequence(self, producer: Producer, partition: int) -> None:
        """Begin a new sequence in this partition, as the old one is broken."""
        state, muted = producer.id_state, producer.muted.get(partition)
        if state is None:
            return
        state.start_again(partition)
        for batch in muted.again if muted is not None else ():
            state.renew(batch)

    # --- transactions -------------------------------------------------------

    def _is_in_transaction(self, producer: Producer, partition: int, now: float) -> bool:
        """True when the partition's batches may be sent; otherwise ask to add the partition."""
        transactions = producer.transactions
        if transactions is None or transactions.admits(partition):
            return True
        muted = producer.muted[partition]
        if not muted.pending and producer.waits_at is not muted:
            del producer.muted[partition]
            return False
        if not transactions.is_failed:
            transactions.add_wanted(partition, now)
            self._transacting.add(producer)
            self._advance_transaction(producer, now)
        return False

    def _backoff_s(self, transactions: Transactions) -> float:
        return backoff_s(self._options, transactions.failures + 1, self._rng)

    def _advance_transaction(self, producer: Producer, now: float) -> None:
        """Send the transaction's next request, or set when to look at it again."""
        transactions = producer.transactions
        if transactions is None or transactions.request_in_flight is not None or self._is_over:
            return
        ends_s = transactions.ends_s
        if ends_s is not None and now >= ends_s and not transactions.is_ending:
            self._flush(producer, transactions, now)
        if transactions.is_over:
            self._begin(producer, transactions, now)
            return
        request = transactions.next_request()
        if request is None:
            if ends_s is not None and not transactions.is_ending:
                self._schedule_transaction(producer, transactions, ends_s)
        elif now < transactions.not_before_s:
            self._schedule_transaction(producer, transactions, transactions.not_before_s)
        else:
            self._request_of_coordinator(producer, transactions, request, now)

    def _schedule_transaction(
        self, producer: Producer, transactions: Transactions, at_s: float
    ) -> None:
        transactions.scheduled_s = at_s
        heapq.heappush(self._transaction_ends, (at_s, next(self._tie_breaker), producer))

    def _request_of_coordinator(
        self,
        producer: Producer,
        transactions: Transactions,
        request: CoordinatorRequest,
        now: float,
    ) -> None:
        ways = [
            each
            for each in producer.connections.values()
            if transactions.coordinator in (None, each.broker)
        ]
        if open_ways := [each for each in ways if each.is_open]:
            connection = min(open_ways, key=lambda each: len(each.in_flight))
            transactions.request_in_flight = request
            transactions.requested_broker = connection.broker
            self._requests.append(SendControlRequest(connection, request))
            return
        self._lose_coordinator_request(producer, transactions, now)
        for connection in ways:
            self._reconnect(connection, now)

    def _lose_coordinator_request(
        self, producer: Producer, transactions: Transactions, now: float
    ) -> None:
        """Retry later a request that no connection can take, or that a lost one had taken."""
        transactions.lose_request(self._backoff_s(transactions), now)
        self._schedule_transaction(producer, transactions, transactions.not_before_s)

    def _flush(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """End the transaction with what is due by now, in a full batch or not."""
        transactions.end(now)
        producer.waits_at = None
        if producer.closed_loop or producer.blocked or producer.due_s(producer.opened) > now:
            producer.waits_at = transactions if producer.ready_s <= now else None
            return
        batch = producer.seal(producer.records_by(now), now)
        transactions.unsettled += 1
        producer.buffer(batch)
        connection = producer.connections[self._leaders[batch.partition]]
        is_muted = batch.partition in producer.muted or not connection.is_open
        if is_muted or not transactions.admits(batch.partition):
            self._mute(producer, batch.partition, now).pending.append(batch)
        else:
            connection.pending.append(batch)
            self._filling.append(connection)
        self._schedule(producer, producer.ready_s)

    def _settle(self, producer: Producer, transactions: Transactions, now: float) -> None:
        transactions.unsettled -= 1
        if transactions.is_ending and not transactions.unsettled:
            self._advance_transaction(producer, now)

    def _abort(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """Abort the transaction of a batch that failed for good; its other batches are not sent."""
        is_first = not transactions.is_failed
        transactions.is_failed = True
        transactions.end(now)
        if is_first and not self._is_over:
            transactions.wanted.intersection_update(transactions.partitions)
            for batch in self._take_unsent(producer, now):
                self._account.count_failed(
                    producer.index, batch.partition, ABORTED, batch.records, now
                )
                self._reach.count_failed(self._leaders[batch.partition], batch.records, now)
                producer.unbuffer(batch)
                transactions.unsettled -= 1
            producer.waits_at = transactions
            if not producer.blocked:
                self._schedule(producer, producer.ready_s)
            self._unblock(producer)
        self._settle(producer, transactions, now)

    def _take_unsent(self, producer: Producer, now: float) -> list[Batch]:
        """Take all batches that wait to be sent, for the first time or again."""
        batches: list[Batch] = []
        producer.waits_at = None
        for connection in producer.connections.values():
            for queue in connection.pending.queues.values():
                batches.extend(queue)
            connection.pending.queues.clear()
        for muted in producer.muted.values():
            self._to_send_again -= len(muted.again)
            batches.extend(muted.pending)
            muted.pending.clear()
            self._reschedule(muted, now)
        return batches

    def _begin(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """Begin the next transaction with the batches that waited for it."""
        self._transacting.discard(producer)
        had_open_batch = producer.waits_at is transactions
        if had_open_batch:
            producer.waits_at = None
        for batch in transactions.begin():
            if not self.is_open:
                continue
            transactions.unsettled += 1
            self._mute(producer, batch.partition, now).pending.append(batch)
        if had_open_batch and not producer.blocked:
            self._schedule(producer, producer.ready_s)
