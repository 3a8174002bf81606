"""What goes over a connection: requests out by scatter-gather, answers in, losses accounted."""

from __future__ import annotations

import selectors
from collections.abc import Callable

from kafka.errors import for_code

from jobs.engine.batches import BatchPool
from jobs.engine.pattern import ProducerPattern
from jobs.engine.producer import Batch, Connection, Producer
from jobs.engine.protocol import Buffer, decode_produce_response
from jobs.engine.statistics import Account

_RECEIVE_BYTES = 262_144
_BATCHES_PER_REQUEST = 400  # two buffers each, below the 1,024 that sendmsg takes


class Exchange:
    """Sends batches and takes answers for the connections of one task.

    Args:
        account: where every record ends up.
        wall_offset_s: what to add to the clock for seconds since the epoch.
        resume: called with a producer that may go on, because a connection has room again
            or is lost, and with the time.

    Attributes:
        is_open: False once nothing new may be sent.
        unanswered: requests that wait for an answer.
        unflushed: connections whose socket has not taken all of a request.
    """

    def __init__(
        self,
        pattern: ProducerPattern,
        pool: BatchPool,
        account: Account,
        clock: Callable[[], float],
        wall_offset_s: float,
        resume: Callable[[Producer, float], None],
    ) -> None:
        self._pattern = pattern
        self._pool = pool
        self._account = account
        self._clock = clock
        self._wall_offset_s = wall_offset_s
        self._resume = resume
        self._selector = selectors.DefaultSelector()
        self._receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.is_open = True
        self.unanswered = 0
        self.unflushed = 0

    @property
    def has_work(self) -> bool:
        """True while something may be sent or is still to be answered."""
        return self.is_open or self.unanswered > 0 or self.unflushed > 0

    def add(self, connection: Connection) -> None:
        """Listen to a connection's answers."""
        self._selector.register(connection.transport, selectors.EVENT_READ, connection)

    def close(self) -> None:
        """Stop listening; the sockets stay open."""
        self._selector.close()

    def wait(self, timeout_s: float) -> float:
        """Handle what the sockets are ready for, waiting at most so long for the first [s].

        Returns how long it waited [s].
        """
        began_s = self._clock()
        events = self._selector.select(timeout_s)
        waited_s = self._clock() - began_s
        for key, mask in events:
            if mask & selectors.EVENT_WRITE:
                self._flush(key.data)
            if mask & selectors.EVENT_READ and not key.data.closed:
                self._receive(key.data)
        return waited_s

    def send(self, connection: Connection, batches: list[Batch], now: float) -> None:
        """Send these batches as one request; the connection must have room."""
        producer, take = connection.producer, self._pool.take
        wire, records_sent = [], 0
        for partition, first, records in batches:
            timestamp_ms = int((producer.due_s(first) + self._wall_offset_s) * 1000)
            wire.append((partition, *take(records, timestamp_ms)))
            records_sent += records
        connection.correlation_id += 1
        buffers = connection.encoder.encode(connection.correlation_id, wire)
        self._account.sent(records_sent, now)
        if self._pattern.acks != 0:
            connection.in_flight.append((connection.correlation_id, now, batches))
            self.unanswered += 1
        if self._transmit(connection, buffers) and self._pattern.acks == 0:
            for partition, first, records in batches:
                self._account.acked(partition, producer.due_s(first), records, now)

    def _transmit(self, connection: Connection, buffers: list[Buffer]) -> bool:
        """Hand the buffers to the socket, keeping what it does not take; False if it is lost."""
        try:
            taken = connection.transport.send(buffers)
        except OSError as error:
            self.lose(connection, type(error).__name__)
            return False
        rest = drop_bytes(buffers, taken)
        if bool(rest) != bool(connection.unwritten):
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if rest else 0)
            self._selector.modify(connection.transport, mask, connection)
            self.unflushed += 1 if rest else -1
        connection.unwritten = rest
        return True

    def _flush(self, connection: Connection) -> None:
        if self._transmit(connection, connection.unwritten) and not connection.unwritten:
            self._fill(connection, self._clock())

    def _fill(self, connection: Connection, now: float) -> None:
        """The connection has room: send what waits for it, oldest first, then go on."""
        producer, resume = connection.producer, False
        while self.is_open and connection.has_room:
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
            self.send(connection, batches, now)
        if producer.blocked and producer.buffered_bytes < self._pattern.buffer_memory:
            producer.blocked = False
            resume = True
        if resume:
            self._resume(producer, now)

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
            if batches and size + batch_bytes > self._pattern.max_request_size:
                break
            batches.append(connection.queue.popleft())
            partitions.add(partition)
            size += batch_bytes
        connection.producer.buffered_bytes -= size
        return batches

    def _receive(self, connection: Connection) -> None:
        try:
            size = connection.transport.receive_into(self._receive_buffer)
        except OSError as error:
            self.lose(connection, type(error).__name__)
            return
        if size is None:
            return
        if size == 0:
            self.lose(connection, "ConnectionClosed")
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
            self.lose(connection, "CorrelationIdError")
            return
        _correlation_id, _sent_s, batches = connection.in_flight.popleft()
        self.unanswered -= 1
        self._account.throttle_ms += result.throttle_ms
        producer = connection.producer
        for partition, first, records in batches:
            code = result.errors.get(partition, -1)
            if code == 0:
                self._account.acked(partition, producer.due_s(first), records, now)
            else:
                self._account.failed(for_code(code).__name__, records, now)

    def lose(self, connection: Connection, error: str) -> None:
        """The connection is gone: account for all that it held. It is not opened again."""
        now = self._clock()
        if connection.closed:
            return
        connection.closed = True
        self._selector.unregister(connection.transport)
        connection.transport.close()
        lost = [b for _, _, batches in connection.in_flight for b in batches]
        self.unanswered -= len(connection.in_flight)
        self.unflushed -= 1 if connection.unwritten else 0
        producer = connection.producer
        for _partition, _first, records in connection.queue:
            producer.buffered_bytes -= self._pool.size_of(records)
        for _partition, _first, records in [*lost, *connection.queue]:
            self._account.failed(error, records, now)
        connection.in_flight.clear()
        connection.queue.clear()
        connection.unwritten = []
        if connection.open_batch_waits or producer.blocked:
            connection.open_batch_waits = producer.blocked = False
            self._resume(producer, now)


def drop_bytes(buffers: list[Buffer], count: int) -> list[Buffer]:
    """What is left of the buffers after `count` bytes."""
    for position, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[position + 1 :]]
        count -= len(buffer)
    return []
