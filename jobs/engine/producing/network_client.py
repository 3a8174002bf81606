"""Network client, which carries out the delivery's actions on the sockets of one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jobs.engine.batches.sections import NO_STAMP
from jobs.engine.network.connections import Connector
from jobs.engine.network.pacing import Key
from jobs.engine.network.reopening import Reopener
from jobs.engine.network.socket_watch import SocketWatch
from jobs.engine.network.sockets import Channel, Sockets
from jobs.engine.network.transport import Transport, correlation_id_of
from jobs.engine.producing.batch import UNACKNOWLEDGED, Batch
from jobs.engine.producing.delivery import Action, Delivery, Produce, Reopen, Replace
from jobs.engine.producing.producer import Connection
from jobs.engine.producing.protocol import (
    ControlRequest,
    FindLeaders,
    ProduceEncoder,
    Sender,
    decode_answer,
    decode_produce_response,
    encode_request,
)
from jobs.engine.producing.registration import Registration
from jobs.engine.task.plan import TrialPlan

_RECEIVE_BYTES = 262_144


class NetworkClient:
    """The connections of one task's producers; an `Owner` of their sockets.

    Args:
        connector: opens lost connections again.

    Attributes:
        sockets: the sockets of the connections.
        wall_offset_s: time since the epoch minus the time of the engine's clock [s].
    """

    _decider: Registration | Delivery

    def __init__(self, plan: TrialPlan, connector: Connector, clock: Callable[[], float]) -> None:
        options = plan.pattern.producer.options
        self._partitions = plan.partitions
        self._clock = clock
        self.wall_offset_s = 0.0
        self._is_answered = options.acks != "0"
        self._transaction_timeout_ms = options.transaction_timeout_ms
        self._connections: dict[Key, Connection] = {}
        self.sockets = Sockets(self, clock, _RECEIVE_BYTES)
        self._reopener = Reopener(connector, self.sockets.wake)

    def add(
        self,
        connections: Mapping[int, Connection],
        encoder: ProduceEncoder,
        transports: Mapping[Key, Transport],
    ) -> None:
        """Add the open connections of a producer: broker id → connection."""
        for broker, connection in connections.items():
            key = (connection.producer.name, broker)
            connection.encoder = encoder
            self._connections[key] = connection
            self.sockets.add(connection, transports[key])

    def follow(self, decider: Registration | Delivery) -> None:
        """From now on, carry out the actions of `decider`, and report events to `decider`.

        The function closes a connection with an unanswered request, because `decider` did not send
        the request and could not handle its response.

        Args:
            decider: the object that decides which requests are sent.
        """
        self._decider = decider
        for connection in self._connections.values():
            if connection.sent != connection.answered:
                self.sockets.lose(connection, UNACKNOWLEDGED)

    def watch(self) -> SocketWatch:
        """A watch of the sockets of all connections."""

        def unanswered(channel: Channel) -> tuple[int, bool]:
            assert isinstance(channel, Connection), "the channel is not a Connection"
            return len(channel.in_flight), channel.awaits_answers

        channels = [(each.broker, each) for each in self._connections.values()]
        return SocketWatch(channels, unanswered)

    def close(self) -> None:
        """Stop listening, and close all connections."""
        self._reopener.close()  # before the sockets, because the reopener wakes them
        self.sockets.close()
        for connection in self._connections.values():
            connection.close()

    def renew_sessions(self, now: float) -> None:
        """Open a successor for each connection whose session ends soon."""
        for key, connection in self._connections.items():
            if connection.needs_successor(now):
                self._reopener.request(key)

    # --- sending ------------------------------------------------------------

    def perform(self, action: Action) -> None:
        """Carry out an action that `Registration` or `Delivery` has decided."""
        connection = action.connection
        if isinstance(action, Produce):
            self._produce(connection, action.batches)
        elif isinstance(action, Reopen):
            self._reopener.request((connection.producer.name, connection.broker))
        elif isinstance(action, Replace):
            self.sockets.replace(connection)
            self._decider.handle_replaced(connection, self._clock())
        else:
            self._request(connection, action.request)

    def _request(self, connection: Connection, request: ControlRequest) -> None:
        producer, transport = connection.producer, connection.transport
        connection.sent += 1
        sender = Sender(connection.encoder.client_id)
        if producer.id_state is not None and producer.transactions is not None:
            ids = producer.id_state.producer_id, producer.id_state.epoch
            timeout_ms = self._transaction_timeout_ms
            sender = Sender(sender.client_id, producer.name, timeout_ms, *ids)
        versions = {} if transport is None else transport.versions
        data = encode_request(request, sender, self._partitions, connection.sent, versions)
        self.sockets.send(connection, [data])

    def _produce(self, connection: Connection, batches: Sequence[Batch]) -> None:
        producer, offset_s = connection.producer, self.wall_offset_s
        state, is_transactional = producer.id_state, producer.transactions is not None
        wire, stamp = [], NO_STAMP
        for batch in batches:
            if state is not None and batch.stamp is not None:
                stamp = (state.producer_id, *batch.stamp)
            at_ms = int((batch.due_s + offset_s) * 1000)
            header, body = batch.section.batch_of(batch.records, at_ms, stamp, is_transactional)
            wire.append((batch.partition, header, body))
        if self._is_answered:
            connection.sent += 1
        request = connection.encoder.encode(connection.sent, wire)
        is_taken = self.sockets.send(connection, request)
        if is_taken and not self._is_answered:
            self._delivery.handle_written(connection, self._clock())

    @property
    def _delivery(self) -> Delivery:
        assert isinstance(self._decider, Delivery), "batches were sent before registration ended"
        return self._decider

    # --- receiving ----------------------------------------------------------

    def handle_received(self, connection: Connection, data: memoryview, now: float) -> None:
        """Handle all complete responses; see `Owner`."""
        for frame in connection.reader.feed(data):
            connection.answered += 1
            if not connection.in_flight or correlation_id_of(frame) != connection.answered:
                self.sockets.lose(connection, "CorrelationIdError")
                return
            request = connection.in_flight[0][1]
            if isinstance(request, list):
                errors, throttle_ms = decode_produce_response(frame, connection.encoder.first)
                self._delivery.handle_produce_response(connection, errors, throttle_ms, now)
                continue
            versions = {} if connection.transport is None else connection.transport.versions
            code, answer = decode_answer(frame, request, self._partitions, versions)
            if isinstance(request, FindLeaders):
                self._delivery.handle_metadata(connection, answer, now)
            else:
                self._decider.handle_coordinator_response(connection, code, answer, now)

    def handle_flushed(self, connection: Connection, now: float) -> None:
        """Report to `Registration` or `Delivery` that all bytes were taken; see `Owner`."""
        self._decider.handle_flushed(connection)

    def handle_lost(self, connection: Connection, error: str, now: float) -> None:
        """Report the lost connection to `Registration` or `Delivery`; see `Owner`."""
        self._decider.handle_lost(connection, error, now)

    def handle_woken(self) -> None:
        """Take the reopened connections; see `Owner`."""
        for key, transport in self._reopener.take():
            connection = self._connections[key]
            connection.successor = transport
            self._decider.handle_reopened(connection)
