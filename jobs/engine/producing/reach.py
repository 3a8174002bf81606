"""Reach of one task's producers to each broker: requests, waiting records and silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from jobs.engine.producing.producer import Producer
from jobs.engine.task.window import Window
from metrics.trial.counts import BrokerAccount


class Reach:
    """Account of what went to each broker and what did not. Times are of the engine's clock [s].

    Args:
        by_broker: broker id → its account, which is filled in.
        window: the measured window; only events inside it count.

    Attributes:
        answered_s: broker id → time of its last answer, or with acks=0 of the last request that
            its socket took.
    """

    def __init__(self, by_broker: dict[int, BrokerAccount], window: Window) -> None:
        self._by_broker = by_broker
        self._window = window
        self.answered_s: dict[int, float] = {}

    def begin(self, by_broker: dict[int, BrokerAccount], window: Window) -> None:
        """Begin the following window, with another account to fill in."""
        by_broker.update((broker, BrokerAccount()) for broker in self._by_broker)
        self._by_broker = by_broker
        self._window = window

    def add(self, brokers: Iterable[int]) -> None:
        """Add the brokers to which a producer has connections."""
        for broker in brokers:
            self._by_broker.setdefault(broker, BrokerAccount())

    def count_request(self, broker: int, now: float) -> None:
        """Count a produce request that a socket took."""
        if self._window.holds(now):
            self._by_broker[broker].requests += 1

    def count_failed(self, broker: int, records: int, now: float) -> None:
        """Count records for this broker that were given up."""
        if self._window.holds(now):
            self._by_broker[broker].missing_records += records

    def update_silence(self, awaited: Collection[int], now: float) -> None:
        """Update how long each broker that owes an answer has been silent."""
        at_s = min(now, self._window.end_s)
        for broker, account in self._by_broker.items():
            if broker not in awaited:
                self.answered_s[broker] = at_s  # it owes no answer
            since_s = max(self.answered_s.get(broker, 0.0), self._window.start_s)
            account.silent_s = max(account.silent_s, at_s - since_s)

    def close(self, producers: Iterable[Producer], leaders: Sequence[int]) -> None:
        """End the window: count the records that are missing by now."""
        end_s = self._window.end_s
        for producer in producers:
            waiting = _records_waiting(producer, leaders)
            for broker in waiting:
                self._by_broker[broker].waiting_connections += 1
            # The broker with most of a blocked producer's waiting records blocks it.
            at = max(waiting, key=waiting.__getitem__) if producer.blocked and waiting else None
            due = producer.records_due_between(producer.due_s(producer.opened), end_s)
            waiting[leaders[producer.partition] if at is None else at] += due
            for broker, records in waiting.items():
                self._by_broker[broker].missing_records += records


def awaited_brokers(producers: Iterable[Producer], leaders: Sequence[int]) -> set[int]:
    """Brokers for which requests or batches of these producers wait."""
    found = set()
    for producer in producers:
        for broker, connection in producer.connections.items():
            if broker not in found and (connection.in_flight or connection.has_waiting):
                found.add(broker)
        if producer.muted:
            found.update(leaders[partition] for partition in producer.muted)
    return found


def _records_waiting(producer: Producer, leaders: Sequence[int]) -> Counter[int]:
    """Broker id → records of sealed batches that it has not acknowledged, above 0 only."""
    found = Counter[int]()
    for broker, connection in producer.connections.items():
        found[broker] += connection.pending.records
        found[broker] += sum(b.records for _, batches in connection.in_flight for b in batches)
    for partition, muted in producer.muted.items():
        found[leaders[partition]] += sum(b.records for b in (*muted.again, *muted.pending))
    return +found
