"""What becomes of batches that were not acknowledged: sent again, or given up by name.

The rules are those of Kafka's own producer: an error that may pass is retried after a
back-off until `retries` or `delivery_timeout_ms` are used up, leaders are asked for again
when they may have moved, and an idempotent producer keeps a batch's sequence.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterable
from typing import Protocol

from kafka.errors import for_code

from jobs.engine.batch import EXPIRED, Batch, Trouble
from jobs.engine.lane import Lane, backoff_s
from jobs.engine.pattern import ProducerPattern
from jobs.engine.producer import Connection, Producer
from jobs.engine.routes import Post, Routes
from jobs.engine.statistics import Account

_NEVER = float("inf")
_NOT_LEADER = 6
_OUT_OF_ORDER_SEQUENCE = 45
_DUPLICATE_SEQUENCE = 46
_SEQUENCE_ERRORS = frozenset({_OUT_OF_ORDER_SEQUENCE, 47, 59})  # 47 epoch, 59 producer id
_MAYBE_WRITTEN = frozenset({7, 20, 56})  # time-out, too few replicas after append, storage


class _Exchange(Post, Protocol):
    """What redelivery needs of the exchange."""

    def send(self, connection: Connection, batches: list[Batch], now: float) -> None:
        """Send these batches as one request."""
        ...

    def fill(self, connection: Connection, now: float) -> None:
        """Send what waits for this connection, as far as it has room."""
        ...

    def unblock(self, producer: Producer, now: float) -> None:
        """Let the producer go on if its memory allows it."""
        ...


class Redelivery:
    """Keeps the partitions that are held up, of all producers of a task.

    Attributes:
        routes: the leaders, and the ways to them.
        pending: batches that wait to be sent again.
    """

    def __init__(
        self,
        pattern: ProducerPattern,
        account: Account,
        exchange: _Exchange,
        routes: Routes,
        rng: random.Random,
    ) -> None:
        self._pattern = pattern
        self._account = account
        self._exchange = exchange
        self.routes = routes
        self._rng = rng
        self._timeout_s = pattern.delivery_timeout_ms / 1000.0
        self._heap: list[tuple[float, int, Lane]] = []
        self._order = itertools.count()
        self._is_over = False
        self.pending = 0

    # --- what happened ------------------------------------------------------

    def refused(self, producer: Producer, batch: Batch, code: int, now: float) -> bool:
        """A broker answered with this error code; True when it means that it has the batch."""
        if code == _DUPLICATE_SEQUENCE and producer.identity is not None:
            return True
        error = for_code(code)
        is_retriable: bool = error.retriable
        identity = producer.identity
        if identity is not None and code in _SEQUENCE_ERRORS:
            is_retriable = True
            # Out of order is no surprise behind a batch that failed; of the next one it is.
            is_lost = code != _OUT_OF_ORDER_SEQUENCE or identity.is_next(batch)
            if is_lost and identity.is_current(batch):
                self._start_again(producer, batch.partition)
        is_unsure = code in _MAYBE_WRITTEN or (code == _NOT_LEADER and self._pattern.acks == -1)
        self._take_back(producer, batch, error.__name__, is_retriable, is_unsure, now)
        if error.invalid_metadata:
            self.routes.refresh(producer, self._exchange)
        return False

    def lost(
        self, connection: Connection, batches: Iterable[Batch], error: str, has_question: bool
    ) -> None:
        """The connection is gone, and with it the answers of these batches."""
        now, producer = self.routes.now(), connection.producer
        if has_question:
            self.routes.forget_question()
        for batch in batches:
            self._take_back(producer, batch, error, True, True, now)
        if self._is_over:
            return
        for partition in list(connection.queue.partitions):
            self.hold(producer, partition, now)
        if connection.open_batch_waits:
            connection.open_batch_waits = False
            self.hold(producer, producer.partition, now).open_batch_waits = True
        for lane in connection.lanes:
            self._schedule(lane, now)
        connection.lanes = []
        self.routes.refresh(producer, self._exchange)

    def answered(self, producer: Producer, batch: Batch, now: float) -> None:
        """A batch of a producer with held partitions was acknowledged."""
        lane = producer.held.get(batch.partition)
        if lane is not None and lane.under_way is batch:
            lane.under_way = None
            lane.not_before_s = now
            self._schedule(lane, now)

    def hold(self, producer: Producer, partition: int, now: float) -> Lane:
        """Nothing can be sent to this partition for now."""
        lane = producer.held.get(partition)
        if lane is None:
            lane = producer.held[partition] = Lane(producer, partition)
            self._schedule(lane, now)
        return lane

    # --- what to do about it ------------------------------------------------

    @property
    def next_s(self) -> float:
        """When `run_due` has something to do."""
        return self._heap[0][0] if self._heap else _NEVER

    def run_due(self, now: float) -> None:
        """Go on with the lanes whose time has come."""
        if self.routes.take_changes():
            self._wake(now)
        while self._heap and self._heap[0][0] <= now:
            at_s, _, lane = heapq.heappop(self._heap)
            if lane.scheduled_s == at_s and lane.producer.held.get(lane.partition) is lane:
                self._go_on(lane, now)

    def serve(self, connection: Connection, now: float) -> None:
        """The connection has room: let a lane send that waits for it."""
        while connection.lanes and connection.has_room:
            self._go_on(connection.lanes.pop(0), now)

    def expire(self, connection: Connection, now: float) -> None:
        """Give up full batches that waited for the connection for too long."""
        producer = connection.producer
        for batch in connection.queue.take_overdue(now - self._timeout_s):
            producer.buffered_bytes -= batch.size
            self._fail(producer, batch, EXPIRED, now)

    def close(self, producers: Iterable[Producer], now: float) -> None:
        """The window is over: send nothing for the first time."""
        for producer in producers:
            for lane in list(producer.held.values()):
                lane.queue.clear()
                lane.open_batch_waits = False
                self._schedule(lane, max(now, lane.not_before_s))

    def end(self, producers: Iterable[Producer], now: float) -> None:
        """The drain is over: what is not acknowledged has failed."""
        self._is_over = True
        for producer in producers:
            for lane in producer.held.values():
                for batch in lane.again:
                    self._fail(producer, batch, batch.last_error, now)
                lane.again.clear()
        self.pending = 0

    # --- lanes --------------------------------------------------------------

    def _schedule(self, lane: Lane, at_s: float) -> None:
        lane.scheduled_s = at_s
        heapq.heappush(self._heap, (at_s, next(self._order), lane))

    def _wake(self, now: float) -> None:
        """There may be a way now for lanes that found none."""
        for lane in {id(lane): lane for _, _, lane in self._heap}.values():
            if lane.turns:
                lane.turns = 0
                self._schedule(lane, max(now, lane.not_before_s))

    def _go_on(self, lane: Lane, now: float) -> None:
        self._expire_lane(lane, now)
        if lane.under_way is not None:
            return
        producer = lane.producer
        connection = self.routes.connection_to(producer, lane.partition, self._exchange)
        if connection is None:
            lane.turns += 1
            self._schedule(lane, now + backoff_s(self._pattern, lane.turns, self._rng))
        elif not lane.again:
            self._release(lane, connection, now)
        elif now < lane.not_before_s:
            self._schedule(lane, lane.not_before_s)
        elif not connection.has_room:
            connection.lanes.append(lane)
        else:
            self._send_again(lane, connection, now)

    def _send_again(self, lane: Lane, connection: Connection, now: float) -> None:
        producer, batch = lane.producer, lane.again.pop(0)
        self.pending -= 1
        producer.buffered_bytes -= batch.size
        self._account.retried(producer.index, batch.partition, batch.last_error, batch.records)
        lane.under_way = batch
        self._exchange.send(connection, [batch], now)
        self._exchange.unblock(producer, now)

    def _release(self, lane: Lane, connection: Connection, now: float) -> None:
        """Nothing has to be sent again: what came later takes the usual way."""
        producer = lane.producer
        del producer.held[lane.partition]
        connection.queue.extend(lane.queue)
        if lane.open_batch_waits and producer.partition == lane.partition:
            connection.open_batch_waits = True
        self._exchange.fill(connection, now)

    def _expire_lane(self, lane: Lane, now: float) -> None:
        for batch in lane.take_overdue(now - self._timeout_s):
            lane.producer.buffered_bytes -= batch.size
            self.pending -= 1 if batch.trouble else 0
            self._fail(lane.producer, batch, batch.last_error, now)
        self._exchange.unblock(lane.producer, now)

    # --- batches ------------------------------------------------------------

    def _take_back(
        self,
        producer: Producer,
        batch: Batch,
        error: str,
        is_retriable: bool,
        is_unsure: bool,
        now: float,
    ) -> None:
        trouble = batch.trouble = batch.trouble or Trouble()
        trouble.failures += 1
        trouble.error = error
        if is_unsure and producer.identity is None:
            trouble.copies += 1
        trouble.is_unsure |= is_unsure
        is_overdue = now >= batch.due_s + self._timeout_s
        is_given_up = self._is_over or is_overdue or trouble.failures > self._pattern.retries
        if not is_retriable or is_given_up:
            self._fail(producer, batch, error, now)
            return
        lane = self.hold(producer, batch.partition, now)
        lane.put_back(batch)
        if producer.identity is not None:
            producer.identity.renew(batch)
        self.pending += 1
        producer.buffered_bytes += batch.size
        lane.not_before_s = now + backoff_s(self._pattern, trouble.failures, self._rng)
        self._schedule(lane, lane.not_before_s)

    def _fail(self, producer: Producer, batch: Batch, error: str, now: float) -> None:
        self._account.failed(producer.index, batch.partition, error, batch.records, now)
        trouble = batch.trouble
        if trouble is not None and trouble.copies > 1:  # one of them counts as the failed
            copied = (trouble.copies - 1) * batch.records
            self._account.duplicated(producer.index, batch.partition, copied)
        lane = producer.held.get(batch.partition)
        if lane is not None and lane.under_way is batch:
            lane.under_way = None
            self._schedule(lane, now)
        identity = producer.identity
        if identity is not None and not self._is_over and identity.is_current(batch):
            is_unsure = trouble is not None and trouble.is_unsure
            if is_unsure or not identity.withdraw(batch):
                self._start_again(producer, batch.partition)

    def _start_again(self, producer: Producer, partition: int) -> None:
        """The sequence of this partition is broken: go on with a new one."""
        identity, lane = producer.identity, producer.held.get(partition)
        if identity is None:
            return
        identity.start_again(partition)
        for batch in lane.again if lane is not None else ():
            identity.renew(batch)
