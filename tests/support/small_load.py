"""Small loads on the testbed, offered through Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from jobs.cluster.connect import connect
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import Topics
from jobs.config import Workload, load_workload
from jobs.testbed.handle import Testbed
from jobs.trials.control_server import ControlServer, control_of
from jobs.trials.load import Generator, Load
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow, TaskReport, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKLOAD = load_workload(
    "demo",
    [
        "workload.topic.replication_factor=2",
        "workload.topic.partitions_per_broker=2",
        "workload.producer.rate_bytes_per_s=100000",
        "workload.trial.warmup_s=1",
        "workload.trial.measure_s=4",
    ],
)


class SmallTopic:
    """The topics of a pattern on a testbed."""

    def __init__(self, topics: Topics, made: TopicSet, brokers: dict[int, tuple[str, int]]) -> None:
        self._topics, self.made = topics, made
        self.before = self.ends()
        self.brokers = brokers

    def load(self, name: str, pattern: TrafficPattern, before: Mapping[int, int]) -> Load:
        return Load(name, self.made, pattern, self.brokers, before)

    def ends(self) -> dict[int, int]:
        return self._topics.end_offsets(self.made)

    def grown(self) -> int:
        """Records of the load."""
        return sum(self.ends().values()) - sum(self.before.values())

    def offer(
        self,
        spark: SparkSession,
        pattern: TrafficPattern,
        slots: int = 2,
        name: str = "t",
        during: Callable[..., Any] = nullcontext,
        options: Mapping[str, object] | None = None,
        through: Callable[[ControlServer], Any] = lambda control: control,
    ) -> list[TaskReport]:
        """Offer a load.

        Args:
            during: watches the load, see `Generator.offer`.
            through: makes what the tasks take for the driver's control server.
        """
        before = self.before if pattern.consumers.groups else {}
        with control_of(spark) as control:
            generator = Generator(spark, slots, options or {}, through(control))
            return generator.offer(self.load(name, pattern, before), during)


@contextmanager
def small_topic(
    testbed: Testbed, pattern: TrafficPattern, options: Mapping[str, Any] | None = None
) -> Iterator[SmallTopic]:
    """New topics of a pattern, within this context."""
    with connect(testbed.bootstrap_servers, options) as admin:
        topics = Topics(admin, uuid.uuid4().hex[:6])
        made = topics.create(pattern)
        try:
            yield SmallTopic(topics, made, admin.describe_cluster().addresses)
        finally:
            topics.delete(made.names)


def offer_small_load(
    spark: SparkSession, testbed: Testbed, workload: Workload = WORKLOAD, producers: int = 3
) -> ClientWindow:
    """Offer a load on a new topic, by default of three producers for five seconds."""
    pattern = workload.pattern(1_000, producers=producers)
    with small_topic(testbed, pattern) as topic:
        return merge(topic.offer(spark, pattern))
