"""The engine's own clients as a child process of the benchmark: of this commit or an older one.

An older commit's code comes first in PYTHONPATH. So this module uses only what
commits since 2053f564 have, and both names of what was renamed.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
import time
from typing import Any

from jobs.cluster.connect import connect
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.payload import Payload
from tests.bench.task import Task, die_with_parent, say
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


class Alone:
    """The barrier of a stage of one task."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        return [message]


def produce(task: Task) -> None:
    """Send like in a trial, by default with a schedule above any client's rate.

    At the end it states the p99 of how late batches were sent that no broker had blocked [ms].
    """
    from jobs.engine.stage import run_task

    report = run_task(plan_of(task), Alone())
    sent = report.produced
    if report.error or sent is None:
        sys.exit(report.error or "the engine reported nothing")
    late_p99_ms = sent.lateness_us.quantile(99) / 1e3
    say(sent.counts.acked_total * task.message_bytes, late_p99_ms=late_p99_ms)


def consume(task: Task) -> None:
    """Read the topic like in a trial: one group of one member, from the start."""
    from jobs.engine.clients.registry import CLIENTS
    from metrics.traffic.clients import ConsumerOptions
    from tests.bench.consumers import ends_of

    planned = plan_of(task, measure_s=0.001)
    plan = dataclasses.replace(
        planned,
        trial_id=f"bench-{os.getpid()}",
        pattern=dataclasses.replace(
            planned.pattern,
            phases=dataclasses.replace(planned.pattern.phases, drain_timeout_s=task.seconds_max),
            consumers=ConsumerOptions(groups=1, start="earliest"),
        ),
        consumer_tasks=1,
    )
    ends = ends_of(task)
    client: Any = CLIENTS["wire"].consumers(plan, 0)  # of this commit or an older one
    try:
        client.open()
        say(0)
        now = time.monotonic()
        reading = client.run(now, time.time() - now, None, lambda: ends)
        # The engine of an older commit returns the shares themselves, and has other names.
        shares = reading.shares if hasattr(reading, "shares") else reading.consumed.groups
        name = "read_ranges" if hasattr(shares[0], "read_ranges") else "stints"
        read = sum(part.records for share in shares for part in getattr(share, name))
        say(read * task.message_bytes)
    finally:
        client.close()


if __name__ == "__main__":
    die_with_parent()
    given = Task.from_text(sys.stdin.readline())
    {"producer": produce, "consumer": consume}[given.role](given)
