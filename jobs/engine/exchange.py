"""What goes over a connection: requests out by scatter-gather, answers in, losses handed on."""

from __future__ import annotations

import random
import selectors
from collections.abc import Callable

from jobs.engine.batch import Batch
from jobs.engine.pattern import ProducerPattern
from jobs.engine.pool import BatchPool
from jobs.engine.producer import Connection, Producer
from jobs.engine.protocol import (
    Buffer,
    FrameReader,
    correlation_id_of,
    decode_produce_response,
    drop_bytes,
)
from jobs.engine.redelivery import Redelivery
from jobs.engine.routes import Routes
from jobs.engine.statistics import Account
from jobs.engine.transport import Transport

_RECEIVE_BYTES = 262_144
_BATCHES_PER_REQUEST = 400  # two buffers each, below the 1,024 that sendmsg takes


class Exchange:
    """Sends batches and takes answers for the connections of one task.

    Args:
        account: where every record ends up.
        wall_offset_s: what to add to the clock for seconds since the epoch.
        routes: the ways to the leaders.
        resume: called with a producer that may go on, because a connection has room again,
            and with the time.

    Attributes:
        redelivery: what becomes of batches that were not acknowledged.
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
        routes: Routes,
        resume: Callable[[Producer, float], None],
    ) -> None:
        self._pattern = pattern
        self._pool = pool
        self._account = account
        self._clock = clock
        self._wall_offset_s = wall_offset_s
        self._resume = resume
        rng = random.Random(pattern.payload_seed)
        self.redelivery = Redelivery(pattern, account, self, routes, rng)
        self._selector = selectors.DefaultSelector()
        self._receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.is_open = True
        self.unanswered = 0
        self.unflushed = 0

    @property
    def has_work(self) -> bool:
        """True while something may be sent or is still to be answered."""
        waiting = self.unanswered + self.unflushed + self.redelivery.pending
        return self.is_open or waiting > 0

    def add(self, connection: Connection) -> None:
        """Listen to a connection's answers."""
        self._selector.register(connection.transport, selectors.EVENT_READ, connection)

    def call_when_readable(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call whenever there is something to read from the file descriptor."""
        self._selector.register(descriptor, selectors.EVENT_READ, call)

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
            if type(key.data) is not Connection:
                key.data()
                continue
            if mask & selectors.EVENT_WRITE:
                self._flush(key.data)
            if mask & selectors.EVENT_READ and not key.data.closed:
                self._receive(key.data)
        return waited_s

    # --- out ----------------------------------------------------------------

    def send(self, connection: Connection, batches: list[Batch], now: float) -> None:
        """Send these batches as one request; the connection must have room."""
        producer, take = connection.producer, self._pool.take
        identity = producer.identity
        wire = []
        for batch in batches:
            timestamp_ms = int((batch.due_s + self._wall_offset_s) * 1000)
            if identity is None:
                parts = take(batch.section, batch.records, timestamp_ms)
            else:
                epoch, sequence = identity.stamp(batch)
                stamp = (identity.producer_id, epoch, sequence)
                parts = take(batch.section, batch.records, timestamp_ms, *stamp)
            wire.append((batch.partition, *parts))
            if batch.trouble is None:
                self._account.sent(producer.index, batch.partition, batch.records, now)
        connection.correlation_id += 1
        buffers = connection.encoder.encode(connection.correlation_id, wire)
        if self._pattern.acks != 0:
            connection.in_flight.append((connection.correlation_id, now, batches))
            self.unanswered += 1
        if self._transmit(connection, buffers) and self._pattern.acks == 0:
            for batch in batches:
                self._acknowledge(producer, batch, now)

    def ask(
        self,
        connection: Connection,
        request_of: Callable[[int], bytes],
        take: Callable[[memoryview], None],
    ) -> None:
        """Send a request that is no produce request.

        Args:
            request_of: makes the request of its correlation id.
            take: gets the answer.
        """
        connection.correlation_id += 1
        number = connection.correlation_id
        connection.asked[number] = take
        connection.in_flight.append((number, self._clock(), []))
        self._transmit(connection, [*connection.unwritten, request_of(number)])

    def settle(self, connection: Connection, request_of: Callable[[int], bytes]) -> None:
        """Await the answer to this request: the broker has then taken all that came before.

        With acks=0 nothing else tells, and a broker drops what it has not read yet when the
        connection is closed.
        """
        self.unanswered += 1
        self.ask(connection, request_of, self._settled)

    def _settled(self, _answer: memoryview) -> None:
        self.unanswered -= 1

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
            self.fill(connection, self._clock())

    def fill(self, connection: Connection, now: float) -> None:
        """The connection has room: send what waits for it, then go on."""
        producer, resume = connection.producer, False
        if connection.lanes:
            self.redelivery.serve(connection, now)
        while self.is_open and connection.has_room:
            batches = connection.take_batches(_BATCHES_PER_REQUEST, self._pattern.max_request_size)
            if (
                connection.open_batch_waits
                and not connection.queue
                and len(batches) < _BATCHES_PER_REQUEST
                and producer.partition not in producer.held
                and all(batch.partition != producer.partition for batch in batches)
            ):
                records = producer.records_by(now)
                batches.append(producer.seal(records))
                connection.open_batch_waits = False
                resume = True
            if not batches:
                break
            self.send(connection, batches, now)
        if resume:
            self._resume(producer, now)
        self.unblock(producer, now)

    def unblock(self, producer: Producer, now: float) -> None:
        """Let the producer go on if it was blocked and its memory has room again."""
        if producer.blocked and producer.buffered_bytes < self._pattern.buffer_memory:
            producer.blocked = False
            if self.is_open:
                self._resume(producer, now)

    # --- in -----------------------------------------------------------------

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
        self.fill(connection, now)

    def _answer(self, connection: Connection, frame: memoryview, now: float) -> None:
        number = correlation_id_of(frame)
        if not connection.in_flight or connection.in_flight[0][0] != number:
            self.lose(connection, "CorrelationIdError")
            return
        _number, _sent_s, batches = connection.in_flight.popleft()
        if not batches:
            connection.asked.pop(number)(frame)
            return
        result = decode_produce_response(frame, connection.encoder.first)
        self.unanswered -= 1
        self._account.counts.throttle_ms += result.throttle_ms
        producer = connection.producer
        for batch in batches:
            code = result.errors.get(batch.partition, -1)
            if code == 0 or self.redelivery.refused(producer, batch, code, now):
                self._acknowledge(producer, batch, now)

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
        if producer.identity is not None:
            producer.identity.acknowledge(batch)
        if batch.trouble is not None and batch.trouble.copies:
            copied = batch.trouble.copies * batch.records
            account.duplicated(producer.index, batch.partition, copied)
        if producer.held:
            self.redelivery.answered(producer, batch, now)

    def lose(self, connection: Connection, error: str) -> None:
        """The connection is gone: hand over all that it held."""
        if connection.closed:
            return
        connection.closed = True
        self._selector.unregister(connection.transport)
        connection.transport.close()
        lost = [b for _, _, batches in connection.in_flight for b in batches]
        self.unanswered -= sum(1 for _, _, batches in connection.in_flight if batches)
        self.unanswered -= sum(1 for take in connection.asked.values() if take == self._settled)
        self.unflushed -= 1 if connection.unwritten else 0
        connection.in_flight.clear()
        connection.unwritten = []
        has_question, connection.asked = bool(connection.asked), {}
        self.redelivery.lost(connection, lost, error, has_question)

    def reopen(self, connection: Connection, transport: Transport) -> None:
        """The lost connection has a new transport."""
        connection.transport = transport
        connection.reader = FrameReader()
        connection.closed = False
        self.add(connection)
