"""Plans of trials that make the engine send or read as fast as it can, or at a rate."""

from __future__ import annotations

import inspect
from typing import Any

from jobs.cluster.connect import connect
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.payload import Payload
from tests.bench.task import Task
from tests.support.patterns import pattern, plan

RATE_BYTES_PER_S = 20e9
"""A rate above any client's, so that its producer always has due records [B/s]."""


def plan_of(task: Task, measure_s: float | None = None) -> TrialPlan:
    """The plan of producers at the task's rate, by default one that always has full batches."""
    is_paced = task.records_per_s > 0
    rate = task.records_per_s if is_paced else RATE_BYTES_PER_S / task.message_bytes
    fields: dict[str, Any] = {
        "producers": task.producers,
        "message_bytes": task.message_bytes,
        "rate_records_per_s": rate,
        "batch_size": task.batch_bytes,
        "linger_ms": task.linger_ms,
        "buffer_memory": 67_108_864,
    }
    if "np" in inspect.signature(pattern).parameters:  # the names of older commits
        fields["np"], fields["bpm"] = fields.pop("producers"), fields.pop("message_bytes")
    options = dict(task.options)
    if "payload" in options:
        options["payload"] = Payload(**options["payload"])
    with connect(task.bootstrap, task.connection) as admin:
        brokers = admin.describe_cluster()
        seen = admin.partitions_seen_by(brokers.broker_ids[0], [task.topic])[task.topic] or {}
    return plan(
        trial_id="bench",
        topics=(task.topic,),
        leaders=tuple(seen[partition].leader for partition in sorted(seen)),
        brokers=brokers.addresses,
        warmup_s=task.warmup_s,
        measure_s=task.seconds_max if measure_s is None else measure_s,
        start_lead_s=0.1,
        client_options=task.connection,
        **(fields | options),
    )
