"""Canaries: a small producer and consumer on a topic over all brokers, as other clients have them.

They show what a load does to others, from before the run to its end. Their records are few, so that
they are no load themselves.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from jobs.cluster.admin import NO_LEADER, AdminError, KafkaAdmin, TopicSize
from jobs.cluster.placement import REFUSED_ASSIGNMENTS
from jobs.cluster.topic_plan import assignment
from jobs.cluster.topics import TopicError
from jobs.engine.network.links import library_options
from metrics.trial.canary import (
    CanaryReading,
    CanaryTime,
    CanaryWindow,
    canary_windows,
    worst_of,
)

_log = logging.getLogger(__name__)

INTERVAL_S = 0.5
"""Interval between two records to each broker [s]."""
RECORD_BYTES = 100
READY_S = 30.0
"""Longest wait for the leaders of the canaries' topic [s]."""
RECENT_S = 5.0
"""Time over which the guard takes a p99 [s]."""
KEPT_S = 900.0
"""Time for which records are kept [s]."""


@dataclass
class _Record:
    broker_id: int
    sent_s: float
    acked_s: float | None = None
    read_s: float | None = None

    def as_of(self, now_s: float) -> CanaryTime:
        acked_s = now_s if self.acked_s is None else self.acked_s
        read_ms = None if self.read_s is None else 1000.0 * (self.read_s - self.sent_s)
        return CanaryTime(self.broker_id, self.sent_s, 1000.0 * (acked_s - self.sent_s), read_ms)


class Canaries:
    """The canaries of a run, on a thread of their own until they are closed; a context manager.

    Args:
        options: connection options of kafka-python, with addresses, client id and secrets.
        topic: the topic, which exists.
        leaders: broker id that leads partition 0, 1, 2, …
        clock: wall clock [s since the epoch].
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        leaders: Sequence[int],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._topic = topic
        self._leaders = tuple(leaders)
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[int, _Record] = {}
        self._numbers = itertools.count()
        self._rest: tuple[CanaryTime, ...] = ()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redline-canaries", daemon=True)

    def __enter__(self) -> Canaries:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=30.0)

    def take_rest(self, since_s: float) -> None:
        """Take the records from a moment to now as those of brokers without the run's load.

        Args:
            since_s: records that were sent earlier do not count, as a driver that starts Spark
                delays its own clients [s since the epoch].
        """
        self._rest = tuple(each for each in self.times() if each.sent_s >= since_s)

    def times(self) -> list[CanaryTime]:
        """All records that are kept; those without an acknowledgement with the time so far."""
        now_s = self._clock()
        with self._lock:
            return [each.as_of(now_s) for each in self._records.values()]

    def windows(self, start_s: float, end_s: float) -> tuple[CanaryWindow, ...]:
        """What they saw of each broker in a window [s since the epoch]."""
        return canary_windows(self.times(), start_s, end_s, self._rest)

    def worst(self) -> CanaryReading | None:
        """The broker whose clients wait longest now; None where no broker has enough records."""
        return worst_of(self.times(), self._rest, self._clock() - RECENT_S)

    def sent(self, partition: int) -> int:
        """Note that a record is sent to a partition now, and return its number."""
        number, now_s = next(self._numbers), self._clock()
        with self._lock:
            self._records[number] = _Record(self._leaders[partition], now_s)
            oldest = next(iter(self._records))
            if self._records[oldest].sent_s < now_s - KEPT_S:
                del self._records[oldest]
        return number

    def acked(self, number: int) -> None:
        """Note that a record is acknowledged now, or has failed."""
        with self._lock:
            if number in self._records:
                self._records[number].acked_s = self._clock()

    def give_up(self) -> None:
        """Note that all records without an acknowledgement have failed now, with the connection."""
        now_s = self._clock()
        with self._lock:
            for each in self._records.values():
                each.acked_s = now_s if each.acked_s is None else each.acked_s

    def read(self, number: int) -> None:
        """Note that a record is read back now."""
        with self._lock:
            if number in self._records:
                self._records[number].read_s = self._clock()

    # --- on the thread of the canaries ---------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._send_and_read()
            except Exception as error:  # noqa: BLE001 - no load may continue without its guards
                _log.warning(
                    "the canaries open their connections again: %s: %s",
                    type(error).__name__,
                    error,
                )
                self._over.wait(2.0)

    def _send_and_read(self) -> None:
        options = {**self._options, "reconnect_backoff_max_ms": 1_000}
        producer = KafkaProducer(
            **options, acks="all", retries=0, max_block_ms=2_000, linger_ms=0,
            delivery_timeout_ms=60_000, request_timeout_ms=30_000, enable_idempotence=False,
        )  # fmt: skip
        consumer = KafkaConsumer(**options, enable_auto_commit=False, fetch_max_wait_ms=100)
        try:
            partitions = [TopicPartition(self._topic, n) for n in range(len(self._leaders))]
            consumer.assign(partitions)
            consumer.seek_to_end()
            for each in partitions:
                consumer.position(each)
            due_s = self._clock()
            while not self._over.is_set():
                if self._clock() >= due_s:
                    due_s += INTERVAL_S
                    self._send(producer)
                left_ms = max(1, int(1000.0 * (due_s - self._clock())))
                for records in consumer.poll(timeout_ms=min(left_ms, 500)).values():
                    for each in records:
                        self.read(int(each.value))
        finally:
            self.give_up()
            consumer.close(timeout_ms=2_000)
            producer.close(timeout=2)

    def _send(self, producer: KafkaProducer) -> None:
        for partition in range(len(self._leaders)):
            number = self.sent(partition)
            value = str(number).encode().rjust(RECORD_BYTES, b"0")
            future = producer.send(self._topic, value, partition=partition)
            future.add_both(lambda *_, number=number: self.acked(number))


def open_canaries(
    admin: KafkaAdmin,
    name: str,
    replication_factor: int,
    options: Mapping[str, Any],
    stack: ExitStack,
    warn: Callable[[str], None],
    mark: Mapping[str, str],
) -> Canaries | None:
    """Make the canaries' topic and start them; the stack stops them and deletes the topic.

    Returns None, with a warning, where the cluster refuses the topic.

    Args:
        name: the beginning of the topic's name.
        replication_factor: replicas of each partition, if there are so many brokers.
        options: connection options of kafka-python, with secrets resolved.
        warn: receives a sentence.
        mark: the property that shows which run made the topic.
    """
    topic = canary_topic(name)
    try:
        leaders = _made(admin, topic, replication_factor, mark)
    except (AdminError, TopicError) as error:
        warn(f"there are no canaries, so no guard watches how long other clients wait: {error}")
        return None
    stack.callback(_delete, admin, topic, warn)
    info = admin.describe_cluster()
    connection = {
        "bootstrap_servers": [f"{each.host}:{each.port}" for each in info.brokers],
        "client_id": f"{name}-canary",
        **library_options(options),
    }
    return stack.enter_context(Canaries(connection, topic, leaders))


def canary_topic(name: str) -> str:
    """The name of the canaries' topic."""
    return f"{name}-canary"


def _made(
    admin: KafkaAdmin, topic: str, replication_factor: int, mark: Mapping[str, str]
) -> tuple[int, ...]:
    """Make a topic with a partition on each broker; returns the leader of each partition."""
    brokers = sorted(admin.describe_cluster().broker_ids)
    replicas = min(replication_factor, len(brokers))
    placement = assignment(brokers, 1, replicas)
    properties = {"retention.ms": "600000", "min.insync.replicas": "1", **mark}
    try:
        admin.create_topic(topic, placement, properties)
    except AdminError as error:
        if error.cause not in REFUSED_ASSIGNMENTS:
            raise
        admin.create_topic(topic, TopicSize(len(brokers), replicas), properties)
    until_s = time.monotonic() + READY_S
    while True:
        seen = admin.partitions_seen_by(brokers[0], (topic,)).get(topic) or {}
        leaders = [seen[n].leader for n in sorted(seen)]
        if len(leaders) == len(brokers) and NO_LEADER not in leaders:
            return tuple(leaders)
        if time.monotonic() > until_s:
            raise TopicError(f"topic {topic} has no leaders after {READY_S:g} s")
        time.sleep(0.2)


def _delete(admin: KafkaAdmin, topic: str, warn: Callable[[str], None]) -> None:
    try:
        admin.delete_topic(topic)
    except AdminError as error:
        warn(f"topic {topic} may remain: {error}; redline cleanup deletes it")
