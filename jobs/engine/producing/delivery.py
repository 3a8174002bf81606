"""Delivery of the batches of one task's producers: which batches to send, and their outcomes.

The class `Delivery` decides which request is sent next, but does no I/O. `Delivery` takes events
with their times, and returns the next action. `Delivery` follows the rules of Kafka's own producer.
A connection has at most `max_in_flight` unanswered requests, and other batches wait until the
connection has room. A failed batch is sent again after a back-off, until `retries` or
`delivery_timeout_ms` is exceeded. If leaders may have changed, a metadata request follows.
`transactions.py` has the rules for transactions.

In an open loop, a slow broker makes batches wait but does not slow down the schedule. In a closed
loop, records are available whenever `buffer_memory` has room.

`accumulator.py` has the batches that wait to be sent, and the times of the next sends.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.errors import for_code

from jobs.engine.producing.account import Account
from jobs.engine.producing.accumulator import Accumulator
from jobs.engine.producing.batch import UNACKNOWLEDGED, Batch, Trouble
from jobs.engine.producing.producer import NEVER, Connection, PartitionQueue, Producer
from jobs.engine.producing.protocol import ControlRequest, FindLeaders
from jobs.engine.producing.retries import (
    DUPLICATE_SEQUENCE,
    OUT_OF_ORDER_SEQUENCE,
    SEQUENCE_ERRORS,
    Refusal,
    backoff_s,
)
from jobs.engine.producing.transaction_manager import TransactionManager
from jobs.engine.producing.transactions import Transactions
from jobs.engine.task.window import Window
from metrics.traffic.clients import ProducerPattern

_BATCHES_PER_REQUEST = 400  # two buffers each, below sendmsg's limit of 1,024
_PRESSURE_S = 0.1
"""If a batch had to wait, each answer is handled as soon as it arrives, for this time [s]."""


@dataclass(slots=True)
class _OnConnection:
    connection: Connection


@dataclass(slots=True)
class Produce(_OnConnection):
    """Action: send these batches as one request."""

    batches: list[Batch]


@dataclass(slots=True)
class SendControlRequest(_OnConnection):
    """Action: send a control request over this connection."""

    request: ControlRequest


class Reopen(_OnConnection):
    """Action: open this connection again, without a time limit."""


class Replace(_OnConnection):
    """Action: replace this connection's transport by its successor. At this time, no request is in
    flight over the connection.
    """


Action = Produce | Replace | SendControlRequest | Reopen


class Delivery:
    """Delivers the batches of all producers of one task.

    The caller carries out the actions one by one in their order, and reports the outcome of an
    action before it asks for the next one. Times are on the engine's clock [s].

    All producers of the task share one metadata request, because each producer would get the same
    answer. Many metadata requests at once could overload a cluster that has lost a broker.

    Args:
        account: counts the outcome of every record in the measured window.
        leaders: ids of the brokers that lead partitions 0, 1, 2, …
        brokers: ids of the brokers to which producers have connections.

    Attributes:
        leaders: ids of the brokers that lead partitions 0, 1, 2, …, as far as the producers know.
        producers: the producers, with their waiting batches.
        connections: the connections of all producers.
    """

    def __init__(
        self,
        pattern: ProducerPattern,
        account: Account,
        leaders: Sequence[int],
        brokers: Collection[int],
    ) -> None:
        self._options = pattern.options
        self._is_answered = pattern.options.acks != "0"
        self._timeout_s = pattern.options.delivery_timeout_ms / 1000.0
        self._account = account
        self._brokers = brokers
        self._rng = random.Random(pattern.payload.seed)
        self._accumulator = Accumulator(pattern.options, account, leaders)
        self._timers, self._filling = self._accumulator.timers, self._accumulator.filling
        self._transactions = TransactionManager(
            self._accumulator,
            self._send_to_coordinator,
            lambda failures: backoff_s(self._options, failures, self._rng),
        )
        self._requests: deque[SendControlRequest | Reopen] = deque()
        self._settling: set[Connection] = set()
        self._leaders_request: FindLeaders | None = None
        self._leaders_from_s = 0.0
        self._unanswered = 0
        self._gather_from_s = 0.0
        self.leaders = self._accumulator.leaders
        self.producers: list[Producer] = []
        self.connections: list[Connection] = []

    def add(self, producer: Producer) -> None:
        """Add a producer whose connections are open."""
        self.connections += producer.connections.values()
        self.producers.append(producer)
        self._accumulator.await_open_batch(producer, 0.0)

    @property
    def is_open(self) -> bool:
        """Whether batches that were never sent may be sent."""
        return self._accumulator.is_open

    @property
    def has_work(self) -> bool:
        """Whether batches or requests may still be sent, or are still unanswered."""
        if self.is_open:
            return True
        waiting = self._unanswered + self._accumulator.to_send_again
        waiting += len(self._settling) + len(self._transactions.open)
        return waiting > 0 or any(each.unwritten for each in self.connections)

    def may_gather(self, now: float) -> bool:
        """Whether answers may be gathered and handled together, because no batch had to wait
        recently.
        """
        return now >= self._gather_from_s and not (
            self._accumulator.muted or self._transactions.open
        )

    # --- actions ------------------------------------------------------------

    @property
    def next_s(self) -> float:
        """Time of the next action, if no event happens earlier."""
        if self._requests or self._filling:
            return 0.0
        return self._timers[0][0] if self._timers else NEVER

    def next(self, now: float) -> Action | None:
        """The action to carry out now; None if no action is due. `next_s` is the time of the next
        call.
        """
        action: Action | None
        while True:
            if self._requests:
                action = self._next_request(now)
            elif self._filling:
                action = self._fill(self._filling[0], now)
                if action is None:
                    self._filling.popleft()
            elif self._timers and self._timers[0][0] <= now:
                action = self._look(now)
            else:
                return None
            if action is not None:
                return action

    def _next_request(self, now: float) -> SendControlRequest | Reopen | None:
        action = self._requests.popleft()
        if isinstance(action, Reopen):
            return action
        if not action.connection.is_open:
            self._forget_request(action.connection, action.request, now)
            return None
        action.connection.in_flight.append((now, action.request))
        return action

    def _look(self, now: float) -> Produce | None:
        """Handle the scheduled object whose time has come."""
        accumulator = self._accumulator
        at_s, _, timed, producer = accumulator.timers[0]
        if timed is producer and timed.scheduled_s == at_s:
            request = self._advance(producer, now)  # which schedules nothing earlier
            accumulator.schedule_again(producer, now)
            return request
        heapq.heappop(accumulator.timers)
        if timed.scheduled_s == at_s:
            timed.scheduled_s = NEVER
            if isinstance(timed, PartitionQueue):
                return self._resume(timed, now)
            assert isinstance(timed, Transactions), "the timer has an unknown type"
            self._transactions.advance(producer, timed, now)
        return None

    # --- events -------------------------------------------------------------

    def handle_produce_response(
        self, connection: Connection, errors: Mapping[int, int], throttle_ms: int, now: float
    ) -> None:
        """Handle the response to the oldest request in flight.

        Args:
            errors: partition → Kafka's error code, 0 for success.
            throttle_ms: time for which a quota throttled the client [ms].
        """
        _sent_s, batches = connection.in_flight.popleft()
        assert isinstance(batches, list), "the oldest request in flight has no batches"
        self._unanswered -= 1
        if throttle_ms:
            self._account.counts.throttle_ms += throttle_ms
        self._account.answered_s[connection.broker] = now
        producer = connection.producer
        for batch in batches:
            code = errors.get(batch.partition, -1)
            if code == 0 or self._handle_error(producer, batch, code, now):
                self._acknowledge(producer, batch, now)
        if connection.queues or connection.has_successor:
            self._filling.append(connection)

    def handle_written(self, connection: Connection, now: float) -> None:
        """Handle a produce request with acks=0 that was written to the socket: its batches now
        count as acknowledged.
        """
        _sent_s, batches = connection.in_flight.pop()  # an older metadata request may be in flight
        assert isinstance(batches, list), "the written request has no batches"
        self._unanswered -= 1
        self._account.answered_s[connection.broker] = now
        for batch in batches:
            self._acknowledge(connection.producer, batch, now)

    def handle_metadata(
        self, connection: Connection, leaders: Mapping[int, int], now: float
    ) -> None:
        """Handle the leaders (partition → leader) in the response to the oldest request."""
        accumulator = self._accumulator
        connection.in_flight.popleft()
        self._settling.discard(connection)
        self._leaders_request = None
        self._leaders_from_s = now + self._options.retry_backoff_ms / 1000.0
        moved = {p for p, at in leaders.items() if at in self._brokers and self.leaders[p] != at}
        for partition in moved:
            self.leaders[partition] = leaders[partition]
        for producer in self.producers if moved else ():
            for partition in moved & producer.queues.keys():
                accumulator.retry_soon(accumulator.mute(producer.queues[partition], now), now)
        if connection.has_waiting:
            self._filling.append(connection)

    def handle_coordinator_response(
        self, connection: Connection, code: int, answer: Any, now: float
    ) -> None:
        """Handle the coordinator's response to the oldest request.

        Args:
            code: Kafka's error code, 0 for success.
            answer: (broker id, address) of the coordinator, or (producer id, epoch), depending on
                the request.

        Raises:
            TransactionError: the coordinator refused the request, and a retry cannot succeed.
        """
        _sent_s, request = connection.in_flight.popleft()
        assert not isinstance(request, list), "the oldest request is for a coordinator"
        self._transactions.handle_response(connection.producer, request, code, answer, now)
        if connection.has_waiting:
            self._filling.append(connection)

    def handle_flushed(self, connection: Connection) -> None:
        """Handle the event that the socket has taken the remaining bytes."""
        if connection.has_waiting:
            self._filling.append(connection)

    def handle_lost(self, connection: Connection, error: str, now: float) -> None:
        """Handle a lost connection: its requests in flight get no response."""
        connection.is_open, accumulator = False, self._accumulator
        producer, requests = connection.producer, [each for _, each in connection.in_flight]
        connection.in_flight.clear()
        self._settling.discard(connection)
        for request in requests:
            if not isinstance(request, list):
                self._forget_request(connection, request, now)
        lost = Refusal(error, is_retriable=True, is_unsure=True, leader_moved=False)
        for batches in requests:
            if isinstance(batches, list):
                self._unanswered -= 1
                for batch in batches:
                    self._retry_or_fail(producer, batch, lost, now)
        if accumulator.is_over:
            return
        for queue in list(connection.queues.values()):
            accumulator.schedule(accumulator.mute(queue, now), producer, now)
        if connection.has_successor:
            self._filling.append(connection)
        self._request_leaders(producer, now)

    def _forget_request(self, connection: Connection, request: ControlRequest, now: float) -> None:
        """Forget a request that was lost with its connection, so that the request is sent again."""
        if request is self._leaders_request:
            self._leaders_request, self._leaders_from_s = None, 0.0
        else:
            self._transactions.lose(connection.producer, request, now)

    def handle_reopened(self, connection: Connection) -> None:
        """Handle a new open connection that will replace `connection`, because `connection` is lost
        or its session ends soon.
        """
        connection.is_wanted = connection.has_successor = True
        if connection.is_open and not self._is_answered:
            self._requests.append(SendControlRequest(connection, FindLeaders()))  # as in `close`
        self._filling.append(connection)

    def handle_replaced(self, connection: Connection, now: float) -> None:
        """Handle the replacement of a connection by its successor."""
        connection.reset()
        for queue in self._accumulator.muted:
            if queue.turns:
                self._accumulator.retry_soon(queue, now)

    def overdue_connections(self, now: float) -> list[Connection]:
        """Connections whose oldest request is unanswered for more than `request_timeout_ms`."""
        since_s = now - self._options.request_timeout_ms / 1000.0
        return [c for c in self.connections if c.in_flight and c.in_flight[0][0] < since_s]

    def expire(self, now: float) -> None:
        """Fail full batches that waited too long for their first send."""
        for producer in self.producers:
            if producer.buffered_bytes or producer.blocked:  # true for very few producers
                for queue in list(producer.queues.values()):
                    self._expire(queue, now)
                self._accumulator.unblock(producer, now)

    def begin_window(self, following: Window, now: float) -> Account:
        """Begin the following window; return the account of the window that has ended."""
        self._account.end_window(self.producers, self.leaders, now)
        return self._account.begin_window(following)

    def close(self, now: float) -> None:
        """End the last window. From now on, no batch is sent for the first time; only failed
        batches are sent again.
        """
        self._account.end_window(self.producers, self.leaders, now)
        self._accumulator.is_open = False
        for producer in self.producers:
            dropped = self._accumulator.close(producer, now)
            self._transactions.close(producer, dropped, now)
        if not self._is_answered:
            # A broker drops unread requests when a connection is closed. It answers requests in
            # order, so its answer to a last request shows that it has read all earlier requests.
            self._settling.update(each for each in self.connections if each.is_open)
            for connection in self._settling:
                self._requests.append(SendControlRequest(connection, FindLeaders()))

    def end(self, now: float) -> None:
        """End the wait for acknowledgements, and count all unacknowledged records as failed."""
        self._accumulator.is_over = True
        for producer in self.producers:
            for queue in producer.queues.values():
                for batch in self._accumulator.take_before(queue):
                    if batch.trouble is not None:
                        self._fail(producer, batch, batch.last_error, now)
        self._accumulator.to_send_again = 0
        for connection in self.connections:
            if connection.in_flight:
                self.handle_lost(connection, UNACKNOWLEDGED, now)
        self._transactions.end()

    # --- first sends --------------------------------------------------------

    def _advance(self, producer: Producer, now: float) -> Produce | None:
        """Send or queue the producer's ready batches, and set its next scheduled time."""
        end_s = self._account.window.load_end_s
        transactions = producer.transactions
        while (ready_s := producer.ready_s) <= now and ready_s < end_s:
            partition = producer.partition
            connection = producer.connections[self.leaders[partition]]
            is_held = transactions is not None and transactions.is_ending
            if (
                not connection.queues
                and partition not in producer.queues
                and connection.has_room
                and (transactions is None or (partition in transactions.partitions and not is_held))
            ):
                batches = self._seal(producer, connection, producer.records_by(ready_s), now)
                if not producer.closed_loop:
                    records = producer.opened - batches[0].first
                    self._account.count_late(now - ready_s, records, now)
                producer.scheduled_s = producer.ready_s
                return self._send(connection, batches, now)
            self._gather_from_s = now + _PRESSURE_S
            if transactions is not None and is_held:
                waiting = transactions.pending
            else:
                waiting = self._accumulator.queue_of(producer, partition, now).batches
            if producer.full_s > now:
                producer.waits = True
                producer.scheduled_s = producer.full_s
                return None
            batch = producer.seal(producer.full_records, now)
            waiting.append(batch)
            producer.waits = False
            if transactions is not None and not is_held:
                transactions.unsettled += 1
            producer.buffered_bytes += batch.size
            if producer.buffered_bytes >= self._options.buffer_memory:
                producer.blocked = True
                producer.scheduled_s = NEVER
                return None
        producer.scheduled_s = producer.ready_s
        return None

    def _seal(
        self,
        producer: Producer,
        connection: Connection,
        records: int,
        now: float,
        others: Sequence[Batch] = (),
    ) -> list[Batch]:
        """Seal the producer's open batch, for a request that also contains the batches `others`."""
        producer.waits = False
        if producer.transactions is not None:
            producer.transactions.unsettled += 1
        if not producer.has_keys:
            return [producer.seal(records, now)]
        taken = {each.partition for each in others}
        return producer.divide(records, now, self.leaders, connection.broker, taken)

    def _fill(self, connection: Connection, now: float) -> Produce | Replace | None:
        """The next request over this connection; None if nothing may be sent now."""
        if connection.has_successor:
            is_drained = not connection.in_flight and not connection.unwritten
            return Replace(connection) if is_drained else None
        queues, producer = connection.queues, connection.producer
        while queues and connection.has_room:
            first = next(iter(queues.values()))
            if not first.is_muted:
                break
            del queues[first.partition]
            request = self._resume(first, now)
            if request is not None:
                return request
        if not (queues and self.is_open and connection.has_room):
            return None
        batches = connection.drain(_BATCHES_PER_REQUEST, self._options.max_request_size)
        partition = producer.partition
        if (
            producer.waits
            and queues.keys() == {partition}
            and not queues[partition].batches
            and len(batches) < _BATCHES_PER_REQUEST
            and all(batch.partition != partition for batch in batches)
        ):
            self._accumulator.drop(queues[partition])
            batches += self._seal(producer, connection, producer.records_by(now), now, batches)
            self._accumulator.await_open_batch(producer, now)
        self._accumulator.unblock(producer, now)
        return self._send(connection, batches, now) if batches else None

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
        account.count_request(connection.broker, now)
        return Produce(connection, batches)

    # --- queues -------------------------------------------------------------

    def _expire(self, queue: PartitionQueue, now: float) -> None:
        """In this queue, fail all batches that are older than the delivery timeout."""
        for batch in self._accumulator.take_before(queue, now - self._timeout_s):
            self._fail(queue.producer, batch, batch.last_error, now)

    def _resume(self, queue: PartitionQueue, now: float) -> Produce | None:
        """The next batch to send again; None if its back-off is not over, or no connection is
        open.
        """
        producer, accumulator = queue.producer, self._accumulator
        self._expire(queue, now)
        self._accumulator.unblock(producer, now)
        if queue.under_way is not None:
            return None
        if queue.is_empty:
            self._accumulator.drop(queue)
            return None
        if not self._transactions.admits(producer, queue.partition, now):
            return None
        connection = queue.connection = producer.connections[self.leaders[queue.partition]]
        if not connection.is_open:
            self._reconnect(connection, now)
            queue.turns += 1
            wait_s = backoff_s(self._options, queue.turns, self._rng)
            self._accumulator.schedule(queue, producer, now + wait_s)
        elif not queue.batches or queue.batches[0].trouble is None:
            accumulator.unmute(queue)
        elif now < queue.not_before_s:
            self._accumulator.schedule(queue, producer, queue.not_before_s)
        elif not connection.has_room:
            connection.queues[queue.partition] = queue
            connection.queues.move_to_end(queue.partition, last=False)
        else:
            return self._send_again(queue, connection, now)
        return None

    def _send_again(self, queue: PartitionQueue, connection: Connection, now: float) -> Produce:
        producer, batch = queue.producer, queue.batches.popleft()
        self._accumulator.take(queue, [batch])
        self._account.count_retried(
            producer.index, batch.partition, batch.last_error, batch.records
        )
        queue.under_way = batch
        self._accumulator.unblock(producer, now)
        return self._send(connection, [batch], now)

    def _send_to_coordinator(
        self, ways: list[Connection], request: ControlRequest, now: float
    ) -> bool:
        """Send a request to the coordinator over the open connection with the fewest requests in
        flight; return False if no connection is open.
        """
        if open_ways := [each for each in ways if each.is_open]:
            connection = min(open_ways, key=lambda each: len(each.in_flight))
            self._requests.append(SendControlRequest(connection, request))
            return True
        for connection in ways:
            self._reconnect(connection, now)
        return False

    def _reconnect(self, connection: Connection, now: float) -> None:
        if not connection.is_wanted:
            connection.is_wanted = True
            self._requests.append(Reopen(connection))
        self._request_leaders(connection.producer, now)

    def _request_leaders(self, producer: Producer, now: float) -> None:
        """Request the leaders over a connection of the producer, unless they were requested
        recently.
        """
        ways = [c for c in producer.connections.values() if c.is_open and not c.unwritten]
        if ways and self._leaders_request is None and now >= self._leaders_from_s:
            connection = min(ways, key=lambda each: len(each.in_flight))
            self._leaders_request = FindLeaders()
            self._requests.append(SendControlRequest(connection, self._leaders_request))

    # --- batches ------------------------------------------------------------

    def _acknowledge(self, producer: Producer, batch: Batch, now: float) -> None:
        account, records = self._account, batch.records
        payload_bytes = batch.section.payload_of(records)
        account.count_acked(
            producer.index, batch.partition, batch.due_s, records, payload_bytes, now
        )
        account.log_bytes += batch.size
        if producer.id_state is not None:
            producer.id_state.acknowledge(batch)
        if producer.transactions is not None:
            producer.transactions.acked_records += records
            self._transactions.settle(producer, producer.transactions, now)
        if batch.trouble is not None:
            if batch.trouble.copies:
                copied = batch.trouble.copies * records
                account.count_duplicates(producer.index, batch.partition, copied)
            self._accumulator.end_retry(producer, batch, now)

    def _handle_error(self, producer: Producer, batch: Batch, code: int, now: float) -> bool:
        """Handle a broker's error code for a batch; True if the broker already has the batch."""
        self._account.refused += 1
        state = producer.id_state
        if state is not None and code == DUPLICATE_SEQUENCE:
            return True
        if state is not None and code in SEQUENCE_ERRORS:
            # "Out of order" is expected after a failed batch, but not for the next batch in order.
            is_broken = code != OUT_OF_ORDER_SEQUENCE or state.is_next(batch)
            if is_broken and state.is_current(batch):
                if producer.transactions is not None:
                    self._fail(producer, batch, for_code(code).__name__, now)
                    return False
                self._accumulator.restart_sequence(producer, batch.partition)
        refusal = Refusal.of(code, self._options, state is not None)
        self._retry_or_fail(producer, batch, refusal, now)
        if refusal.leader_moved:
            self._request_leaders(producer, now)
        return False

    def _retry_or_fail(self, producer: Producer, batch: Batch, why: Refusal, now: float) -> None:
        trouble = batch.trouble = batch.trouble or Trouble()
        trouble.failures += 1
        trouble.error = why.error
        if why.is_unsure and producer.id_state is None:
            trouble.copies += 1
        trouble.is_unsure |= why.is_unsure
        is_overdue = now >= batch.due_s + self._timeout_s
        is_given_up = (
            self._accumulator.is_over or is_overdue or trouble.failures > self._options.retries
        )
        is_given_up |= producer.transactions is not None and producer.transactions.is_failed
        if not why.is_retriable or is_given_up:
            self._fail(producer, batch, why.error, now)
            return
        accumulator = self._accumulator
        queue = accumulator.mute(accumulator.queue_of(producer, batch.partition, now), now)
        wait_s = backoff_s(self._options, trouble.failures, self._rng)
        accumulator.put_back(queue, batch, now + wait_s)
        if producer.id_state is not None:
            producer.id_state.renew(batch)

    def _fail(self, producer: Producer, batch: Batch, error: str, now: float) -> None:
        self._accumulator.count_failed(producer, batch, error, now)
        trouble = batch.trouble
        if trouble is not None:
            # The last copy of an idempotent producer's batch counts when its epoch is over.
            last = 1 if trouble.is_unsure and producer.id_state is not None else 0
            copied = (trouble.copies + last - 1) * batch.records  # one copy counts as failed
            if copied > 0:
                self._account.count_duplicates(producer.index, batch.partition, copied)
            self._accumulator.end_retry(producer, batch, now)
        if producer.transactions is not None:
            self._transactions.abort(producer, producer.transactions, now)
            return
        state = producer.id_state
        if state is not None and not self._accumulator.is_over and state.is_current(batch):
            is_unsure = trouble is not None and trouble.is_unsure
            if is_unsure or not state.withdraw(batch):
                self._accumulator.restart_sequence(producer, batch.partition)
