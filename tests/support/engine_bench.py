"""Trials of one task on the testbed, without Spark."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from kafka import KafkaConsumer, TopicPartition

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.cluster.topic_plan import assignment
from jobs.engine.stage import run_task
from jobs.testbed.handle import Testbed
from metrics.trial.client import ClientWindow
from metrics.trial.task import merge
from tests.support.offsets import end_offsets_of
from tests.support.patterns import plan
from tests.support.processes import PATIENCE_S

PARTITIONS_PER_BROKER = 2

Variant = TypeVar("Variant")
Found = TypeVar("Found")


class OneTask:
    """The barrier of a stage of one task."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        return [message]


class Bench:
    """A topic on the testbed, and trials of one task on it."""

    def __init__(
        self,
        testbed: Testbed,
        admin: KafkaAdmin,
        replicas: int = 2,
        options: Mapping[str, Any] | None = None,
        name: str = "engine",
    ) -> None:
        self.options = options or {}
        self.admin = admin
        self.bootstrap = list(testbed.bootstrap_servers)
        self.topic = f"{name}-{uuid.uuid4().hex[:8]}"
        self.assigned = assignment(testbed.broker_ids, PARTITIONS_PER_BROKER, replicas)
        admin.create_topic(self.topic, self.assigned, {})
        self.brokers = admin.describe_cluster().addresses

    def run(
        self,
        producers: int = 2,
        **fields: Any,
    ) -> ClientWindow:
        """Run a trial, by default with 300 records/s of 1,000 B per producer.

        Args:
            fields: fields of `tests.support.patterns.pattern`.
        """
        load = {"message_bytes": 1_000, "rate_records_per_s": 300.0, "pool_bytes": 200_000}
        times = {"warmup_s": 0.5, "measure_s": 1.5}
        trial = plan(
            topics=(self.topic,),
            leaders=tuple(self.assigned[p][0] for p in sorted(self.assigned)),
            brokers=self.brokers,
            start_lead_s=1.0,
            client_options=self.options,
            producers=producers,
            **({"trial_id": "t"} | load | times | fields),
        )
        row = run_task(trial, OneTask())
        assert row.error is None, row.error
        return merge([row])

    def end_offsets(self) -> dict[int, int]:
        return end_offsets_of(self.admin, self.topic, self.assigned)

    def read_back(self, **options: Any) -> list[Any]:
        """All records of the topic, read by kafka-python's consumer.

        Args:
            options: further options of the consumer, such as `isolation_level`.
        """
        partitions = [TopicPartition(self.topic, p) for p in self.assigned]
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            check_crcs=True,
            **options,
        )
        records: list[Any] = []
        try:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            deadline_s = time.monotonic() + PATIENCE_S
            while any(consumer.position(each) < ends[each] for each in partitions):
                assert time.monotonic() < deadline_s, f"{len(records)} records read, of {ends}"
                records += itertools.chain(*consumer.poll(200).values())
        finally:
            consumer.close()
        return records


def benches_at_once(
    testbed: Testbed,
    variants: Sequence[Variant],
    work: Callable[[Bench, Variant], Found],
) -> dict[Variant, Found]:
    """Run `work` for all variants at the same time, as a trial of one task mostly waits.

    Args:
        work: gets a bench with a topic of its own, which is deleted when `work` returns.
    """

    def made(variant: Variant) -> Found:
        with connect(testbed.bootstrap_servers) as admin:
            bench = Bench(testbed, admin, replicas=1)
            try:
                return work(bench, variant)
            finally:
                admin.delete_topic(bench.topic)

    with ThreadPoolExecutor(len(variants)) as pool:
        return dict(zip(variants, pool.map(made, variants), strict=True))
