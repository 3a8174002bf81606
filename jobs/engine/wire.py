"""The event loop that makes one task act as many producers.

One thread, one selector. Every producer has one place in a heap of due times; a due batch
goes to its connection's socket at once by scatter-gather, or waits there while the
connection has no room (`max_in_flight` requests unanswered, or the socket full). The
schedule is open loop: a slow broker never slows it down, it only makes batches wait, and
latency counts from the time at which a record was due.
"""

from __future__ import annotations

import gc
import heapq
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping

from kafka.errors import for_code

from jobs.engine.batches import BatchPool
from jobs.engine.pattern import TrialPlan
from jobs.engine.producer import Batch, Connection, Producer
from jobs.engine.protocol import Buffer, ProduceEncoder, decode_produce_response
from jobs.engine.statistics import Account
from search.errors import RedlineError

_GOLDEN = 0.6180339887498949
_RECEIVE_BYTES = 262_144
_BATCHES_PER_REQUEST = 400  # two buffers each, below the 1,024 that sendmsg takes
_EVENTS_PER_TURN = 256
_CHECK_INTERVAL_S = 0.5
_NEVER = float("inf")

UNACKNOWLEDGED = "Unacknowledged"
"""Error name of records that were sent and not answered by the end of the drain."""


class OrphanedError(RedlineError):
    """The process that asked for the load is gone, so the load must end."""


class WireLoop:
    """The producers of one task, from their first record to the last acknowledgement."""

    def __init__(
        self,
        plan: TrialPlan,
        task: int,
        sockets: Mapping[tuple[str, int], socket.socket],
        pool: BatchPool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._task = task
        self._sockets = sockets
        self._pool = pool
        self._clock = clock
        self._heap: list[tuple[float, int, Producer]] = []
        self._selector = selectors.DefaultSelector()
        self._receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._waited_s = 0.0
        self._unanswered = 0
        self._unflushed = 0
        self._sending = True
        self._parent = os.getppid()
        self._next_check_s = clock() + _CHECK_INTERVAL_S

    def run(self, start_s: float, wall_offset_s: float) -> WireLoop:
        """Send from `start_s` on, through warm-up and window, then drain.

        Args:
            start_s: when the schedule begins, on this loop's clock [s].
            wall_offset_s: what to add to this clock for seconds since the epoch.

        Raises:
            OrphanedError: the parent process died; nothing more is sent.
        """
        plan, pattern = self._plan, self._plan.pattern
        self._wall_offset_s = wall_offset_s
        self.window_start_s = start_s + plan.warmup_s
        self.window_end_s = self.window_start_s + plan.measure_s
        interval_s = 1.0 / pattern.rate_records_per_s
        self.account = Account(self.window_start_s, self.window_end_s, interval_s)
        self.producers = [self._producer(i, start_s) for i in plan.producers_of(self._task)]
        was_enabled = gc.isenabled()
        gc.disable()  # nothing here makes cycles, and a collection would stall the schedule
        try:
            self._run_phases()
        finally:
            if was_enabled:
                gc.enable()
            self._selector.close()
        return self

    def _producer(self, index: int, start_s: float) -> Producer:
        plan, pattern = self._plan, self._plan.pattern
        # Producers start together but out of step, or their batches would arrive in bursts.
        phase_s = pattern.batch_interval_s * (index * _GOLDEN % 1.0)
        producer = Producer(
            index,
            pattern,
            self._pool.records_per_full_batch,
            len(plan.leaders),
            start_s + phase_s,
        )
        client_id = client_id_of(plan, index)
        encoder = ProduceEncoder(plan.topic, client_id, pattern.acks, pattern.request_timeout_ms)
        for broker in plan.brokers:
            sock = self._sockets[client_id, broker]
            connection = Connection(sock, encoder, producer, pattern.max_in_flight)
            producer.connections[broker] = connection
            self._selector.register(sock, selectors.EVENT_READ, connection)
        self._schedule(producer, producer.ready_s)
        return producer

    def _run_phases(self) -> None:
        self._turn_until(self.window_start_s)
        cpu_s, waited_s = time.thread_time(), self._waited_s
        self._turn_until(self.window_end_s)
        self.cpu_s = time.thread_time() - cpu_s
        self.loop_busy = 1.0 - (self._waited_s - waited_s) / self._plan.measure_s
        self.unsent_own_records = sum(self._unsent_own(p) for p in self.producers)
        self._sending = False
        self._heap.clear()
        self._turn_until(self.window_end_s + self._plan.drain_timeout_s)
        self.drain_s = self._clock() - self.window_end_s
        for connection in self._connections():
            if connection.in_flight:
                self._lose(connection, UNACKNOWLEDGED)
        self.account.latency.fold()
        self.account.lateness.fold()

    def _connections(self) -> list[Connection]:
        return [c for p in self.producers for c in p.connections.values()]

    def _unsent_own(self, producer: Producer) -> int:
        connection = producer.connections[self._plan.leaders[producer.partition]]
        if producer.blocked or connection.queue or not connection.has_room:
            return 0
        if producer.ready_s > self.window_end_s:
            return 0
        return producer.records_due_between(producer.due_s(producer.opened), self.window_end_s)

    @property
    def _has_work(self) -> bool:
        return self._sending or self._unanswered > 0 or self._unflushed > 0

    # --- time ---------------------------------------------------------------

    def _schedule(self, producer: Producer, at_s: float) -> None:
        producer.scheduled_s = at_s
        if at_s < self.window_end_s:
            heapq.heappush(self._heap, (at_s, producer.index, producer))

    def _turn_until(self, end_s: float) -> None:
        clock, heap, select = self._clock, self._heap, self._selector.select
        while (now := clock()) < end_s and self._has_work:
            for _ in range(_EVENTS_PER_TURN):
                if not heap or heap[0][0] > now or now >= end_s:
                    break
                at_s, _index, producer = heapq.heappop(heap)
                if at_s == producer.scheduled_s:
                    self._advance(producer, now)
                now = clock()
            if now >= self._next_check_s:
                self._check(now)
                self._next_check_s = now + _CHECK_INTERVAL_S
            wake_s = min(end_s, self._next_check_s, heap[0][0] if heap else _NEVER)
            timeout_s = wake_s - now
            events = select(timeout_s if timeout_s > 0 else 0)
            if timeout_s > 0:
                self._waited_s += clock() - now
            for key, mask in events:
                if mask & selectors.EVENT_WRITE:
                    self._flush(key.data)
                if mask & selectors.EVENT_READ and not key.data.closed:
                    self._receive(key.data)

    def _check(self, now: float) -> None:
        if os.getppid() != self._parent:
            raise OrphanedError("the process that started this load has ended, so it stops too")
        timeout_s = self._plan.pattern.request_timeout_ms / 1000.0
        for connection in self._connections():
            if connection.in_flight and now - connection.in_flight[0][1] > timeout_s:
                self._lose(connection, "RequestTimedOutError")

    # --- sending ------------------------------------------------------------

    def _advance(self, producer: Producer, now: float) -> None:
        """Send or queue every batch of this producer that is ready, and set its next event."""
        leaders = self._plan.leaders
        while (ready_s := producer.ready_s) <= now and ready_s < self.window_end_s:
            connection = producer.connections[leaders[producer.partition]]
            if connection.closed:
                records = producer.records_by(ready_s)
                producer.seal(records, self._pool.size_of(records))
                self.account.failed("NotConnected", records, now)
            elif connection.has_room and not connection.queue:
                records = producer.records_by(ready_s)
                batch = producer.seal(records, self._pool.size_of(records))
                connection.open_batch_waits = False
                self.account.late(now - ready_s, records, now)
                self._send(connection, [batch], now)
            elif producer.full_s <= now:
                size = self._pool.size_of(producer.full_records)
                connection.queue.append(producer.seal(producer.full_records, size))
                connection.open_batch_waits = False
                producer.buffered_bytes += size
                if producer.buffered_bytes >= self._plan.pattern.buffer_memory:
                    producer.blocked = True
                    producer.scheduled_s = _NEVER
                    return
            else:
                connection.open_batch_waits = True
                self._schedule(producer, producer.full_s)
                return
        self._schedule(producer, producer.ready_s)

    def _send(self, connection: Connection, batches: list[Batch], now: float) -> None:
        producer, take = connection.producer, self._pool.take
        wire, records_sent = [], 0
        for partition, first, records in batches:
            timestamp_ms = int((producer.due_s(first) + self._wall_offset_s) * 1000)
            wire.append((partition, *take(records, timestamp_ms)))
            records_sent += records
        connection.correlation_id += 1
        buffers = connection.encoder.encode(connection.correlation_id, wire)
        self.account.sent(records_sent, now)
        if self._plan.pattern.acks != 0:
            connection.in_flight.append((connection.correlation_id, now, batches))
            self._unanswered += 1
        if self._transmit(connection, buffers) and self._plan.pattern.acks == 0:
            for partition, first, records in batches:
                self.account.acked(partition, producer.due_s(first), records, now)

    def _transmit(self, connection: Connection, buffers: list[Buffer]) -> bool:
        """Hand the buffers to the socket, keeping what it does not take; False if it is lost."""
        try:
            taken = connection.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            taken = 0
        except OSError as error:
            self._lose(connection, type(error).__name__)
            return False
        rest = drop_bytes(buffers, taken)
        if bool(rest) != bool(connection.unwritten):
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if rest else 0)
            self._selector.modify(connection.sock, mask, connection)
            self._unflushed += 1 if rest else -1
        connection.unwritten = rest
        return True

    def _flush(self, connection: Connection) -> None:
        if self._transmit(connection, connection.unwritten) and not connection.unwritten:
            self._fill(connection, self._clock())

    def _fill(self, connection: Connection, now: float) -> None:
        """The connection has room: send what waits for it, oldest first, then go on."""
        producer, resume = connection.producer, False
        while self._sending and connection.has_room:
            batches = self._gather(connection)
            if (
                connection.open_batch_waits
                and not connection.queue
                and len(batches) < _BATCHES_PER_REQUEST
                and all(partition != producer.partition for partition, _, _ in batches)
            ):
                records = producer.records_by(now)
                batches.append(producer.seal(records, self._pool.size_of(records)))
                connection.open_batch_waits = False
                resume = True
            if not batches:
                break
            self._send(connection, batches, now)
        if producer.blocked and producer.buffered_bytes < self._plan.pattern.buffer_memory:
            producer.blocked = False
            resume = True
        if resume:
            self._advance(producer, now)

    def _gather(self, connection: Connection) -> list[Batch]:
        """Take queued batches for one request: one per partition, up to the request size."""
        batches: list[Batch] = []
        partitions: set[int] = set()
        size = 0
        while connection.queue and len(batches) < _BATCHES_PER_REQUEST:
            partition, _first, records = connection.queue[0]
            batch_bytes = self._pool.size_of(records)
            if partition in partitions:
                break
            if batches and size + batch_bytes > self._plan.pattern.max_request_size:
                break
            batches.append(connection.queue.popleft())
            partitions.add(partition)
            size += batch_bytes
        connection.producer.buffered_bytes -= size
        return batches

    # --- receiving ----------------------------------------------------------

    def _receive(self, connection: Connection) -> None:
        try:
            size = connection.sock.recv_into(self._receive_buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(connection, type(error).__name__)
            return
        if size == 0:
            self._lose(connection, "ConnectionClosed")
            return
        now = self._clock()
        for frame in connection.reader.feed(self._receive_buffer[:size]):
            self._answer(connection, frame, now)
            if connection.closed:
                return
        self._fill(connection, now)

    def _answer(self, connection: Connection, frame: memoryview, now: float) -> None:
        result = decode_produce_response(frame)
        if not connection.in_flight or connection.in_flight[0][0] != result.correlation_id:
            self._lose(connection, "CorrelationIdError")
            return
        _correlation_id, _sent_s, batches = connection.in_flight.popleft()
        self._unanswered -= 1
        self.account.throttle_ms += result.throttle_ms
        producer = connection.producer
        for partition, first, records in batches:
            code = result.errors.get(partition, -1)
            if code == 0:
                self.account.acked(partition, producer.due_s(first), records, now)
            else:
                self.account.failed(for_code(code).__name__, records, now)

    def _lose(self, connection: Connection, error: str) -> None:
        """The connection is gone: account for all that it held. It is not opened again."""
        now = self._clock()
        if connection.closed:
            return
        connection.closed = True
        self._selector.unregister(connection.sock)
        connection.sock.close()
        lost = [b for _, _, batches in connection.in_flight for b in batches]
        self._unanswered -= len(connection.in_flight)
        self._unflushed -= 1 if connection.unwritten else 0
        producer = connection.producer
        for _partition, _first, records in connection.queue:
            producer.buffered_bytes -= self._pool.size_of(records)
        for _partition, _first, records in [*lost, *connection.queue]:
            self.account.failed(error, records, now)
        connection.in_flight.clear()
        connection.queue.clear()
        connection.unwritten = []
        if connection.open_batch_waits or producer.blocked:
            connection.open_batch_waits = producer.blocked = False
            self._schedule(producer, max(now, producer.ready_s))


def client_id_of(plan: TrialPlan, index: int) -> str:
    """The client id of a producer, unique in the trial."""
    return f"redline-{plan.trial_id}-{index}"


def drop_bytes(buffers: list[Buffer], count: int) -> list[Buffer]:
    """What is left of the buffers after `count` bytes."""
    for position, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[position + 1 :]]
        count -= len(buffer)
    return []
