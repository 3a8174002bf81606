"""Other clients of a cluster: producers, consumers and administrators, as shared clusters have."""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaTimeoutError

from jobs.cluster.connect import connect
from jobs.testbed.handle import Testbed
from tests.support.processes import beside

RECORD_BYTES = 16_000
"""One record is one batch and one request, as each is sent alone."""
IN_SYNC_S = 60.0
"""Longest wait for a restarted broker to lead its partitions again [s]."""
LATE_MAX_S = 1.0
"""A neighbor that is later than this leaves records out, as its queue is full [s]."""
PARTITIONS = 6

_SIDES = ("leader", "follower")

Rate = Callable[[float], float]
"""The requests per second of a neighbor, by the seconds since its start."""


def steady(per_s: float) -> Rate:
    """The same rate all the time."""
    return lambda _: per_s


def step(per_s: float, factor: float, begun: threading.Event) -> Rate:
    """A rate that changes for good once an event is set."""
    return lambda _: per_s * (factor if begun.is_set() else 1.0)


def waves(per_s: float, swing: float, period_s: float) -> Rate:
    """A rate that swings around its mean by a share of it."""
    return lambda now_s: per_s * (1.0 + swing * math.sin(2 * math.pi * now_s / period_s))


def bursts(per_s: float, length_s: float, every_s: float) -> Rate:
    """A rate that is there for a while at regular intervals."""
    return lambda now_s: per_s if now_s % every_s < length_s else 0.0


@dataclass
class Neighbor:
    """A producer that keeps a rate on a topic of six partitions within this context.

    Attributes:
        in_flight: requests to a broker that it sends before the first is answered; with one, it
            sends less where brokers answer late.
        batch_bytes: size of a batch, at most [B]; a single record by default.
        producers: number of producers, which take the partitions in turn; with one for each
            partition, each record is a request of its own.
    """

    testbed: Testbed
    rate: Rate
    replicas: int = 1
    in_flight: int = 5
    record_bytes: int = RECORD_BYTES
    batch_bytes: int = 1
    producers: int = 1
    sent: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Neighbor:
        self.topic = f"orders-{uuid.uuid4().hex[:6]}"
        with connect(self.testbed.bootstrap_servers) as admin:
            brokers = self.testbed.broker_ids
            placed = {
                n: [brokers[(n + each) % len(brokers)] for each in range(self.replicas)]
                for n in range(PARTITIONS)
            }
            admin.create_topic(self.topic, placed, {"retention.bytes": "50000000"})
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        forget_refused()

    def _write(self) -> None:
        with ExitStack() as closing:
            self._write_by([closing.enter_context(self._producer()) for _ in range(self.producers)])

    @contextmanager
    def _producer(self) -> Iterator[KafkaProducer]:
        producer = KafkaProducer(
            bootstrap_servers=list(self.testbed.bootstrap_servers), acks=1,
            batch_size=self.batch_bytes, linger_ms=0 if self.batch_bytes == 1 else 100,
            max_block_ms=1_000, delivery_timeout_ms=120_000,
            max_in_flight_requests_per_connection=self.in_flight,
        )  # fmt: skip
        try:
            yield producer
        finally:
            try:
                producer.close(timeout=5)
            except KafkaTimeoutError:  # brokers are too slow for what is left: give it up
                producer._sender.force_close()
                producer.close(timeout=5)

    def _write_by(self, producers: Sequence[KafkaProducer]) -> None:
        due_s = 0.0
        while not self._over.wait(0.005):
            now_s = time.monotonic() - self._began_s
            due_s = max(due_s, now_s - LATE_MAX_S)
            while due_s <= now_s:
                per_s = self.rate(due_s)
                due_s += 1.0 / per_s if per_s > 0 else 0.05
                if per_s > 0:
                    partition = self.sent % PARTITIONS
                    producers[partition % self.producers].send(
                        self.topic, bytes(self.record_bytes), partition=partition
                    )
                    self.sent += 1


def _is_set_before(begun: threading.Event, over: threading.Event) -> bool:
    """Wait until an event is set; False where another one ends the wait."""
    while not begun.wait(0.2):
        if over.is_set():
            return False
    return not over.is_set()


def forget_refused() -> None:
    """Collect the sockets of refused connections, which kafka-python leaves to the collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@contextmanager
def reading(testbed: Testbed, group: str, *topics: str) -> Iterator[None]:
    """The only member of a consumer group, which reads these topics and commits its offsets."""
    over = threading.Event()

    def read() -> None:
        consumer = KafkaConsumer(
            *topics, bootstrap_servers=list(testbed.bootstrap_servers), group_id=group,
            auto_commit_interval_ms=1_000,
        )  # fmt: skip
        try:
            while not over.is_set():
                consumer.poll(timeout_ms=200)
        finally:
            consumer.close()

    with beside(read, over):
        yield


@contextmanager
def backfill(
    testbed: Testbed, topic: str, begun: threading.Event, bytes_per_s: float
) -> Iterator[None]:
    """A consumer that reads a topic again and again, once an event is set."""
    over = threading.Event()

    def read() -> None:
        if not _is_set_before(begun, over):
            return
        consumer = KafkaConsumer(
            bootstrap_servers=list(testbed.bootstrap_servers), max_partition_fetch_bytes=200_000,
            fetch_max_bytes=200_000, consumer_timeout_ms=500,
        )  # fmt: skip
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(partitions)
        began_s, read_bytes, ends = time.monotonic(), 0, dict.fromkeys(partitions, 0)
        try:
            while not over.wait(max(0.0, began_s + read_bytes / bytes_per_s - time.monotonic())):
                if all(consumer.position(each) >= end for each, end in ends.items()):
                    ends = consumer.end_offsets(partitions)
                    consumer.seek_to_beginning()
                found = consumer.poll(timeout_ms=200, max_records=50)
                read_bytes += sum(len(r.value) for records in found.values() for r in records)
        finally:
            consumer.close()

    with beside(read, over):
        yield


@contextmanager
def new_topics(testbed: Testbed, every_s: float) -> Iterator[None]:
    """An application that creates a topic at regular intervals, and deletes the one before."""
    over = threading.Event()

    def create() -> None:
        last = None
        with connect(testbed.bootstrap_servers) as admin:
            while not over.wait(every_s):
                name = f"app-{uuid.uuid4().hex[:8]}"
                admin.create_topic(name, {0: [1], 1: [2], 2: [3]}, {})
                if last is not None:
                    admin.delete_topic(last)
                last = name

    with beside(create, over):
        yield


@contextmanager
def later(begun: threading.Event, action: Callable[[], object]) -> Iterator[None]:
    """Do something once, when an event is set, within this context."""
    over = threading.Event()

    def act() -> None:
        if _is_set_before(begun, over):
            action()

    with beside(act, over):
        yield


def restart(testbed: Testbed, broker_id: int, down_s: float, topic: str) -> None:
    """Stop a broker as an operator does, and start it again a while later.

    Args:
        topic: topic whose preferred leaders are elected then, as these brokers elect none.
    """
    testbed.kill_broker(broker_id, signal.SIGTERM)
    time.sleep(down_s)
    testbed.restart_broker(broker_id)
    places = [(topic, partition) for partition in range(PARTITIONS)]
    with connect(testbed.bootstrap_servers) as admin:
        until_s = time.monotonic() + IN_SYNC_S
        while time.monotonic() < until_s:
            time.sleep(1.0)
            seen = admin.partitions_seen_by(broker_id, (topic,)).get(topic) or {}
            if seen and all(each.leader == each.preferred for each in seen.values()):
                return
            if seen and all(each.preferred in each.isr for each in seen.values()):
                admin.elect_preferred_leaders(places)


def reassign(testbed: Testbed, topic: str, bytes_per_s: int) -> None:
    """Move all partitions of a topic to the next brokers, each of which copies at this rate."""
    client = KafkaAdminClient(bootstrap_servers=list(testbed.bootstrap_servers))
    paced = {f"{side}.replication.throttled.rate": str(bytes_per_s) for side in _SIDES}
    all_replicas = {f"{side}.replication.throttled.replicas": "*" for side in _SIDES}
    throttled = [ConfigResource(ConfigResourceType.BROKER, str(n + 1), paced) for n in range(3)]
    throttled.append(ConfigResource(ConfigResourceType.TOPIC, topic, all_replicas))
    try:
        client.alter_configs(throttled, raise_on_unknown=False)
        client.alter_partition_reassignments(
            {TopicPartition(topic, n): [1 + (n + 1) % 3] for n in range(PARTITIONS)}
        )
    finally:
        client.close()


@contextmanager
def production(testbed: Testbed, per_s: float) -> Iterator[None]:
    """Eight writers that share this rate of requests.

    A broker answers one request of a connection after the other, so that a writer cannot send more
    than 16 a second to a broker that takes 60 ms for each.
    """
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(Neighbor(testbed, steady(per_s / 8)))
        yield
