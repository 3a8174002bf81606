"""Trials with consumer groups on the testbed, with threads as the tasks of a stage."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.topic_plan import assignment
from jobs.engine.task.plan import TrialPlan
from jobs.testbed.handle import Testbed
from metrics.judging.thresholds import Thresholds
from metrics.judging.validity import consumption_mismatch
from metrics.traffic.clients import ConsumerOptions
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Evidence, Reason
from metrics.trial.task import merge
from tests.support import patterns
from tests.support.offsets import end_offsets_of
from tests.support.threads_barrier import run_stage

PARTITIONS_PER_BROKER = 2
_PATIENCE_S = 20.0


def mismatches(
    client: ClientWindow, before: Mapping[int, int], after: Mapping[int, int]
) -> list[Reason]:
    """The contradictions between the groups' reads and the end offsets around the trial."""
    ends = {partition: (before[partition], end) for partition, end in after.items()}
    return consumption_mismatch(Evidence(client, end_offsets=ends), Thresholds())


class ConsumerBench:
    """A topic on the testbed, and trials with producers and consumers of it."""

    def __init__(self, testbed: Testbed, admin: KafkaAdmin) -> None:
        self.admin = admin
        self.topic = f"consumers-{uuid.uuid4().hex[:8]}"
        self.assigned = assignment(testbed.broker_ids, PARTITIONS_PER_BROKER, 1)
        admin.create_topic(self.topic, self.assigned, {})
        self.brokers = admin.describe_cluster().addresses
        self.before = self.end_offsets()

    def plan(self, consumers: Mapping[str, Any], **fields: Any) -> TrialPlan:
        """A plan: two producers of 300 records/s of 1,000 B, and these consumers in two tasks."""
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
            "warmup_s": 0.5,
            "measure_s": 1.5,
            "start_lead_s": 1.0,
            "consumers": ConsumerOptions(**consumers),
            "consumer_tasks": 2,
            "end_offsets": self.before,
        }
        return patterns.plan(**(values | fields))

    def run(self, plan: TrialPlan, reading: TrialPlan | None = None) -> ClientWindow:
        """Run the plan, and check the groups' reads against the end offsets."""
        rows = run_stage(plan, reading)
        errors = [row.error for row in rows if row.error is not None]
        assert not errors, errors
        client = merge(rows)
        taken = client.counts.acked_total + client.counts.control_records
        assert taken == sum(self.growth().values()) > 0
        assert mismatches(client, self.before, self.end_offsets()) == []
        return client

    def growth(self) -> dict[int, int]:
        """Partition → growth of its end offset since the last plan."""
        return {p: end - self.before[p] for p, end in self.end_offsets().items()}

    def end_offsets(self) -> dict[int, int]:
        """Partition → end offset; waits until the brokers know the topic."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return end_offsets_of(self.admin, self.topic, self.assigned)
            except AdminError:
                if time.monotonic() > deadline_s:
                    raise

    def committed(self, plan: TrialPlan, group: int) -> dict[int, int]:
        """Partition → committed offset of the group."""
        answer = self.admin.client.list_group_offsets([plan.group_id(group)])
        offsets = answer[plan.group_id(group)]
        return {each.partition: at.offset for each, at in offsets.items()}
