"""Rules for retries, as in Kafka's own producer: whether and when a batch is sent again.

Reach of one task's producers to each broker: requests, waiting records and silence.

Leaders of the topics' partitions as one task knows them, and times of metadata requests.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka.errors import for_code

from jobs.engine.producing.producer import Connection, Producer
from jobs.engine.task.window import Window
from metrics.traffic.clients import ProducerOptions
from metrics.trial.client import BrokerAccount

DUPLICATE_SEQUENCE = 46
"""Kafka's error code for a batch of an idempotent producer that the broker already has."""

OUT_OF_ORDER_SEQUENCE = 45
_NOT_LEADER = 6
_UNKNOWN_PRODUCER = frozenset({47, 59})  # of another epoch, and forgotten
SEQUENCE_ERRORS = frozenset({OUT_OF_ORDER_SEQUENCE, *_UNKNOWN_PRODUCER})
_MAYBE_WRITTEN = frozenset({7, 20, 56})  # time-out, too few replicas after append, storage

_JITTER = 0.2
_EXPONENT_MAX = 62


@dataclass(frozen=True)
class Refusal:
    """Meaning of an error code in a produce response.

    Attributes:
        error: name of the error.
        is_retriable: whether a retry of the same batch may succeed.
        is_unsure: whether the broker may have written the batch in spite of the error.
        leader_moved: whether the leaders have to be requested again.
    """

    error: str
    is_retriable: bool
    is_unsure: bool
    leader_moved: bool

    @classmethod
    def of(cls, code: int, options: ProducerOptions, is_idempotent: bool) -> Refusal:
        """The meaning of a code other than 0."""
        error = for_code(code)
        is_unsure = code in _MAYBE_WRITTEN or (code == _NOT_LEADER and options.acks == "all")
        is_retriable = error.retriable or (is_idempotent and code in SEQUENCE_ERRORS)
        return cls(error.__name__, is_retriable, is_unsure, error.invalid_metadata)


LOST = Refusal("", is_retriable=True, is_unsure=True, leader_moved=False)
"""The refusal that stands for a connection lost before the answer."""


def backoff_s(options: ProducerOptions, failures: int, rng: random.Random) -> float:
    """Wait before a retry after so many failures in a row, at least one [s].

    It doubles from `retry_backoff_ms` up to `retry_backoff_max_ms`, and varies by 20 %, so that
    clients that failed together do not retry together (KIP-580).
    """
    doubled_ms: float = options.retry_backoff_ms * 2 ** min(failures - 1, _EXPONENT_MAX)
    bounded_ms = min(doubled_ms, options.retry_backoff_max_ms)
    jittered_ms = bounded_ms * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return min(jittered_ms, options.retry_backoff_max_ms) / 1000.0


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
        found[leaders[partition]] += sum(b.records for b in muted.pending)
    return +found


class Metadata:
    """The leaders that all producers of a task share.

    Each producer would learn the same, and a cluster that has lost a broker should not have to
    answer all of them at once.

    Attributes:
        leaders: broker id that leads partition 0, 1, 2, …
    """

    def __init__(
        self, leaders: Sequence[int], brokers: Collection[int], options: ProducerOptions
    ) -> None:
        self.leaders = list(leaders)
        self._brokers = frozenset(brokers)
        self._interval_s = options.retry_backoff_ms / 1000.0
        self._next_request_s = 0.0
        self._requested: Connection | None = None

    def may_request(self, now: float) -> bool:
        """False while a request is in flight, and for `retry_backoff_ms` after its answer."""
        return now >= self._next_request_s

    def mark_requested(self, connection: Connection) -> None:
        """Mark a request over this connection as in flight, until an answer comes."""
        self._next_request_s = math.inf
        self._requested = connection

    def forget_request(self, lost: Connection) -> None:
        """Forget a request over a lost connection, so that the next one may be sent."""
        if self._requested is lost:
            self._next_request_s = 0.0

    def update(self, leaders: Mapping[int, int], now: float) -> frozenset[int]:
        """Update the leaders, partition → leader; returns the partitions whose leader moved."""
        self._next_request_s = now + self._interval_s
        self._requested = None
        moved = set()
        for partition, leader in leaders.items():
            if leader in self._brokers and self.leaders[partition] != leader:
                self.leaders[partition] = leader
                moved.add(partition)
        return frozenset(moved)
