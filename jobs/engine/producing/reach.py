"""Whether one task's producers reach each broker: what they sent, what waits, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from jobs.engine.producing.producer import Producer
from jobs.engine.task.window import Window
from metrics.trial.counts import BrokerAccount


class Reach:
    """What became of what was meant for each broker. Times are of the engine's clock [s].

    Args:
        by_broker: broker id → its account, which is filled in.
        window: the measured one; only what happens inside it counts.
    """

    def __init__(self, by_broker: dict[int, BrokerAccount], window: Window) -> None:
        self._by_broker = by_broker
        self._window = window
        self._answered_s: dict[int, float] = {}

    def begin(self, by_broker: dict[int, BrokerAccount], window: Window) -> None:
        """Fill in another account from now on, that of the window that follows."""
        by_broker.update((broker, BrokerAccount()) for broker in self._by_broker)
        self._by_broker = by_broker
        self._window = window

    def add(self, brokers: Iterable[int]) -> None:
        """A producer has connections to these."""
        for broker in brokers:
            self._by_broker.setdefault(broker, BrokerAccount())

    def count_request(self, broker: int, now: float) -> None:
        """A produce request was handed to a socket."""
        if self._window.holds(now):
            self._by_broker[broker].requests += 1

    def note_answer(self, broker: int, now: float) -> None:
        """The broker answered, or with acks=0 its socket took a request."""
        self._answered_s[broker] = now

    def count_failed(self, broker: int, records: int, now: float) -> None:
        """Records that this broker was to take were given up."""
        if self._window.holds(now):
            self._by_broker[broker].missing_records += records

    def update_silence(self, awaited: Collection[int], now: float) -> None:
        """Note how long those brokers have been silent of which an answer is awaited."""
        at_s = min(now, self._window.end_s)
        for broker, account in self._by_broker.items():
            if broker not in awaited:
                self._answered_s[broker] = at_s  # there is nothing that it could say
            since_s = max(self._answered_s.get(broker, 0.0), self._window.start_s)
            account.silent_s = max(account.silent_s, at_s - since_s)

    def close(self, producers: Iterable[Producer], leaders: Sequence[int]) -> None:
        """The window is over: note what is missing by now."""
        end_s = self._window.end_s
        for producer in producers:
            waiting = _records_waiting(producer, leaders)
            for broker in waiting:
                self._by_broker[broker].waiting_connections += 1
            # Whoever fills a producer's memory keeps it from going on.
            at = max(waiting, key=waiting.__getitem__) if producer.blocked and waiting else None
            due = producer.records_due_between(producer.due_s(producer.opened), end_s)
            waiting[leaders[producer.partition] if at is None else at] += due
            for broker, records in waiting.items():
                self._by_broker[broker].missing_records += records


def awaited_brokers(producers: Iterable[Producer], leaders: Sequence[int]) -> set[int]:
    """Brokers for which something of these producers waits."""
    found = set()
    for producer in producers:
        for broker, connection in producer.connections.items():
            if connection.in_flight or connection.has_waiting:
                found.add(broker)
        found.update(leaders[partition] for partition in producer.muted)
    return found


def _records_waiting(producer: Producer, leaders: Sequence[int]) -> Counter[int]:
    """Broker id → records of sealed batches that it has not acknowledged, where there are some."""
    found = Counter[int]()
    for broker, connection in producer.connections.items():
        found[broker] += connection.pending.records
        found[broker] += sum(b.records for _, batches in connection.in_flight for b in batches)
    for partition, muted in producer.muted.items():
        found[leaders[partition]] += sum(b.records for b in (*muted.again, *muted.pending))
    return +found
