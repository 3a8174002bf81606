"""Network client that carries out the delivery's actions over the sockets of one task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from jobs.engine.batches.pool import BatchPool
from jobs.engine.batches.sections import NO_STAMP
from jobs.engine.network.pacing import Key
from jobs.engine.network.reopening import Reopener
from jobs.engine.network.socket_watch import SocketWatch
from jobs.engine.network.transport import (
    Buffer,
    Channel,
    FrameReader,
    Sockets,
    Transport,
    correlation_id_of,
)
from jobs.engine.producing.control_requests import (
    TransactionalId,
    coordinator_answer,
    coordinator_request,
    leaders_in,
    metadata_request,
)
from jobs.engine.producing.delivery import Action, Delivery, Produce, Reopen, Replace
from jobs.engine.producing.producer import Connection, Producer
from jobs.engine.producing.protocol import ProduceEncoder, decode_produce_response
from jobs.engine.producing.transactions import CoordinatorRequest
from jobs.engine.task.plan import Partitions
from metrics.traffic.clients import ProducerOptions

_RECEIVE_BYTES = 262_144


class ProducerChannel(Channel):
    """The wire side of a `Connection`.

    Attributes:
        numbers: correlation ids of unanswered requests, oldest first.
        control_requests: unanswered requests to the coordinator, oldest first, and None for each
            metadata request.
    """

    __slots__ = ("connection", "control_requests", "correlation_id", "encoder", "numbers", "reader")
    is_parsed_whole = True

    def __init__(self, connection: Connection, encoder: ProduceEncoder) -> None:
        super().__init__()
        self.connection = connection
        self.encoder = encoder
        self.correlation_id = 0
        self.reset()

    def reset(self) -> None:
        """Begin on a fresh transport."""
        self.reader = FrameReader()
        self.numbers: deque[int] = deque()
        self.control_requests: deque[CoordinatorRequest | None] = deque()


class NetworkClient:
    """The connections of one task's producers; an `Owner` of their sockets.

    Args:
        wall_offset_s: what to add to the clock for seconds since the epoch.
        reopener: opens lost connections again.
    """

    def __init__(
        self,
        delivery: Delivery,
        pool: BatchPool,
        partitions: Partitions,
        reopener: Reopener,
        clock: Callable[[], float],
        wall_offset_s: float,
        options: ProducerOptions,
    ) -> None:
        self._delivery = delivery
        self._pool = pool
        self._partitions = partitions
        self._reopener = reopener
        self._clock = clock
        self._wall_offset_s = wall_offset_s
        self._is_answered = options.acks != "0"
        self._transaction_timeout_ms = options.transaction_timeout_ms
        self._channels: dict[Connection, ProducerChannel] = {}
        self._by_key: dict[Key, ProducerChannel] = {}
        self.sockets = Sockets(self, clock, _RECEIVE_BYTES)
        self.sockets.call_when_readable(reopener.fileno(), self._take_reopened)

    def add(
        self,
        connections: Mapping[int, Connection],
        encoder: ProduceEncoder,
        transports: Mapping[Key, Transport],
    ) -> None:
        """Add the open connections of a producer: broker id → connection."""
        for broker, connection in connections.items():
            key = (connection.producer.name, broker)
            channel = self._channels[connection] = ProducerChannel(connection, encoder)
            self._by_key[key] = channel
            self.sockets.add(channel, transports[key])

    def watch(self) -> SocketWatch:
        """A watch of the sockets of all connections."""

        def unanswered(channel: Channel) -> tuple[int, bool]:
            assert isinstance(channel, ProducerChannel), "nothing else was added"
            return len(channel.connection.in_flight), channel.connection.awaits_answers

        channels = [(each.broker, channel) for each, channel in self._channels.items()]
        return SocketWatch(channels, unanswered)

    def close(self) -> None:
        """Stop listening, and close all connections."""
        self.sockets.close()
        self._reopener.close()
        for channel in self._channels.values():
            channel.close()

    def renew_sessions(self, now: float) -> None:
        """Open a successor of each connection whose session ends soon."""
        for key, channel in self._by_key.items():
            if channel.needs_successor(now):
                self._reopener.request(key)

    # --- out ----------------------------------------------------------------

    def perform(self, action: Action) -> None:
        """Carry out an action of the delivery."""
        channel = self._channels[action.connection]
        if isinstance(action, Produce):
            self._produce(channel, action)
        elif isinstance(action, Reopen):
            self._reopener.request((action.connection.producer.name, action.connection.broker))
        elif isinstance(action, Replace):
            channel.reset()
            self.sockets.replace(channel)
            self._delivery.handle_replaced(action.connection, self._clock())
        else:
            self._request(channel, action.connection.producer, action.request)

    def _request(
        self, channel: ProducerChannel, producer: Producer, asked: CoordinatorRequest | None
    ) -> None:
        """Send a request to the coordinator, or with None for the leaders of partitions."""
        channel.correlation_id += 1
        channel.numbers.append(channel.correlation_id)
        channel.control_requests.append(asked)
        client_id, number = channel.encoder.client_id, channel.correlation_id
        if asked is None:
            request = metadata_request(self._partitions.topics, client_id, number)
        else:
            state, timeout_ms = producer.id_state, self._transaction_timeout_ms
            assert state is not None, "a producer with transactions is idempotent"
            own = TransactionalId(producer.name, timeout_ms, client_id)
            ids = (state.producer_id, state.epoch)
            request = coordinator_request(asked, own, ids, self._partitions, number)
        self._write(channel, [request])

    def _produce(self, channel: ProducerChannel, action: Produce) -> None:
        connection, take = action.connection, self._pool.take
        state, offset_s = connection.producer.id_state, self._wall_offset_s
        is_transactional = connection.producer.transactions is not None
        wire = []
        for batch in action.batches:
            at_ms, stamp = int((batch.due_s + offset_s) * 1000), NO_STAMP
            if state is not None and batch.stamp is not None:
                stamp = (state.producer_id, *batch.stamp)
            header, body = take(batch.section, batch.records, at_ms, stamp, is_transactional)
            wire.append((batch.partition, header, body))
        channel.correlation_id += 1
        buffers = channel.encoder.encode(channel.correlation_id, wire)
        if self._is_answered:
            channel.numbers.append(channel.correlation_id)
            self._write(channel, buffers)
        elif self._write(channel, buffers):
            self._delivery.handle_written(connection, self._clock())

    def _write(self, channel: ProducerChannel, buffers: list[Buffer]) -> bool:
        is_taken = self.sockets.send(channel, buffers)
        if channel.unwritten:
            self._delivery.mark_congested(channel.connection)
        return is_taken

    # --- in -----------------------------------------------------------------

    def handle_received(self, channel: Channel, data: memoryview, now: float) -> None:
        """Handle the complete answers; see `Owner`."""
        assert isinstance(channel, ProducerChannel), "nothing else was added"
        delivery, connection = self._delivery, channel.connection
        for frame in channel.reader.feed(data):
            numbers, in_flight = channel.numbers, connection.in_flight
            if not numbers or numbers.popleft() != correlation_id_of(frame):
                self.sockets.lose(channel, "CorrelationIdError")
                return
            if in_flight[0][1]:
                errors, throttle_ms = decode_produce_response(frame, channel.encoder.first)
                delivery.handle_produce_response(connection, errors, throttle_ms, now)
                continue
            request = channel.control_requests.popleft()
            if request is None:
                number = self._partitions.number
                named = ((number(*each), at) for each, at in leaders_in(frame).items())
                leaders = {each: at for each, at in named if each is not None}
                delivery.handle_metadata(connection, leaders, now)
            else:
                code, answer = coordinator_answer(frame, request)
                delivery.handle_coordinator_response(connection, code, answer, now)

    def handle_flushed(self, channel: Channel, now: float) -> None:
        """Report the flush to the delivery; see `Owner`."""
        assert isinstance(channel, ProducerChannel), "nothing else was added"
        self._delivery.mark_flushed(channel.connection)

    def handle_lost(self, channel: Channel, error: str, now: float) -> None:
        """Report the lost connection to the delivery; see `Owner`."""
        assert isinstance(channel, ProducerChannel), "nothing else was added"
        self._delivery.handle_lost(channel.connection, error, now)

    def lose(self, connection: Connection, error: str) -> None:
        """Close a connection that is no longer usable."""
        self.sockets.lose(self._channels[connection], error)

    def _take_reopened(self) -> None:
        for key, transport in self._reopener.take():
            channel = self._by_key[key]
            channel.successor = transport
            self._delivery.handle_reopened(channel.connection)
