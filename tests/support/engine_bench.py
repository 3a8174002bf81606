"""Trials of one task on the testbed, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.topic_plan import assignment
from jobs.engine.stage import run_task
from jobs.testbed.handle import Testbed
from metrics.trial.client import ClientWindow
from metrics.trial.task import merge
from tests.support.offsets import end_offsets_of
from tests.support.patterns import plan

PARTITIONS_PER_BROKER = 2


class OneTask:
    """The barrier of a stage of one task."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        return [message]


class Bench:
    """A topic on the testbed, and trials on it."""

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
        np: int = 2,
        **fields: Any,
    ) -> ClientWindow:
        """Run a trial of 300 records/s of 1,000 B a producer, unless the fields say otherwise.

        Args:
            fields: as `tests.support.patterns.pattern` has them.
        """
        load = {"bpm": 1_000, "rate_records_per_s": 300.0, "pool_bytes": 200_000}
        times = {"warmup_s": 0.5, "measure_s": 1.5}
        trial = plan(
            topics=(self.topic,),
            leaders=tuple(self.assigned[p][0] for p in sorted(self.assigned)),
            brokers=self.brokers,
            start_lead_s=1.0,
            client_options=self.options,
            np=np,
            **({"trial_id": "t"} | load | times | fields),
        )
        row = run_task(trial, OneTask())
        assert row.error is None, row.error
        return merge([row])

    def end_offsets(self) -> dict[int, int]:
        return end_offsets_of(self.admin, self.topic, self.assigned)
