"""Trials of the engine on the testbed, without Spark: threads are the tasks of a stage."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka import KafkaConsumer, TopicPartition

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.cluster.topic_plan import Assignment, assignment
from jobs.engine.task.plan import TrialPlan
from jobs.testbed.handle import Testbed
from metrics.judging.thresholds import Thresholds
from metrics.judging.validity import consumption_mismatch
from metrics.traffic.clients import ConsumerOptions
from metrics.trial.client import ClientWindow, merge
from metrics.trial.evidence import Evidence, Reason
from tests.support import patterns
from tests.support.fresh_topic import fresh_topic
from tests.support.processes import PATIENCE_S
from tests.support.threads_barrier import run_stage

PARTITIONS_PER_BROKER = 2

Variant = TypeVar("Variant")
Found = TypeVar("Found")


def end_offsets_of(admin: KafkaAdmin, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Partition → the offset that its next record will get."""
    found = admin.end_offsets((topic, partition) for partition in partitions)
    return {partition: offset for (_topic, partition), offset in found.items()}


def mismatches(
    client: ClientWindow, before: Mapping[int, int], after: Mapping[int, int]
) -> list[Reason]:
    """The contradictions between the groups' reads and the end offsets around the trial."""
    ends = {partition: (before[partition], end) for partition, end in after.items()}
    return consumption_mismatch(Evidence(client, end_offsets=ends), Thresholds())


class Bench:
    """A topic on the testbed, and trials with producers and consumers of it.

    Attributes:
        before: end offsets before the last plan.
    """

    def __init__(
        self, testbed: Testbed, admin: KafkaAdmin, topic: str, assigned: Assignment
    ) -> None:
        self.options: Mapping[str, Any] = {}
        self.admin = admin
        self.topic, self.assigned = topic, assigned
        self.brokers = admin.describe_cluster().addresses
        self._bootstrap = list(testbed.bootstrap_servers)
        self.before = self.end_offsets()

    def plan(self, consumers: Mapping[str, Any] | None = None, **fields: Any) -> TrialPlan:
        """A plan: by default two producers of 300 records/s of 1,000 B each.

        Args:
            consumers: options of consumers, by default in two tasks; None for no consumers.
            fields: fields of `tests.support.patterns.plan`.
        """
        self.before = self.end_offsets()
        values: dict[str, Any] = {
            "trial_id": uuid.uuid4().hex[:8],
            "topics": (self.topic,),
            "producers": 2,
            "message_bytes": 1_000,
            "rate_records_per_s": 300.0,
            "pool_bytes": 200_000,
            "leaders": tuple(self.assigned[p][0] for p in sorted(self.assigned)),
            "brokers": self.brokers,
            "client_options": self.options,
            "warmup_s": 0.5,
            "measure_s": 1.5,
            "start_lead_s": 1.0,
        }
        if consumers is not None:
            read = {"consumer_tasks": 2, "end_offsets": self.before}
            values |= {"consumers": ConsumerOptions(**consumers), **read}
        return patterns.plan(**(values | fields))

    def run(
        self, plan: TrialPlan | None = None, reading: TrialPlan | None = None, **fields: Any
    ) -> ClientWindow:
        """Run a plan, by default that of `fields`, and check the groups' reads.

        Args:
            reading: the plan of the tasks with consumers, if it is a different one.
        """
        made = plan or self.plan(**fields)
        rows = run_stage(made, reading)
        errors = [row.error for row in rows if row.error is not None]
        assert not errors, errors
        client = merge(rows)
        if made.consumer_tasks:
            taken = client.counts.acked_total + client.counts.control_records
            assert taken == sum(self.growth().values()) > 0
            assert mismatches(client, self.before, self.end_offsets()) == []
        return client

    def growth(self) -> dict[int, int]:
        """Partition → growth of its end offset since the last plan."""
        return {p: end - self.before[p] for p, end in self.end_offsets().items()}

    def end_offsets(self) -> dict[int, int]:
        return end_offsets_of(self.admin, self.topic, self.assigned)

    def committed(self, plan: TrialPlan, group: int) -> dict[int, int]:
        answer = self.admin.client.list_group_offsets([plan.group_id(group)])
        offsets = answer[plan.group_id(group)]
        return {each.partition: at.offset for each, at in offsets.items()}

    def read_back(self, **options: Any) -> list[Any]:
        """All records of the topic, read by kafka-python's consumer."""
        partitions = [TopicPartition(self.topic, p) for p in self.assigned]
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
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


@contextmanager
def bench_on(
    testbed: Testbed,
    options: Mapping[str, Any] | None = None,
    servers: Sequence[str] = (),
    *,
    name: str = "engine",
    replicas: int = 1,
    partitions: int = PARTITIONS_PER_BROKER,
    config: Mapping[str, str] | None = None,
) -> Iterator[Bench]:
    """A bench within this context, with a topic of its own.

    Args:
        servers: addresses of brokers, by default those of the testbed.
        partitions: partitions that each broker leads.
    """
    assigned = assignment(testbed.broker_ids, partitions, replicas)
    with (
        connect(servers or testbed.bootstrap_servers, options) as admin,
        fresh_topic(admin, f"{name}-{uuid.uuid4().hex[:8]}", assigned, config or {}) as topic,
    ):
        made = Bench(testbed, admin, topic, assigned)
        made.options = options or {}
        yield made


def benches_at_once(
    testbed: Testbed, variants: Sequence[Variant], work: Callable[[Bench, Variant], Found]
) -> dict[Variant, Found]:
    """Run `work` for all variants at the same time, as a trial of one task mostly waits.

    Args:
        work: gets a bench with a topic of its own, which is deleted when `work` returns.
    """

    def made(variant: Variant) -> Found:
        with bench_on(testbed) as bench:
            return work(bench, variant)

    with ThreadPoolExecutor(len(variants)) as pool:
        return dict(zip(variants, pool.map(made, variants), strict=True))
