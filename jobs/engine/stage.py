"""One trial's load as one barrier stage: what each Spark task does.

The first tasks host producers, the others the members of consumer groups. Every task opens
its connections, encodes its pool or joins its groups; then all of them agree on the moment
at which they start. What comes back is one row per task (`metrics.trial.client.TaskRow`).
"""

from __future__ import annotations

import functools
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from jobs.engine.clients.chooser import client_of
from jobs.engine.clients.client import Outcome, ProducerClient
from jobs.engine.consumers.client import ConsumerClient, consumer_of
from jobs.engine.consumers.role import Acknowledged, consumer_row
from jobs.engine.driver_line import DriverLine
from jobs.engine.pattern import TrialPlan
from jobs.engine.pool import pool_of
from metrics.trial.by_producer import ByProducer
from metrics.trial.client import TASK_ROW_DDL, TaskRow, task_rows_to_batch
from metrics.trial.histograms import encode_histogram
from metrics.trial.producer_shares import ProducerShares
from search.errors import ConfigError, RedlineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Barrier(Protocol):
    """What a task needs of Spark's `BarrierTaskContext`."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """Index of this task in the stage."""
        ...

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        """The messages of all tasks, when all have called."""
        ...


def stage_frame(spark: SparkSession, plan: TrialPlan) -> DataFrame:
    """The stage that runs the plan, one row per task; nothing runs until it is collected."""
    count = plan.tasks + plan.consumer_tasks
    tasks = spark.range(0, count, 1, count)
    return tasks.mapInArrow(functools.partial(_map_partition, plan), TASK_ROW_DDL, barrier=True)


def _map_partition(plan: TrialPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import BarrierTaskContext

    for _ in batches:  # the ids only made the partitions
        continue
    row = run_task(plan, BarrierTaskContext.get())
    yield task_rows_to_batch([row])


def run_task(plan: TrialPlan, barrier: Barrier) -> TaskRow:
    """Prepare, agree on the start, run, report. Errors come back in the row, not raised.

    A raised error would end the stage of all tasks at once, in a Java stack trace.
    """
    task = barrier.partitionId()
    client: ProducerClient | ConsumerClient | None = None
    problem: str | None = None
    is_refused = False
    line: DriverLine | None = None
    try:
        if plan.control is not None:
            wait_s = plan.connect_timeout_s
            line = DriverLine.connect(plan.control, task, wait_s, time.monotonic)
        is_producer = task < plan.tasks
        client = client_of(plan, task) if is_producer else consumer_of(plan, task - plan.tasks)
        client.open()
    except ConfigError as error:
        problem, is_refused = str(error), True
    except (RedlineError, OSError, MemoryError) as error:
        problem = f"{type(error).__name__}: {error}"
    try:
        answers = [json.loads(a) for a in barrier.allGather(_readiness(problem))]
        start_wall_s = max(a["now_s"] for a in answers) + plan.start_lead_s
        problems = [a["problem"] for a in answers if a["problem"]]
        if problems or client is None:
            absent = _absent(plan, task, start_wall_s, problem or f"another task: {problems[0]}")
            return replace(absent, is_refused=is_refused)
        if line is not None:
            line.say(start_s=start_wall_s)
        acknowledged = Acknowledged(plan, barrier.allGather)
        return _run_client(plan, task, client, start_wall_s, line, acknowledged)
    finally:
        if line is not None:
            line.finish()
            line.close()
        if client is not None:
            client.close()


def _readiness(problem: str | None) -> str:
    return json.dumps({"now_s": time.time(), "problem": problem})


def _window(plan: TrialPlan, start_wall_s: float) -> tuple[float, float]:
    begin = start_wall_s + plan.warmup_s
    return begin, begin + plan.measure_s


def _absent(plan: TrialPlan, task: int, start_wall_s: float, problem: str) -> TaskRow:
    begin, end = _window(plan, start_wall_s)
    hosted = len(plan.producers_of(task)) if task < plan.tasks else 0
    return TaskRow(task, socket.gethostname(), hosted, begin, end, error=problem)


def _run_client(
    plan: TrialPlan,
    task: int,
    client: ProducerClient | ConsumerClient,
    start_wall_s: float,
    line: DriverLine | None,
    acknowledged: Acknowledged,
) -> TaskRow:
    wall_offset_s = time.time() - time.monotonic()
    start_s = start_wall_s - wall_offset_s
    late_s = time.monotonic() - start_s
    try:
        if late_s > 0:
            problem = f"left the barrier {late_s:.2f} s after the start"
            return _absent(plan, task, start_wall_s, problem)
        if task >= plan.tasks:
            consumers = cast("ConsumerClient", client)
            reading = consumers.run(start_s, wall_offset_s, line, acknowledged.targets)
            begin, _planned_end = _window(plan, start_wall_s)
            return consumer_row(plan, task, socket.gethostname(), reading, begin)
        outcome = cast("ProducerClient", client).run(start_s, wall_offset_s, line)
        acknowledged.mine = outcome.account.acked_by_partition
        return _report(plan, task, outcome, start_wall_s)
    except (RedlineError, OSError) as error:
        return _absent(plan, task, start_wall_s, f"{type(error).__name__}: {error}")
    finally:
        if plan.consumers is not None:
            acknowledged.finish()


def _report(plan: TrialPlan, task: int, outcome: Outcome, start_wall_s: float) -> TaskRow:
    begin, _planned_end = _window(plan, start_wall_s)
    account, pool = outcome.account, pool_of(plan.pattern)
    window = (outcome.window_start_s, outcome.window_end_s)
    due = [producer.records_due_between(*window) for producer in outcome.producers]
    offered = sum(due)
    shares = ProducerShares.of(
        (producer.index, producer.acked_records, records)
        for producer, records in zip(outcome.producers, due, strict=True)
    )
    row: dict[str, Any] = {
        "task_id": task,
        "host": socket.gethostname(),
        "np": len(outcome.producers),
        "start_s": begin,
        "end_s": begin + (outcome.window_end_s - outcome.window_start_s),
        "warmup_s": plan.warmup_s,
        "drain_s": outcome.drain_s,
        "offered_records": offered,
        "offered_bytes": round(offered * pool.mean_payload_bytes),
        "sent_records": account.sent_records,
        "acked_records": account.acked_records,
        "acked_bytes": account.acked_bytes,
        "failed_records": account.failed_records,
        "unsent_own_records": outcome.unsent_own_records,
        "latency_us": encode_histogram(account.latency.histogram),
        "lateness_us": encode_histogram(account.lateness.histogram),
        "loop_busy": outcome.loop_busy,
        "cpu_s": outcome.cpu_s,
        "throttle_ms": account.throttle_ms,
        "compression_ratio": pool.compression_ratio,
        "acked_total": account.acked_total,
        "failed_total": account.failed_total,
        "acked_by_partition": dict(account.acked_by_partition),
        "errors": dict(account.errors),
        "failed_by_partition": dict(account.failed_by_partition),
        "retried_records": account.retried_records,
        "retry_errors": dict(account.retry_errors),
        "errors_by_partition": {p: dict(each) for p, each in account.errors_by_partition.items()},
        "sent_by_partition": dict(account.sent_by_partition),
        "retried_by_partition": dict(account.retried_by_partition),
        "duplicates_by_partition": dict(account.duplicates_by_partition),
        "by_producer": _by_producer(outcome, plan.warmup_s),
        "producer_share_min": shares.lowest,
        "producer_share_max": shares.highest,
        "producer_worst": shares.worst,
        "producer_shares": shares.parts,
    }
    return TaskRow(**row)


def _by_producer(outcome: Outcome, warmup_s: float) -> ByProducer:
    span = (outcome.window_start_s - warmup_s, outcome.window_end_s)
    producers = outcome.producers
    return ByProducer(
        offered={p.index: p.records_due_between(*span) for p in producers},
        sent={p.index: p.sent_total for p in producers},
        acked={p.index: p.acked_total for p in producers},
        failed={p.index: dict(p.failed) for p in producers if p.failed},
        retried={p.index: p.retried_total for p in producers if p.retried_total},
        duplicates={p.index: p.duplicates_at_most for p in producers if p.duplicates_at_most},
    )
