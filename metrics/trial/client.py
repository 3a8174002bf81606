"""What the clients of a trial did: counts, the reports of tasks, and their sum over the window."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from metrics.columns import NO_COLUMN, Column, Flat, Moment, column, restored
from metrics.sources.hosts import source as readings
from metrics.sources.hosts.source import HostSample
from metrics.trial.adding import (
    FIRST,
    LARGEST,
    Histogram,
    LatencySlice,
    ProducerShares,
    ProducerSpan,
    Quantiles,
    SlicedTimes,
    latency_slices,
    total,
)
from metrics.trial.consumption import GroupShare, GroupWindow, group_windows
from metrics.trial.sockets import KernelBuffers, SocketCounts, kernel_buffers_of
from metrics.windows.broker import over

Errors = dict[str, int]
"""Name of Kafka's error → records."""


def _errors() -> dict[int, Errors]:
    return defaultdict(Counter)


@dataclass
class ProducerAccounts:
    """Records by the number of the producer; producer n writes to topic n modulo the topics.

    Attributes:
        offered: records due by the schedule.
        sent: records handed to a socket, each counted once.
        acked: records acknowledged.
        failed: records that ended in an error, by the name of Kafka's error; like the following,
            only of producers with such records.
        retried: records sent again, counted each time.
        duplicates: highest number of records in the logs beyond the acknowledged and the failed.
    """

    offered: dict[int, int] = field(default_factory=Counter)
    sent: dict[int, int] = field(default_factory=Counter)
    acked: dict[int, int] = field(default_factory=Counter)
    failed: dict[int, Errors] = field(default_factory=_errors)
    retried: dict[int, int] = field(default_factory=Counter)
    duplicates: dict[int, int] = field(default_factory=Counter)


@dataclass
class BrokerAccount:
    """The producers' account for one broker and the partitions that it leads, in the window.

    Attributes:
        requests: produce requests handed to a socket.
        silent_s: longest time of any task without an answer although requests waited for one [s].
        waiting_connections: connections with unacknowledged records at the window's end.
        missing_records: records due and not acknowledged at the window's end.
    """

    requests: int = 0
    silent_s: Annotated[float, LARGEST] = 0.0
    waiting_connections: int = 0
    missing_records: int = 0


@dataclass
class Counts:
    """Counts of producers: of the running engine, of a task at its end, or of all tasks of a trial.

    The whole trial is warm-up, window and drain. Bytes are payload: keys and values.

    Attributes:
        offered_records: records due by the schedule inside the window.
        sent_records: records handed to a socket inside the window, each counted once.
        acked_records: records acknowledged inside the window.
        failed_records: records that ended in an error inside the window.
        offered_bytes: payload of the offered records.
        acked_bytes: payload of the acknowledged records.
        unsent_own_records: records due and unsent at the window's end although their connection
            had room, so that the generator held them up and not the brokers.
        log_bytes: size of the record batches acknowledged over the whole trial, as brokers
            count them; None where a client library does not report it.
        acked_by_partition: partition, numbered through all topics → records acknowledged over
            the whole trial.
        sent_by_partition: partition → records handed to a socket over the whole trial, each
            counted once.
        errors_by_partition: partition → name of Kafka's error → records that ended in it over
            the whole trial.
        retried_by_partition: partition → records sent again over the whole trial, counted each
            time.
        retry_errors: name of Kafka's error → records that were sent again because of it.
        duplicates_by_partition: partition → highest number of records in its log beyond the
            acknowledged and the failed, because an answer was lost and they were sent again.
        by_producer: the account of each producer over the whole trial.
        by_broker: broker id → the account for it; empty where a client library does not report it.
        control_records_by_partition: partition → records that ended our transactions in its log,
            commits and aborts, over the whole trial.
        transactions_committed: transactions whose commit was answered inside the window.
        transactions_aborted: transactions aborted over the whole trial, with those still open at
            the end of the drain.
        aborted_records: acknowledged records of aborted transactions over the whole trial, which
            consumers of committed records do not read.
        commit_s: time of the commits inside the window, summed over producers; a commit waits for
            the answers to all batches of its transaction and then for its own [s].
        transaction_log_records: records of our transactions in the brokers' own log of
            transactions over the whole trial.
        throttle_ms: throttle time that produce responses reported over the whole trial, summed.
        loop_busy: highest busy share of any task's event loop in the window [ratio].
        last_acked_s: time at which the last record was acknowledged, after the window's start [s];
            None without acknowledged records.
        cpu_s: CPU time of all tasks with producers inside the window [CPU-s].
        compression_ratio: size of the batches' records before over after compression, as
            encoded before the trial [ratio]; None when no task took part.
    """

    offered_records: int = 0
    sent_records: int = 0
    acked_records: int = 0
    failed_records: int = 0
    offered_bytes: int = 0
    acked_bytes: int = 0
    unsent_own_records: int = 0
    log_bytes: int | None = None
    acked_by_partition: dict[int, int] = field(default_factory=Counter)
    sent_by_partition: dict[int, int] = field(default_factory=Counter)
    errors_by_partition: dict[int, Errors] = field(default_factory=_errors)
    retried_by_partition: dict[int, int] = field(default_factory=Counter)
    retry_errors: dict[str, int] = field(default_factory=Counter)
    duplicates_by_partition: dict[int, int] = field(default_factory=Counter)
    by_producer: ProducerAccounts = field(default_factory=ProducerAccounts)
    by_broker: dict[int, BrokerAccount] = field(default_factory=dict)
    control_records_by_partition: dict[int, int] = field(default_factory=Counter)
    transactions_committed: int = 0
    transactions_aborted: int = 0
    aborted_records: int = 0
    commit_s: float = 0.0
    transaction_log_records: int = 0
    throttle_ms: int = 0
    loop_busy: Annotated[float, LARGEST] = 0.0
    last_acked_s: Annotated[float | None, LARGEST] = None
    cpu_s: float = 0.0
    compression_ratio: Annotated[float | None, FIRST] = None

    @column
    def produce_requests(self) -> int | None:
        """Produce requests handed to a socket inside the window; None where a client library does
        not report them.
        """
        sent = [each.requests for each in self.by_broker.values()]
        return sum(sent) if sent else None

    @column
    def records_per_request(self) -> float | None:
        """Mean size of a produce request in the window; it grows while requests wait [records]."""
        return self.sent_records / self.produce_requests if self.produce_requests else None

    @column
    def commit_mean_ms(self) -> float | None:
        """Mean time of a commit inside the window [ms]; None without commits."""
        commits = self.transactions_committed
        return 1000.0 * self.commit_s / commits if commits else None

    @property
    def control_records(self) -> int:
        """Records that ended our transactions in all logs, over the whole trial."""
        return sum(self.control_records_by_partition.values())

    @column
    def acked_total(self) -> int:
        """Records acknowledged over the whole trial."""
        return sum(self.acked_by_partition.values())

    @column
    def failed_by_partition(self) -> dict[int, int]:
        """Partition → records that ended in an error over the whole trial."""
        return {p: sum(errors.values()) for p, errors in self.errors_by_partition.items()}

    @column
    def failed_total(self) -> int:
        """Records that ended in an error over the whole trial."""
        return sum(self.failed_by_partition.values())

    @column
    def errors(self) -> dict[str, int]:
        """Name of Kafka's error → records that ended in it over the whole trial."""
        return dict(sum(map(Counter, self.errors_by_partition.values()), Counter()))

    @column
    def retried_records(self) -> int:
        """Records sent again over the whole trial, counted each time."""
        return sum(self.retried_by_partition.values())

    @column
    def duplicates_at_most(self) -> int:
        """Highest number of records in the logs beyond the acknowledged and the failed."""
        return sum(self.duplicates_by_partition.values())


@dataclass(frozen=True)
class QuotaWindow:
    """The CPU quota of the tasks' control groups, on one host.

    Attributes:
        host: the host where it stopped them most; None without a quota.
        throttled_share: share of the quota's periods in which it was used up and stopped the
            tasks; None without a quota [ratio].
        throttled_ms: mean time that a task lost in such a period, at most; None without any [ms].
    """

    host: str | None = None
    throttled_share: float | None = None
    throttled_ms: float | None = None


def quota_window(samples: Iterable[HostSample], start_s: float, end_s: float) -> QuotaWindow:
    """The quota inside [start_s, end_s].

    Args:
        samples: samples of the hosts with tasks, in any order, also from before and after.
    """
    by_host: dict[str, list[HostSample]] = {}
    for each in sorted(samples, key=lambda sample: sample.at_s):
        if start_s <= each.at_s <= end_s and readings.QUOTA_PERIODS in each.values:
            by_host.setdefault(each.host, []).append(each)
    found = []
    for host, own in by_host.items():
        periods, stopped, stopped_s = (
            own[-1].values[name] - own[0].values[name]
            for name in (readings.QUOTA_PERIODS, readings.THROTTLED_PERIODS, readings.THROTTLED_S)
        )
        if periods > 0:
            share = min(1.0, stopped / periods)
            found.append(QuotaWindow(host, share, over(1000.0 * stopped_s, stopped)))
    return max(found, key=lambda each: each.throttled_share or 0.0, default=QuotaWindow())


OFFSET_MAX_S = 0.25
"""Largest accepted offset of an executor's clock from the driver's [s].

Tasks start their load at a wall-clock time, and the brokers' samples have the driver's time. An
offset of this size moves a window's edges no more than the brokers' own meters, which are updated
when a request handler's poll of up to 0.3 s ends.
"""


@dataclass(frozen=True)
class ClockOffset:
    """The offset of a clock from the driver's, measured by a round trip to the driver.

    Attributes:
        offset_s: time by which the clock is ahead [s].
        error_s: half of the round trip, which bounds the error [s].
    """

    offset_s: float
    error_s: float

    @property
    def least_s(self) -> float:
        """The smallest possible distance from the driver's clock, in either direction [s]."""
        return max(0.0, abs(self.offset_s) - self.error_s)

    @property
    def text(self) -> str:
        """The offset in words, such as `1.300 s ahead of the driver's (± 0.002 s)`."""
        way = "ahead of" if self.offset_s > 0 else "behind"
        return f"{abs(self.offset_s):.3f} s {way} the driver's (± {self.error_s:.3f} s)"

    def since(self, earlier: ClockOffset) -> ClockOffset:
        """The change of the offset since an earlier measurement."""
        return ClockOffset(self.offset_s - earlier.offset_s, self.error_s + earlier.error_s)


CHANGE_MAX = 0.01
"""Largest accepted change of a clock's offset within a load, as a share of the measured window.

A clock that gains 1 % on the driver's may have run faster by as much, and a load that is paced by
it is larger by as much: less than the resolution of any search.
"""


@dataclass(frozen=True)
class HostClock:
    """The largest clock offset of one host in a trial.

    Attributes:
        host: name of the machine.
        clock: its offset from the driver's clock.
    """

    host: str
    clock: Annotated[ClockOffset, Flat()]


@dataclass(frozen=True)
class ClockChange:
    """The largest change of a host's clock within a load, measured before and after it.

    Attributes:
        host: name of the machine.
        gained_s: time that its clock gained on the driver's; below 0 where it lost [s].
        error_s: bound of the error [s].
    """

    host: str
    gained_s: float
    error_s: float

    @property
    def least_s(self) -> float:
        """The smallest possible change, in either direction [s]."""
        return max(0.0, abs(self.gained_s) - self.error_s)

    @property
    def text(self) -> str:
        """The change in words, such as `gained 0.400 s on the driver's (± 0.002 s)`."""
        verb = "gained" if self.gained_s > 0 else "lost"
        return f"{verb} {abs(self.gained_s):.3f} s on the driver's (± {self.error_s:.3f} s)"


def furthest(offsets: Iterable[ClockOffset]) -> ClockOffset | None:
    """The offset with the largest `least_s`; None without any."""
    return max(offsets, key=lambda each: each.least_s, default=None)


def host_clocks(offsets_by_task: Iterable[tuple[str, ClockOffset | None]]) -> tuple[HostClock, ...]:
    """The clock of each host that was compared, from the offsets of its tasks."""
    return tuple(HostClock(host, clock) for host, clock in _furthest_by_host(offsets_by_task))


def clock_changes(
    changes_by_task: Iterable[tuple[str, ClockOffset | None]],
) -> tuple[ClockChange, ...]:
    """The largest change of each host's clock, from the changes that its tasks saw."""
    return tuple(
        ClockChange(host, change.offset_s, change.error_s)
        for host, change in _furthest_by_host(changes_by_task)
    )


def _furthest_by_host(
    offsets_by_task: Iterable[tuple[str, ClockOffset | None]],
) -> list[tuple[str, ClockOffset]]:
    by_host: dict[str, list[ClockOffset]] = {}
    for host, offset in offsets_by_task:
        if offset is not None:
            by_host.setdefault(host, []).append(offset)
    worst = ((host, furthest(offsets)) for host, offsets in sorted(by_host.items()))
    return [(host, offset) for host, offset in worst if offset is not None]


EDGE_DEVIATIONS = 3.0
"""Standard deviations that the edges of a window may hide of a part of a mix."""
EDGE_SHARE_MAX = 0.25
"""Largest share that they may hide [ratio]."""


@dataclass(frozen=True)
class ClientWindow:
    """The account of all clients in the measured window [start_s, end_s).

    Attributes:
        start_s: start of the measured window.
        end_s: end of the measured window.
        counts: counts of the producers.
        latency: time from the intended send to the acknowledgement.
        lateness_p99_ms: delay between intended and actual send, of sends that no broker blocked;
            NaN without any.
        producer_share: the range of the rates that the single producers kept.
        task_errors: reasons why tasks could not take part or did not finish, one sentence each.
        groups: the account of each consumer group, with its lag.
        consumer_loop_busy: like `loop_busy`, for the tasks with consumers [ratio].
        clocks: clocks of the hosts with tasks, compared with the driver's.
        host_samples: samples of these hosts, also from before and after the window.
        producer_sockets: broker id → the producers' sockets to it; empty where a client library
            does not report them.
        consumer_sockets: broker id → the consumers' sockets to it; empty where a client library
            does not report them.
        kernel_buffers: the kernels' limits of socket buffers on the hosts with tasks.
        latency_over_time: the latency by slices of the window; empty in rows of older versions.
        lateness_p50_ms: like `lateness_p99_ms`, the time that 50 % do not exceed.
        lateness_p95_ms: like `lateness_p99_ms`, the time that 95 % do not exceed.
        lateness_p999_ms: like `lateness_p99_ms`, the time that 99.9 % do not exceed.
        quota: the CPU quota of the generator's own control groups.
        clock_changes: changes of these clocks from before the load to after it.
        parts: part of a mix → its own account; empty for other traffic.
        is_part: True for the account of one part of a mix.
    """

    start_s: Annotated[float, Moment(), Column("window_start")]
    end_s: Annotated[float, Moment(), Column("window_end")]
    counts: Annotated[Counts, Flat()] = field(default_factory=Counts)
    latency: Annotated[Quantiles, Flat("latency_", adds_meaning=True)] = field(
        default_factory=Quantiles
    )
    lateness_p99_ms: float = math.nan
    producer_share: Annotated[ProducerSpan, Flat("producer_share_")] = field(
        default_factory=ProducerSpan
    )
    task_errors: tuple[str, ...] = ()
    groups: tuple[GroupWindow, ...] = ()
    consumer_loop_busy: float = 0.0
    clocks: tuple[HostClock, ...] = ()
    host_samples: Annotated[tuple[HostSample, ...], NO_COLUMN] = ()
    producer_sockets: Mapping[int, SocketCounts] = field(default_factory=dict)
    consumer_sockets: Mapping[int, SocketCounts] = field(default_factory=dict)
    kernel_buffers: tuple[KernelBuffers, ...] = ()
    latency_over_time: tuple[LatencySlice, ...] = ()
    lateness_p50_ms: float = math.nan
    lateness_p95_ms: float = math.nan
    lateness_p999_ms: float = math.nan
    quota: Annotated[QuotaWindow, Flat("quota_", adds_meaning=True)] = field(
        default_factory=QuotaWindow
    )
    clock_changes: tuple[ClockChange, ...] = ()
    parts: Annotated[Mapping[str, ClientWindow], NO_COLUMN] = field(default_factory=dict)
    is_part: Annotated[bool, NO_COLUMN] = False

    @property
    def edge_share(self) -> float:
        """Share of a mix's records that the edges of the window may hide [ratio]; 0 without a mix.

        Batches that are open at an edge count on its other side. With few producers these do not
        even out: the difference of both edges deviates by a batch / √6 for each producer.
        """
        accounts = [self] if self.is_part else list(self.parts.values())
        offered = self.counts.offered_records
        if not accounts or not offered:
            return 0.0
        deviation = math.hypot(*(each._edge_deviation for each in accounts))
        return min(EDGE_SHARE_MAX, EDGE_DEVIATIONS * deviation / offered)

    @property
    def _edge_deviation(self) -> float:
        """Standard deviation of the records that the window's edges hide [records]."""
        each, count = self.counts.records_per_request, len(self.counts.by_producer.acked)
        return (each or 0.0) * math.sqrt(count / 6)

    def account_of_group(self, group: int) -> ClientWindow:
        """The account of the part that a consumer group reads; the whole one without a mix."""
        found = (
            each
            for each in self.parts.values()
            if any(group == own.counts.group for own in each.groups)
        )
        return next(found, self)

    def lateness_ms(self, quantile: str) -> float:
        """The generator's own delay at a quantile such as `p99` [ms]; NaN without any."""
        found: float = getattr(self, f"lateness_{quantile}_ms")
        return found

    @property
    def duration_s(self) -> float:
        """Length of the measured window [s]."""
        return self.end_s - self.start_s

    @property
    def offered_mb_per_s(self) -> float | None:
        """Payload that the schedule required [MB/s]; None when it required no records."""
        return self._mb_per_s(self.counts.offered_bytes) if self.counts.offered_records else None

    @property
    def achieved_mb_per_s(self) -> float | None:
        """Payload that was acknowledged [MB/s]; None when nothing was offered or sent."""
        return self._mb_per_s(self.counts.acked_bytes)

    def _mb_per_s(self, size_bytes: int) -> float | None:
        counts = self.counts
        if not (counts.offered_records or counts.sent_records) or self.duration_s <= 0:
            return None
        return size_bytes / self.duration_s / 1e6

    @property
    def achieved_share(self) -> float | None:
        """Acknowledged over offered records [ratio]; None when nothing was offered."""
        if not self.counts.offered_records:
            return None
        return self.counts.acked_records / self.counts.offered_records

    @property
    def shortfall_records(self) -> int:
        """Records offered and not acknowledged inside the window, at least 0."""
        return max(0, self.counts.offered_records - self.counts.acked_records)

    @property
    def held_up_records(self) -> int:
        """Records of the shortfall that the generator itself held up.

        Those that wait at the window's end may be more, as some of them were due before it.
        """
        return min(self.counts.unsent_own_records, self.shortfall_records)


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
