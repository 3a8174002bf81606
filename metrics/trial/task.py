"""The report of an executor task on a trial, and the merge of all reports to one window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import pyarrow as pa

from metrics.arrow_schema import ddl, schema_of
from metrics.columns import restored, row_of
from metrics.sources.hosts.source import HostSample
from metrics.trial.adding import (
    LARGEST,
    Histogram,
    ProducerShares,
    ProducerSpan,
    Quantiles,
    SlicedTimes,
    latency_slices,
    total,
)
from metrics.trial.client import ClientWindow, ClockOffset, clock_changes, host_clocks, quota_window
from metrics.trial.consumption import GroupShare, group_windows
from metrics.trial.counts import Counts
from metrics.trial.sockets import KernelBuffers, SocketCounts, kernel_buffers_of

WINDOW_TOLERANCE_S = 0.001
"""Largest accepted distance between the windows of two tasks of one trial [s]."""


@dataclass(frozen=True)
class ProducerReport:
    """The account of a task's producers.

    Attributes:
        counts: counts of all producers of the task.
        latency_us: time from the intended send to the acknowledgement [µs].
        latency_over_time: the latency by slices of the window.
        lateness_us: time from the intended to the actual send, of sends that no broker blocked
            [µs].
        shares: the achieved shares of the single producers.
        sockets: broker id → sockets to it; empty where a client library does not report them.
    """

    counts: Counts = field(default_factory=Counts)
    latency_us: Histogram = field(default_factory=Histogram)
    lateness_us: Histogram = field(default_factory=Histogram)
    shares: ProducerShares = field(default_factory=ProducerShares)
    sockets: dict[int, SocketCounts] = field(default_factory=dict)
    latency_over_time: SlicedTimes = field(default_factory=SlicedTimes)


@dataclass(frozen=True)
class ConsumerReport:
    """The account of a task's members of consumer groups.

    Attributes:
        loop_busy: busy share of the event loop in the window [ratio].
        groups: the accounts of the members by group.
        sockets: broker id → sockets to it; empty where a client library does not report them.
    """

    loop_busy: Annotated[float, LARGEST] = 0.0
    groups: tuple[GroupShare, ...] = ()
    sockets: dict[int, SocketCounts] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskReport:
    """One task's account of one trial.

    A task that could not take part fills the identity, the planned window and `error`.

    Attributes:
        task_id: index of the task in the barrier stage, from 0.
        host: name of the machine that it ran on.
        start_s, end_s: the measured window, the same for all tasks [s since the epoch].
        produced, consumed: the accounts of its producers and consumers.
        clock: the larger offset of its host's clock, of those before and after the load.
        kernel_buffers: its host's limits of socket buffers; None where they are unknown.
        error: the reason why the task could not take part or did not finish, or None.
        is_refused: True for an error of the configuration, which a retry cannot remove.
        host_samples: samples of its host during the load, in the report of one task of each host.
        clock_change: the change of that offset from before the load to after it.
        part: name of the part of a mix that it offers; empty for other traffic.
    """

    task_id: int
    host: str
    start_s: float
    end_s: float
    produced: ProducerReport | None = None
    consumed: ConsumerReport | None = None
    clock: ClockOffset | None = None
    kernel_buffers: KernelBuffers | None = None
    error: str | None = None
    is_refused: bool = False
    host_samples: tuple[HostSample, ...] = ()
    clock_change: ClockOffset | None = None
    part: str = ""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> TaskReport:
        """The report from a row by `Row.asDict(recursive=True)` or Arrow's `to_pylist()`."""
        return restored(cls, row)


TASK_SCHEMA: pa.Schema = schema_of(TaskReport)
"""Arrow schema of a task's report."""

TASK_DDL: str = ddl(TASK_SCHEMA)
"""The same schema for `mapInArrow(f, schema)`."""


def reports_to_batch(reports: Sequence[TaskReport]) -> pa.RecordBatch:
    """The reports as one Arrow batch with `TASK_SCHEMA`, for `mapInArrow` to yield."""
    return pa.RecordBatch.from_pylist([row_of(each) for each in reports], schema=TASK_SCHEMA)


def merge(reports: Iterable[TaskReport]) -> ClientWindow:
    """The reports of all tasks of one trial, merged to one window, and those of each part of a mix.

    Tasks with an error are included: their errors are in `task_errors`.

    Raises:
        ValueError: there is no report, or the tasks measured different windows.
    """
    tasks = list(reports)
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
    produced = total([ProducerReport(), *(task.produced for task in tasks if task.produced)])
    consumed = total([ConsumerReport(), *(task.consumed for task in tasks if task.consumed)])
    late = Quantiles.of(produced.lateness_us)
    host_samples = tuple(sample for each in tasks for sample in each.host_samples)
    names = dict.fromkeys(each.part for each in tasks if each.part)
    parts = {
        name: replace(
            merge(replace(each, part="") for each in tasks if each.part == name), is_part=True
        )
        for name in names
    }
    return ClientWindow(
        first.start_s,
        first.end_s,
        produced.counts,
        Quantiles.of(produced.latency_us),
        late.p99_ms,
        ProducerSpan.of(produced.shares),
        tuple(f"task {each.task_id} on {each.host}: {each.error}" for each in tasks if each.error),
        group_windows(consumed.groups),
        consumed.loop_busy,
        host_clocks((each.host, each.clock) for each in tasks),
        host_samples,
        produced.sockets,
        consumed.sockets,
        kernel_buffers_of(each.kernel_buffers for each in tasks),
        latency_slices(produced.latency_over_time, first.end_s - first.start_s),
        late.p50_ms,
        late.p95_ms,
        late.p999_ms,
        quota_window(host_samples, first.start_s, first.end_s),
        clock_changes((each.host, each.clock_change) for each in tasks),
        parts=parts,
    )
