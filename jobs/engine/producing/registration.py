"""Registration of producers: producer ids and, for transactions, coordinators."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from kafka.errors import for_code

from jobs.engine.network.connections import broker_words
from jobs.engine.network.links import Address
from jobs.engine.producing.delivery import Reopen, Replace, SendControlRequest
from jobs.engine.producing.producer import NEVER, Connection, Producer
from jobs.engine.producing.protocol import CoordinatorRequest, FindCoordinator, InitProducerId
from metrics.common.errors import RedlineError

_RETRY_S = 0.05
"""Time before a request is sent again [s]."""


class ProducerIdError(RedlineError):
    """A producer did not get a producer id from a broker."""


class Registration:
    """The registration of producers. Each producer requests a producer id until it has one.

    Like `Delivery`, `Registration` decides which request is sent next, but does no I/O. Any broker
    can assign ids, from blocks of ids that it gets from the controller. A broker that waits for its
    next block of ids answers "loading". For a producer with transactions, the coordinator assigns
    an id and a new epoch, and aborts an open transaction. The coordinator answers only when no
    transaction of the producer is ending, so all transaction markers are then in the logs. If the
    coordinator is on a broker that joined after the connections were opened, no connection to it
    exists, and the coordinator is looked up again. Times are on the engine's clock [s].

    Args:
        deadline_s: time at which all producers must have their ids.
    """

    def __init__(self, producers: Sequence[Producer], now: float, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._due = deque((now, producer) for producer in producers)  # in the order of their times
        self._turns = {producer: turn for turn, producer in enumerate(producers)}
        self._coordinators: dict[Producer, int] = {}
        self._elsewhere: tuple[int, Address] | None = None
        self._is_lost = False
        ways = (way for each in producers for way in each.connections.values())
        self._replacing = deque(way for way in ways if way.has_successor and not way.is_open)

    @property
    def is_over(self) -> bool:
        """Whether all producers have their ids."""
        return not self._turns

    @property
    def next_s(self) -> float:
        """Time of the next action, if no event happens earlier."""
        return 0.0 if self._replacing else self._due[0][0] if self._due else NEVER

    def next(self, now: float) -> SendControlRequest | Reopen | Replace | None:
        """The action to carry out now; None if no action is due. `next_s` is the time of the next
        call.

        Raises:
            ProducerIdError: the deadline has passed.
        """
        if now > self._deadline_s and not self.is_over:
            raise ProducerIdError(self._describe_delay())
        if self._replacing:
            return Replace(self._replacing.popleft())
        while self._due and self._due[0][0] <= now:
            _, producer = self._due.popleft()
            request, connection = self._request_of(producer)
            if connection.is_open:
                connection.in_flight.append((now, request))
                return SendControlRequest(connection, request)
            self._due.append((now + _RETRY_S, producer))
            if not connection.is_wanted:
                connection.is_wanted = True
                return Reopen(connection)
        return None

    def _request_of(self, producer: Producer) -> tuple[CoordinatorRequest, Connection]:
        """The producer's next request, and the connection over which to send it."""
        if producer in self._coordinators:
            return InitProducerId(), producer.connections[self._coordinators[producer]]
        ways = [producer.connections[broker] for broker in sorted(producer.connections)]
        first = self._turns[producer] % len(ways)  # producers take turns, to spread the requests
        ways = ways[first:] + ways[:first]
        connection = next((each for each in ways if each.is_open), ways[0])
        return InitProducerId() if producer.transactions is None else FindCoordinator(), connection

    def handle_coordinator_response(
        self, connection: Connection, code: int, answer: Any, now: float
    ) -> None:
        """Handle the response to the oldest request; see `Delivery`.

        Raises:
            ProducerIdError: the broker refused the request, and a retry cannot succeed.
        """
        _sent_s, request = connection.in_flight.popleft()
        producer, self._is_lost = connection.producer, False
        if code and not for_code(code).retriable:
            right = "the right to Write (IdempotentWrite before Kafka 2.8); grant it to the user"
            if producer.transactions is not None:
                right = (
                    "the rights to Describe and Write on transactional ids, and a transaction "
                    "timeout up to the brokers' transaction.max.timeout.ms"
                )
            name = for_code(code).__name__
            raise ProducerIdError(f"a broker refused a {self._thing} with {name}; expected {right}")
        if code:
            self._retry(producer, now)
        elif isinstance(request, FindCoordinator):
            if answer[0] in producer.connections:
                self._coordinators[producer] = answer[0]
                self._due.appendleft((now, producer))
            else:
                self._elsewhere = answer
                self._retry(producer, now)
        else:
            assert producer.id_state is not None, "the producer is not idempotent"
            producer.id_state.renew_all(*answer)
            if producer.transactions is not None:
                producer.transactions.coordinator = self._coordinators[producer]
            del self._turns[producer]

    def _retry(self, producer: Producer, now: float) -> None:
        self._coordinators.pop(producer, None)
        self._due.append((now + _RETRY_S, producer))

    def handle_lost(self, connection: Connection, error: str, now: float) -> None:
        """Handle a lost connection, which will be opened again; see `Delivery`."""
        connection.is_open, self._is_lost = False, True
        if connection.has_successor:
            self._replacing.append(connection)
        for _ in range(len(connection.in_flight)):
            connection.in_flight.popleft()
            self._retry(connection.producer, now)

    def handle_flushed(self, connection: Connection) -> None:
        """Do nothing; no batch waits for the connection. See `Delivery`."""

    def handle_reopened(self, connection: Connection) -> None:
        """Handle a new open connection that will replace a lost connection; see `Delivery`."""
        if not connection.is_open:
            self._replacing.append(connection)

    def handle_replaced(self, connection: Connection, now: float) -> None:
        """Handle the replacement of a connection by its successor; see `Delivery`."""
        connection.reset()

    @property
    def _thing(self) -> str:
        has_transactions = any(each.transactions is not None for each in self._turns)
        return "coordinator for their transactions" if has_transactions else "producer id"

    def _describe_delay(self) -> str:
        missing, thing = len(self._turns), self._thing
        brokers = sorted({broker for each in self._turns for broker in each.connections})
        if self._is_lost:
            return (
                f"a broker closed the connection instead of sending a {thing}; expected a "
                "response; see the brokers' logs"
            )
        if self._elsewhere is not None:
            remedy = (
                f"a {thing} on one of the brokers {brokers}, which the load uses; the {thing} is "
                f"on {broker_words(*self._elsewhere)}, which joined later; repeat the load, so "
                "that the load uses this broker, too"
            )
        elif thing == "producer id":
            remedy = (
                "brokers that assign producer ids; check the controller, or set "
                "producer.enable_idempotence to false"
            )
        else:
            remedy = (
                "leaders for the topic __transaction_state; set transaction.state.log.replication."
                "factor to at most the number of brokers"
            )
        return f"{missing} producers got no {thing} in time; expected {remedy}"
