"""The way to a partition's leader: who leads it now, and whether its connection is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jobs.engine.asking import leaders_in, metadata_request
from jobs.engine.pattern import TrialPlan
from jobs.engine.producer import Connection, Producer
from jobs.engine.reopening import Key, Reopener
from jobs.engine.transport import Transport


class Post(Protocol):
    """Who carries a question to a broker."""

    def ask(
        self,
        connection: Connection,
        request_of: Callable[[int], bytes],
        take: Callable[[memoryview], None],
    ) -> None:
        """Send the request that `request_of` makes of a correlation id; `take` the answer."""
        ...

    def settle(self, connection: Connection, request_of: Callable[[int], bytes]) -> None:
        """Send such a request and count it as unanswered until it is answered."""
        ...


class Routes:
    """Leaders of the topics' partitions as one task knows them, kept up to date when asked.

    All producers of a task share what one of them learns: each would learn the same, and a
    cluster that lost a broker has better to do than to answer all of them at once.

    Attributes:
        leaders: broker id that leads partition 0, 1, 2, …
        now: the engine's clock.
    """

    def __init__(self, plan: TrialPlan, reopener: Reopener, clock: Callable[[], float]) -> None:
        self.leaders = list(plan.leaders)
        self.now = clock
        self._brokers = frozenset(plan.brokers)
        self._partitions = plan.partitions
        self._interval_s = plan.pattern.retry_backoff_ms / 1000.0
        self._timeout_s = plan.pattern.request_timeout_ms / 1000.0
        self._reopener = reopener
        self._lost: dict[Key, Connection] = {}
        self._next_refresh_s = 0.0
        self._is_changed = False

    def connection_to(self, producer: Producer, partition: int, post: Post) -> Connection | None:
        """The open connection to the partition's leader; if there is none, a way is sought."""
        connection = producer.connections[self.leaders[partition]]
        if not connection.closed:
            return connection
        key = (producer.client_id, connection.broker)
        self._lost[key] = connection
        self._reopener.want(key)
        self.refresh(producer, post)
        return None

    def refresh(self, producer: Producer, post: Post) -> None:
        """Ask for the leaders over one of the producer's connections, unless just asked."""
        now = self.now()
        ways = [c for c in producer.connections.values() if not c.closed and not c.unwritten]
        if now < self._next_refresh_s or not ways:
            return
        self._next_refresh_s = now + self._timeout_s  # until the answer
        way = min(ways, key=lambda connection: len(connection.in_flight))
        post.ask(way, self._question(producer), self._take)

    def settle(self, connection: Connection, post: Post) -> None:
        """Have the broker say that it took all that was sent, when it does not answer sends."""
        if not connection.closed:
            post.settle(connection, self._question(connection.producer))

    def _question(self, producer: Producer) -> Callable[[int], bytes]:
        topics, client_id = self._partitions.topics, producer.client_id
        return lambda number: metadata_request(topics, client_id, number)

    def forget_question(self) -> None:
        """The connection that carried a question is lost: ask again when there is need."""
        self._next_refresh_s = 0.0

    def take_changes(self) -> bool:
        """True once after leaders changed or connections were opened."""
        is_changed, self._is_changed = self._is_changed, False
        return is_changed

    def take_reopened(self) -> list[tuple[Connection, Transport]]:
        """Connections that were lost, with the transports that were opened for them."""
        reopened = [(self._lost.pop(key), way) for key, way in self._reopener.take()]
        self._is_changed |= bool(reopened)
        return reopened

    def _take(self, frame: memoryview) -> None:
        self._next_refresh_s = self.now() + self._interval_s
        for each, leader in leaders_in(frame).items():
            partition = self._partitions.number(*each)
            if partition is not None and leader in self._brokers:
                self._is_changed |= self.leaders[partition] != leader
                self.leaders[partition] = leader
