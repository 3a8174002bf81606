"""The canaries: a small producer and a small consumer on a topic with one partition on each broker.

The canaries start before the first load and stop at the end of the run. The latencies of the
canaries show how a load affects other clients. Canaries send few records, so that they do not load
the brokers.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from jobs.cluster.admin import NO_LEADER, AdminError, KafkaAdmin, TopicSize
from jobs.cluster.topic_plan import assignment
from jobs.cluster.topic_set import REFUSED_ASSIGNMENTS
from jobs.cluster.topics import WRONG_REQUESTS, TopicError
from jobs.engine.network.links import library_options
from metrics.trial.canary import (
    REST_LEAST,
    CanaryReading,
    CanaryTime,
    CanaryWindow,
    canary_windows,
    worst_of,
)

_log = logging.getLogger(__name__)

NO_CANARIES = "there are no canaries, so no guard watches the latency of other clients"
INTERVAL_S = 0.5
"""Interval between two records to each broker [s]."""
RECORD_BYTES = 100
READY_S = 30.0
"""Longest wait for the leaders of the canaries' topic [s]."""
RECENT_S = 5.0
"""Length of the time range from which the guard computes a p99 [s]."""
AFTER_S = 5.0
"""Time for which the canaries continue after the last load [s]."""
MIN_IN_SYNC = "min.insync.replicas"
KEPT_S = 900.0
"""Time for which the results of the canaries' records are kept [s]."""


class Canaries:
    """The canaries of a run, which work on their own thread until the context manager closes.

    Args:
        options: connection options of kafka-python, with addresses, client id and secrets.
        topic: name of an existing topic.
        leaders: ids of the brokers that lead the partitions 0, 1, 2, …
        clock: wall clock [s since the epoch].

    Attributes:
        trouble: the last error of the connections; None without an error.
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
        self._records: dict[int, CanaryTime] = {}
        self._numbers = itertools.count()
        self._rest: tuple[CanaryTime, ...] = ()
        self._sent_s = clock()
        self.trouble: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redline-canaries", daemon=True)

    def __enter__(self) -> Canaries:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=30.0)

    @property
    def blind_s(self) -> float:
        """Time since the canaries sent their last record [s]; near 0 while they are connected."""
        return self._clock() - self._sent_s

    def take_rest(self, since_s: float) -> str | None:
        """Keep the canaries' records from `since_s` to now as the readings without the run's load.

        Args:
            since_s: time from which records are kept [s since the epoch]. Records that were sent
                before this time are left out, because the canaries are slower while the driver
                starts Spark.

        Returns:
            A sentence about the brokers that acknowledged too few records; None without such
            brokers. No guard watches how long the clients of such brokers wait.
        """
        self._rest = tuple(each for each in self.times() if each.sent_s >= since_s)
        acked = Counter(each.broker_id for each in self._rest if not each.has_failed)
        unseen = [str(each) for each in sorted({*self._leaders}) if acked[each] < REST_LEAST]
        if not unseen:
            return None
        return (
            "canaries got too few acknowledgements before the run, so no guard watches how long "
            f"clients of broker {', '.join(unseen)} wait: {self.trouble or 'no answer in time'}"
        )

    def times(self) -> list[CanaryTime]:
        """The latencies of the records that the canaries sent in the last `KEPT_S` seconds.

        While a record is not acknowledged, its latency is the time that has passed since the record
        was sent.
        """
        with self._lock:
            return [
                self._ended(each) if math.isnan(each.acked_ms) else each
                for each in self._records.values()
            ]

    def windows(self, start_s: float, end_s: float) -> tuple[CanaryWindow, ...]:
        """The canaries' readings of each broker between `start_s` and `end_s`, both in seconds
        since the epoch.
        """
        return canary_windows(self.times(), start_s, end_s, self._rest)

    def windows_after(
        self, loaded_until_s: float, pause: Callable[[float], object] = time.sleep
    ) -> tuple[CanaryWindow, ...]:
        """Wait until `AFTER_S` after the last load, and return the canaries' readings since that
        load.

        Args:
            loaded_until_s: end of the last load [s since the epoch].
            pause: waits for a time [s].
        """
        pause(max(0.0, loaded_until_s + AFTER_S - self._clock()))
        now_s = self._clock()
        return self.windows(now_s - AFTER_S, now_s)

    def worst(self) -> CanaryReading | None:
        """The reading of the broker at which the canaries' present latency is highest; None without
        enough records.
        """
        return worst_of(self.times(), self._rest, self._clock() - RECENT_S)

    def sent(self, partition: int) -> int:
        """Register that a record is sent to a partition now, and return the record's number."""
        number, now_s = next(self._numbers), self._clock()
        with self._lock:
            self._sent_s = now_s
            self._records[number] = CanaryTime(self._leaders[partition], now_s, math.nan)
            oldest = next(iter(self._records))
            if self._records[oldest].sent_s < now_s - KEPT_S:
                del self._records[oldest]
        return number

    def acked(self, number: int) -> None:
        """Register that a record is acknowledged now."""
        with self._lock:
            if number in self._records:
                self._records[number] = self._ended(self._records[number])

    def failed(self, error: object, number: int | None = None) -> None:
        """Register that unacknowledged records failed now.

        Args:
            error: the error of the records.
            number: number of the failed record; None if all unacknowledged records failed.
        """
        self.trouble = f"{type(error).__name__}: {error}"
        with self._lock:
            known = self._records
            for each in list(known) if number is None else [number]:
                if each in known and math.isnan(known[each].acked_ms):
                    known[each] = replace(self._ended(known[each]), has_failed=True)

    def read(self, number: int) -> None:
        """Register that a record is read back now."""
        with self._lock:
            if number in self._records:
                record = self._records[number]
                read_ms = 1000.0 * (self._clock() - record.sent_s)
                self._records[number] = replace(record, read_ms=read_ms)

    def _ended(self, record: CanaryTime) -> CanaryTime:
        return replace(record, acked_ms=1000.0 * (self._clock() - record.sent_s))

    # --- on the thread of the canaries ---------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._send_and_read()
            except Exception as error:  # noqa: BLE001 - no load may continue without its guards
                self.failed(error)
                _log.warning(
                    "the canaries reconnect after an error: %s: %s", type(error).__name__, error
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
            consumer.close(timeout_ms=2_000)
            producer.close(timeout=2)

    def _send(self, producer: KafkaProducer) -> None:
        for partition in range(len(self._leaders)):
            number = self.sent(partition)
            value = str(number).encode().rjust(RECORD_BYTES, b"0")
            future = producer.send(self._topic, value, partition=partition)
            future.add_callback(lambda *_, number=number: self.acked(number))
            future.add_errback(lambda error, number=number: self.failed(error, number))


def open_canaries(
    admin: KafkaAdmin,
    name: str,
    replication_factor: int,
    options: Mapping[str, Any],
    stack: ExitStack,
    warn: Callable[[str], None],
    mark: Mapping[str, str],
) -> Canaries | None:
    """Create the canaries' topic and start the canaries. The exit of `stack` stops the canaries and
    deletes the topic.

    If the cluster refuses the topic, the result is None, and the user gets a warning.

    Args:
        admin: the client for requests to the cluster.
        name: the beginning of the topic's name.
        replication_factor: replicas of each partition; at most one replica on each broker.
        options: connection options of kafka-python, with secrets resolved.
        stack: stops the canaries and deletes their topic when it closes.
        warn: receives each warning as a sentence.
        mark: the topic property that names the run which created the topic.
    """
    topic = canary_topic(name)
    try:
        brokers = admin.describe_cluster().brokers
        ids = sorted(each.id for each in brokers)
        _make(admin, topic, ids, replication_factor, mark, stack, warn)
        leaders = _leaders(admin, topic, ids)
    except (AdminError, TopicError) as error:
        warn(f"{NO_CANARIES}: {error}")
        return None
    connection = {
        "bootstrap_servers": [f"{each.host}:{each.port}" for each in brokers],
        **library_options(options, f"{name}-canary"),
    }
    return stack.enter_context(Canaries(connection, topic, leaders))


def canary_topic(name: str) -> str:
    """The name of the canaries' topic."""
    return f"{name}-canary"


def _make(
    admin: KafkaAdmin,
    topic: str,
    brokers: Sequence[int],
    replication_factor: int,
    mark: Mapping[str, str],
    stack: ExitStack,
    warn: Callable[[str], None],
) -> None:
    """Create a topic with a partition on each broker; the stack deletes the topic."""
    least = _least_in_sync(admin, brokers[0])
    replicas = min(max(replication_factor, 1 if least < 2 else least + 1), len(brokers))
    is_own = True
    properties = {"retention.ms": "600000", MIN_IN_SYNC: str(min(least, replicas)), **mark}
    try:
        try:
            admin.create_topic(topic, assignment(list(brokers), 1, replicas), properties)
        except AdminError as error:
            if error.cause not in REFUSED_ASSIGNMENTS:
                raise
            admin.create_topic(topic, TopicSize(len(brokers), replicas), properties)
    except AdminError as error:
        is_own = error.cause not in {"TopicAlreadyExistsError", *WRONG_REQUESTS}
        raise
    finally:  # a request without an answer may have created the topic
        if is_own:
            stack.callback(_delete, admin, topic, warn)


def _least_in_sync(admin: KafkaAdmin, broker: int) -> int:
    """The brokers' default of `min.insync.replicas`; 1 if the default cannot be read."""
    try:
        return int(admin.broker_config(broker, [MIN_IN_SYNC]).get(MIN_IN_SYNC) or 1)
    except (AdminError, ValueError):
        return 1


def _leaders(admin: KafkaAdmin, topic: str, brokers: Sequence[int]) -> tuple[int, ...]:
    """Wait until each partition has a leader, and return the leaders."""
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
        if error.cause != "UnknownTopicOrPartitionError":
            warn(f"topic {topic} may remain: {error}; redline cleanup deletes it")
