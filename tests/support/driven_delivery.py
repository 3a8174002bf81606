"""A delivery whose brokers and time the test controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.engine.batches.sections import Section
from jobs.engine.producing.account import Account
from jobs.engine.producing.batch import ProducerIdState
from jobs.engine.producing.delivery import Action, Delivery, Produce, Replace
from jobs.engine.producing.producer import Connection, Producer
from jobs.engine.producing.protocol import FindLeaders
from jobs.engine.producing.schedule import EvenSchedule
from jobs.engine.producing.transactions import Transactions
from jobs.engine.task.window import Window
from tests.support.patterns import producer_pattern

BROKERS = (1, 2)
RECORD_BYTES = 100


class DrivenDelivery:
    """A delivery with brokers 1 and 2, whose answers and time the test controls.

    Broker 1 coordinates transactions. By default, record k is due k seconds after the start, and a
    batch holds one record.

    Args:
        leaders: broker that leads partition 0, 1, …
        full: number of records in a full batch.
        end_s: end of the measured window, which starts at 0 [s].
        window: the measured window, if it is not from 0 to `end_s`.
        options: options of `producer_pattern`.

    Attributes:
        replaced: number of connections that were replaced before they were lost.
    """

    def __init__(
        self,
        leaders: Sequence[int] = (1,),
        full: int = 1,
        rate: float = 1.0,
        end_s: float = 100.0,
        producers: int = 1,
        window: Window | None = None,
        **options: Any,
    ) -> None:
        pattern = producer_pattern(RECORD_BYTES, rate, **({"linger_ms": 0.0} | options))
        measured = window or Window(0.0, end_s)
        self.account = Account(measured, pattern.record_interval_s, brokers=BROKERS)
        self.delivery = Delivery(pattern, self.account, leaders, BROKERS)
        self.options = pattern.options
        self._is_answered = pattern.options.acks != "0"
        duration_ms = pattern.options.transaction_duration_ms
        ends = [RECORD_BYTES * records for records in range(full + 1)]
        for index in range(producers):
            producer = Producer(
                index,
                pattern,
                Section(b"", ends, ends),
                range(len(leaders)),
                EvenSchedule(rate, 0.0),
                id_state=ProducerIdState(index) if pattern.options.enable_idempotence else None,
                transactions=None if duration_ms is None else Transactions(duration_ms / 1000.0, 1),
            )
            producer.connect(BROKERS, pattern.options.max_in_flight)
            self.delivery.add(producer)
        self.now = 0.0
        self.replaced = 0
        self.producer = self.delivery.producers[0]
        self.one, self.two = (self.producer.connections[broker] for broker in BROKERS)

    @property
    def counts(self) -> Any:
        return self.account.counts

    def until(self, now: float) -> list[Action]:
        """Advance the time to `now`, and return the delivery's actions, each taken at its time."""
        done: list[Action] = []
        while (at_s := max(self.now, self.delivery.next_s)) <= now:
            self.now = at_s
            action = self.delivery.next(at_s)
            if action is None:
                continue
            if isinstance(action, Replace):
                assert not action.connection.in_flight, "no answer is lost with the old transport"
                self.replaced += action.connection.is_open
                self.delivery.handle_replaced(action.connection, at_s)
                continue
            done.append(action)
            self.carry_out(action, at_s)
        self.now = now
        return done

    def carry_out(self, action: Action, now: float) -> None:
        """Carry out one action: with acks=0, a socket takes the request at once."""
        if isinstance(action, Produce) and not self._is_answered:
            self.delivery.handle_written(action.connection, now)

    def answer(self, connection: Connection, now: float, code: int = 0) -> None:
        """Answer the oldest request of a connection, with one error code for all its batches."""
        self.now = now
        _sent_s, batches = connection.in_flight[0]
        if isinstance(batches, FindLeaders):
            self.delivery.handle_metadata(connection, {}, now)
            return
        assert isinstance(batches, list), "a produce request"
        errors = {batch.partition: code for batch in batches}
        self.delivery.handle_produce_response(connection, errors, 0, now)

    def answer_metadata(self, connection: Connection, now: float, leaders: dict[int, int]) -> None:
        """Answer the oldest request of a connection, a metadata request, with these leaders."""
        self.now = now
        assert isinstance(connection.in_flight[0][1], FindLeaders)
        self.delivery.handle_metadata(connection, leaders, now)

    def coordinate(
        self, connection: Connection, now: float, code: int = 0, answer: tuple[int, int] = (-1, -1)
    ) -> list[Action]:
        """Answer the oldest request as the coordinator, and return the actions that follow."""
        self.now = now
        self.delivery.handle_coordinator_response(connection, code, answer, now)
        return self.until(now)

    def lose(self, connection: Connection, now: float, error: str = "ConnectionClosed") -> None:
        self.now = now
        connection.unwritten = []
        self.delivery.handle_lost(connection, error, now)

    def reopen(self, connection: Connection, now: float) -> None:
        """Reopen the connection, or have a successor of an open one."""
        self.now = now
        self.delivery.handle_reopened(connection)

    def congest(self, connection: Connection) -> None:
        """The socket does not take all bytes of the newest request."""
        connection.unwritten = [b"rest"]

    def flush(self, connection: Connection) -> None:
        """The socket takes the remaining bytes."""
        connection.unwritten = []
        self.delivery.handle_flushed(connection)

    def update_silence(self, now: float) -> None:
        self.account.update_silence(self.delivery.producers, self.delivery.leaders, now)
