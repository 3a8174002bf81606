"""A small load on the testbed, offered through Spark."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from jobs.cluster.connect import connect
from jobs.cluster.topics import Topics
from jobs.config import Workload, load_workload
from jobs.testbed.handle import Testbed
from jobs.trials.control_server import control_of
from jobs.trials.load import Generator, Target
from metrics.trial.client import ClientWindow
from metrics.trial.task import merge

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


def offer_small_load(
    spark: SparkSession, testbed: Testbed, workload: Workload = WORKLOAD, producers: int = 3
) -> ClientWindow:
    """Offer a load on a new topic, by default of three producers for five seconds."""
    with connect(testbed.bootstrap_servers) as admin:
        topics = Topics(admin, uuid.uuid4().hex[:6])
        pattern = workload.pattern(1_000, producers=producers)
        topic = topics.create(pattern)
        try:
            target = Target(topic.names, topic.leaders, admin.describe_cluster().addresses)
            with control_of(spark) as control:
                generator = Generator(spark, 2, {}, control)
                return merge(generator.offer("t", target, pattern))
        finally:
            topics.delete(topic.names)
