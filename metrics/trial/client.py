"""What an executor task reports of a trial, and how the reports of all tasks become one.

`TaskRow` is the one definition: the Arrow schema and the Spark DDL are derived from it.
Counts are whole numbers; histograms travel as base64-encoded HdrHistograms, because
quantiles of tasks cannot be averaged but histograms can be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from metrics.tables.columns import ddl, fields_of, plain
from metrics.trial.by_producer import ByProducer
from metrics.trial.consumption import GroupShare
from metrics.trial.evidence import ClientWindow
from metrics.trial.group_windows import group_windows
from metrics.trial.histograms import merged_histogram, quantile_ms
from metrics.trial.producer_shares import ProducerShares
from metrics.trial.tallies import Errors, errors_from, errors_summed, summed

WINDOW_TOLERANCE_S = 0.001
"""How far the windows of two tasks of one trial may lie apart [s]."""


@dataclass(frozen=True)
class TaskRow:
    """One task's account of one trial: its np producers together.

    `*_records` and `*_bytes` count inside the measured window [start_s, end_s);
    `*_total` count over the whole trial, warm-up and drain included. Bytes are payload
    (keys and values). A task that could not take part fills the identity, the planned
    window and `error`, and leaves the rest.

    Attributes:
        task_id: index of the task in the barrier stage, from 0.
        host: name of the machine that it ran on.
        np: producers that this task hosted.
        start_s, end_s: the measured window, the same for all tasks [s since the epoch].
        warmup_s: load before the window [s].
        drain_s: time after the window until the last answer [s].
        offered_records: due by the schedule.
        sent_records: handed to a socket.
        acked_records: acknowledged.
        failed_records: ended in an error.
        offered_bytes, acked_bytes: payload of offered and acked records [B].
        unsent_own_records: due and unsent at the window's end although their
            connection had room, so held up by the generator and not by the brokers.
        latency_us: encoded histogram, intended send time to acknowledgement [µs].
        lateness_us: encoded histogram, intended to actual send time, of sends that no
            broker had blocked [µs].
        loop_busy: share of the window spent outside of waiting [ratio].
        cpu_s: CPU time of the task's process inside the window [CPU-s].
        throttle_ms: throttle time that produce responses reported, summed [ms].
        acked_total, failed_total: records over the whole trial.
        acked_by_partition: partition → records acknowledged over the whole trial.
        errors: Kafka error name → records, over the whole trial.
        failed_by_partition: partition → records that ended in an error.
        retried_records: records sent again, each time, over the whole trial.
        retry_errors: Kafka error name → records that were sent again because of it.
        errors_by_partition: partition → Kafka error name → records.
        sent_by_partition: partition → records handed to a socket, each once.
        retried_by_partition: partition → records sent again, each time.
        duplicates_by_partition: partition → how many records its log may hold beyond the
            acknowledged and the failed, because an answer was lost and they were sent again.
        by_producer: the account of each producer.
        producer_share_min, producer_share_max: of the single producers, acknowledged inside
            the window over due inside it [ratio].
        producer_worst: index of the producer that is farthest from 1.
        producer_shares: encoded histogram of these shares [millionths].
        error: why the task could not take part or did not finish, or None.
        notes: what the generator wants remembered, one sentence, or None.
        role: `producer`, or `consumer` of a task that hosts members of consumer groups.
        groups: what those members read, by group.
        compression_ratio: size of the records before over after compression, as they were
            encoded before the trial [ratio]; None of a task without producers.
        is_refused: the error is one of the configuration, which comes again with each try.
    """

    task_id: int
    host: str
    np: int
    start_s: float
    end_s: float
    warmup_s: float = 0.0
    drain_s: float = 0.0
    offered_records: int = 0
    sent_records: int = 0
    acked_records: int = 0
    failed_records: int = 0
    offered_bytes: int = 0
    acked_bytes: int = 0
    unsent_own_records: int = 0
    latency_us: str = ""
    lateness_us: str = ""
    loop_busy: float = 0.0
    cpu_s: float = 0.0
    throttle_ms: int = 0
    acked_total: int = 0
    failed_total: int = 0
    acked_by_partition: Mapping[int, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    notes: str | None = None
    failed_by_partition: Mapping[int, int] = field(default_factory=dict)
    retried_records: int = 0
    retry_errors: Mapping[str, int] = field(default_factory=dict)
    duplicates_by_partition: Mapping[int, int] = field(default_factory=dict)
    errors_by_partition: Mapping[int, Errors] = field(default_factory=dict)
    sent_by_partition: Mapping[int, int] = field(default_factory=dict)
    retried_by_partition: Mapping[int, int] = field(default_factory=dict)
    by_producer: ByProducer = field(default_factory=ByProducer)
    producer_share_min: float | None = None
    producer_share_max: float | None = None
    producer_worst: int | None = None
    producer_shares: str = ""
    role: str = "producer"
    groups: tuple[GroupShare, ...] = ()
    compression_ratio: float | None = None
    is_refused: bool = False

    @classmethod
    def from_mapping(cls, row: Mapping[str, Any]) -> TaskRow:
        """From a dict, as `Row.asDict()`, Arrow's `to_pylist()` or `to_dict` give it.

        Raises:
            TypeError: when a name is unknown or one without a default is missing.
        """
        values = dict(row)
        for name in _MAPS:
            values[name] = dict(values.get(name) or {})  # Arrow lists a map's pairs
        values["errors_by_partition"] = errors_from(values.get("errors_by_partition"))
        values["by_producer"] = ByProducer.from_mapping(values.get("by_producer"))
        values["groups"] = tuple(map(GroupShare.from_mapping, values.get("groups") or ()))
        return cls(**values)

    @property
    def shares(self) -> ProducerShares:
        """How well each of the producers kept its rate."""
        edges = (self.producer_share_min, self.producer_share_max)
        return ProducerShares(*edges, self.producer_worst, self.producer_shares)

    def to_dict(self) -> dict[str, Any]:
        """The row by column names."""
        return asdict(self)


_MAPS = (
    "acked_by_partition",
    "errors",
    "failed_by_partition",
    "retry_errors",
    "sent_by_partition",
    "retried_by_partition",
    "duplicates_by_partition",
)

TASK_ROW_SCHEMA: pa.Schema = pa.schema(fields_of(TaskRow))
"""Arrow schema of a task's row."""

TASK_ROW_DDL: str = ddl(TASK_ROW_SCHEMA)
"""The same schema for `mapInArrow(f, schema)`."""


def task_rows_to_batch(rows: Sequence[TaskRow]) -> pa.RecordBatch:
    """The rows as one Arrow batch with `TASK_ROW_SCHEMA`, for `mapInArrow` to yield."""
    return pa.RecordBatch.from_pylist([plain(row) for row in rows], schema=TASK_ROW_SCHEMA)


def merge(rows: Iterable[TaskRow | Mapping[str, Any]]) -> ClientWindow:
    """All tasks' rows of one trial as one window.

    Quantiles come from the added histograms and are NaN where nothing was recorded.
    Tasks with an error are not left out: their text stands in `task_errors`.

    Raises:
        ValueError: when there is no row, or the tasks measured different windows.
    """
    tasks = [row if isinstance(row, TaskRow) else TaskRow.from_mapping(row) for row in rows]
    if not tasks:
        raise ValueError("no task reported; expected one row per task of the stage")
    first = tasks[0]
    for task in tasks:
        apart_s = max(abs(task.start_s - first.start_s), abs(task.end_s - first.end_s))
        if apart_s > WINDOW_TOLERANCE_S:
            raise ValueError(
                f"tasks {first.task_id} and {task.task_id} measured windows {apart_s:.3f} s "
                f"apart; expected one window for all tasks of a trial"
            )
    shares = ProducerShares.merged([task.shares for task in tasks])
    duplicates = summed(task.duplicates_by_partition for task in tasks)
    latency = merged_histogram(task.latency_us for task in tasks)
    lateness = merged_histogram(task.lateness_us for task in tasks)
    return ClientWindow(
        start_s=first.start_s,
        end_s=first.end_s,
        np=sum(task.np for task in tasks),
        offered_records=sum(task.offered_records for task in tasks),
        sent_records=sum(task.sent_records for task in tasks),
        acked_records=sum(task.acked_records for task in tasks),
        failed_records=sum(task.failed_records for task in tasks),
        offered_bytes=sum(task.offered_bytes for task in tasks),
        acked_bytes=sum(task.acked_bytes for task in tasks),
        unsent_own_records=sum(task.unsent_own_records for task in tasks),
        lateness_p99_ms=quantile_ms(lateness, 99.0),
        loop_busy=max((task.loop_busy for task in tasks if task.role == "producer"), default=0.0),
        latency_p50_ms=quantile_ms(latency, 50.0),
        latency_p95_ms=quantile_ms(latency, 95.0),
        latency_p99_ms=quantile_ms(latency, 99.0),
        latency_max_ms=quantile_ms(latency, 100.0),
        acked_total=sum(task.acked_total for task in tasks),
        failed_total=sum(task.failed_total for task in tasks),
        acked_by_partition=summed(task.acked_by_partition for task in tasks),
        errors=summed(task.errors for task in tasks),
        task_errors=tuple(
            f"task {task.task_id} on {task.host}: {task.error}" for task in tasks if task.error
        ),
        throttle_ms=sum(task.throttle_ms for task in tasks),
        cpu_s=sum(task.cpu_s for task in tasks if task.role == "producer"),
        latency_p999_ms=quantile_ms(latency, 99.9),
        failed_by_partition=summed(task.failed_by_partition for task in tasks),
        retried_records=sum(task.retried_records for task in tasks),
        retry_errors=summed(task.retry_errors for task in tasks),
        duplicates_at_most=sum(duplicates.values()),
        duplicates_by_partition=duplicates,
        errors_by_partition=errors_summed(task.errors_by_partition for task in tasks),
        sent_by_partition=summed(task.sent_by_partition for task in tasks),
        retried_by_partition=summed(task.retried_by_partition for task in tasks),
        by_producer=ByProducer.merged(task.by_producer for task in tasks),
        producer_share_min=shares.lowest,
        producer_share_p50=shares.quantile(50.0),
        producer_share_max=shares.highest,
        producer_worst=shares.worst,
        groups=group_windows(share for task in tasks for share in task.groups),
        consumer_loop_busy=max(
            (task.loop_busy for task in tasks if task.role == "consumer"), default=0.0
        ),
        compression_ratio=next(
            (task.compression_ratio for task in tasks if task.compression_ratio is not None), None
        ),
    )
