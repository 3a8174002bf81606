"""The counts of a trial's clients: the report of each task, and the sum of all reports on the
window.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from metrics.columns import NO_COLUMN, Column, Flat, Moment, column, restored
from metrics.common.grouping import grouped
from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.host_sample import HostSample
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
    """Numbers of records of each producer; the keys are the numbers of the producers. Producer n
    writes to topic n modulo the number of topics.

    Attributes:
        offered: records due by the schedule.
        sent: records handed to a socket, each counted once.
        acked: records acknowledged.
        failed: records that ended in an error, by the name of Kafka's error. A producer without
            failed records has no entry.
        retried: records sent again, counted each time. A producer without retries has no entry.
        duplicates: highest possible number of duplicates in the logs. A duplicate is a record in
            addition to the acknowledged and the failed records. A producer without duplicates has
            no entry.
    """

    offered: dict[int, int] = field(default_factory=Counter)
    sent: dict[int, int] = field(default_factory=Counter)
    acked: dict[int, int] = field(default_factory=Counter)
    failed: dict[int, Errors] = field(default_factory=_errors)
    retried: dict[int, int] = field(default_factory=Counter)
    duplicates: dict[int, int] = field(default_factory=Counter)


@dataclass
class BrokerAccount:
    """The producers' counts in the window for the partitions that one broker leads.

    Attributes:
        requests: produce requests handed to a socket.
        silent_s: longest time for which the requests of a task waited and no answer came [s].
        waiting_connections: connections with unacknowledged records at the window's end.
        missing_records: records that were due, but were not acknowledged at the window's end.
    """

    requests: int = 0
    silent_s: Annotated[float, LARGEST] = 0.0
    waiting_connections: int = 0
    missing_records: int = 0


@dataclass
class Counts:
    """Counts of the producers of a running engine, of a finished task, or of all tasks of a trial.

    The whole trial is its warm-up, its window and its drain. Bytes are payload, that is keys and
    values.

    Attributes:
        offered_records: records due by the schedule inside the window.
        sent_records: records handed to a socket inside the window, each counted once.
        acked_records: records acknowledged inside the window.
        failed_records: records that ended in an error inside the window.
        offered_bytes: payload of the offered records.
        acked_bytes: payload of the acknowledged records.
        unsent_own_records: records that were due, but were not sent at the window's end although
            their connection had room. The generator, not the brokers, delayed these records.
        log_bytes: size of the record batches acknowledged over the whole trial, as brokers count
            them; None if a client library does not report it.
        acked_by_partition: partition → records acknowledged over the whole trial. Partitions are
            numbered through all topics.
        sent_by_partition: partition → records handed to a socket over the whole trial, each record
            counted once.
        errors_by_partition: partition → name of Kafka's error → records that ended in this error
            over the whole trial.
        retried_by_partition: partition → records sent again over the whole trial, counted each
            time.
        retry_errors: name of Kafka's error → records that were sent again because of this error.
        duplicates_by_partition: partition → highest possible number of duplicates in the
            partition's log. Duplicates exist if an answer was lost and the records were sent again.
        by_producer: the counts of each producer over the whole trial.
        by_broker: broker id → the counts for this broker; empty if a client library does not report
            them.
        control_records_by_partition: partition → commit and abort records of our transactions in
            its log over the whole trial.
        transactions_committed: transactions whose commit was answered inside the window.
        transactions_aborted: transactions aborted over the whole trial, including transactions
            still open at the end of the drain.
        aborted_records: acknowledged records of the transactions that were aborted over the whole
            trial. Consumers that read only committed records skip the records of aborted
            transactions.
        commit_s: time [s] that the commits inside the window took, summed over producers. A commit
            waits for the answers to all batches of its transaction, and then for the answer to the
            commit request.
        transaction_log_records: records of our transactions in the brokers' own log of transactions
            over the whole trial.
        throttle_ms: throttle time that produce responses reported over the whole trial, summed.
        loop_busy: highest busy share of any task's event loop in the window [ratio].
        last_acked_s: time from the window's start to the last acknowledgement [s]; None without
            acknowledged records.
        cpu_s: CPU time [CPU-s] that all tasks with producers used inside the window.
        compression_ratio: ratio of two sizes of the records: the size before compression, divided
            by the size after compression [ratio]. The ratio is measured before the trial; None if
            no task took part.
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
        """Produce requests handed to a socket inside the window; None if a client library does not
        report them.
        """
        sent = [each.requests for each in self.by_broker.values()]
        return sum(sent) if sent else None

    @column
    def records_per_request(self) -> float | None:
        """Mean size of a produce request in the window [records]; the size grows while requests
        wait.
        """
        return self.sent_records / self.produce_requests if self.produce_requests else None

    @column
    def commit_mean_ms(self) -> float | None:
        """Mean time of a commit inside the window [ms]; None without commits."""
        commits = self.transactions_committed
        return 1000.0 * self.commit_s / commits if commits else None

    @property
    def control_records(self) -> int:
        """Commit and abort records of our transactions in all logs over the whole trial."""
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
        """Name of Kafka's error → records that ended in this error over the whole trial."""
        return dict(sum(map(Counter, self.errors_by_partition.values()), Counter()))

    @column
    def retried_records(self) -> int:
        """Records sent again over the whole trial, counted each time."""
        return sum(self.retried_by_partition.values())

    @column
    def duplicates_at_most(self) -> int:
        """Highest possible number of duplicates in the logs: records in addition to the
        acknowledged and the failed records.
        """
        return sum(self.duplicates_by_partition.values())


@dataclass(frozen=True)
class QuotaWindow:
    """The CPU quota of the control groups (cgroups) of the tasks on one host.

    Attributes:
        host: the host on which the quota throttled the tasks most; None without a quota.
        throttled_share: share of the quota's periods in which the quota was used up and throttled
            the tasks [ratio]; None without a quota.
        throttled_ms: upper bound of the mean time that a task lost in a throttled period [ms]; None
            without throttled periods.
    """

    host: str | None = None
    throttled_share: float | None = None
    throttled_ms: float | None = None


def quota_window(samples: Iterable[HostSample], start_s: float, end_s: float) -> QuotaWindow:
    """The CPU quota of the most throttled host in the window [start_s, end_s].

    Args:
        samples: samples of the hosts with tasks, in any order; samples outside the window are
            ignored.
    """
    by_host = grouped(
        (each.host, each)
        for each in sorted(samples, key=lambda sample: sample.at_s)
        if start_s <= each.at_s <= end_s and readings.QUOTA_PERIODS in each.values
    )
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
"""Largest accepted offset of an executor's clock from the driver's clock [s].

Tasks start their load at a wall-clock time, and the brokers' samples have the driver's time. The
meters of a broker have a delay of up to 0.3 s, because they are updated when a request handler's
poll ends. So a clock offset of 0.25 s changes the results less than the delay of the meters.
"""


@dataclass(frozen=True)
class ClockOffset:
    """The offset of a clock from the driver's clock, measured by a round trip to the driver.

    Attributes:
        offset_s: time by which the clock is ahead of the driver's clock [s]; below 0 if the clock
            is behind.
        error_s: bound of the error: half of the round trip [s].
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
"""Largest accepted change of a clock's offset during a load, as a share of the measured window.

If a clock gains 1 % on the driver's clock, a load that is paced by this clock may be 1 % larger
than planned. An error of 1 % is smaller than the resolution of any search.
"""


@dataclass(frozen=True)
class HostClock:
    """The largest clock offset of one host in a trial.

    Attributes:
        host: name of the machine.
        clock: offset of the machine's clock from the driver's clock.
    """

    host: str
    clock: Annotated[ClockOffset, Flat()]


@dataclass(frozen=True)
class ClockChange:
    """The largest change of a host's clock during a load: the difference between a measurement
    before the load and a measurement after it.

    Attributes:
        host: name of the machine.
        gained_s: time that the machine's clock gained on the driver's clock [s]; below 0 if the
            clock lost time.
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
    """The offset with the largest `least_s`; None without an offset."""
    return max(offsets, key=lambda each: each.least_s, default=None)


def host_clocks(offsets_by_task: Iterable[tuple[str, ClockOffset | None]]) -> tuple[HostClock, ...]:
    """The clock of each host, from the offsets that the host's tasks measured."""
    return tuple(HostClock(host, clock) for host, clock in _furthest_by_host(offsets_by_task))


def clock_changes(
    changes_by_task: Iterable[tuple[str, ClockOffset | None]],
) -> tuple[ClockChange, ...]:
    """The largest change of each host's clock, from the changes that the host's tasks measured."""
    return tuple(
        ClockChange(host, change.offset_s, change.error_s)
        for host, change in _furthest_by_host(changes_by_task)
    )


def _furthest_by_host(
    offsets_by_task: Iterable[tuple[str, ClockOffset | None]],
) -> list[tuple[str, ClockOffset]]:
    by_host = grouped((host, offset) for host, offset in offsets_by_task if offset is not None)
    return [
        (host, max(offsets, key=lambda each: each.least_s))
        for host, offsets in sorted(by_host.items())
    ]


EDGE_DEVIATIONS = 3.0
"""The number of records that may be uncounted at the edges of a window is assumed to be at most
this multiple of its standard deviation.
"""
EDGE_SHARE_MAX = 0.25
"""Largest share of a mix's records that may be uncounted at the edges of a window [ratio]."""


@dataclass(frozen=True)
class ClientWindow:
    """The counts and latencies of all clients in the measured window [start_s, end_s).

    Attributes:
        start_s: start of the measured window.
        end_s: end of the measured window.
        counts: counts of the producers.
        latency: time from the intended send to the acknowledgement.
        lateness_p99_ms: 99th percentile of the delay from the intended to the actual send; NaN
            without sends. Sends that a broker blocked are left out.
        producer_share: the range of the achieved shares of all producers.
        task_errors: reasons why tasks could not take part or did not finish, one sentence each.
        groups: the counts of each consumer group, with its lag.
        consumer_loop_busy: like `loop_busy`, for the tasks with consumers [ratio].
        clocks: clocks of the hosts with tasks, compared with the driver's clock.
        host_samples: samples of the hosts with tasks, also from before and after the window.
        producer_sockets: broker id → the producers' sockets to this broker; empty if a client
            library does not report them.
        consumer_sockets: broker id → the consumers' sockets to this broker; empty if a client
            library does not report them.
        kernel_buffers: the kernels' limits of socket buffers on the hosts with tasks.
        latency_over_time: the latency in each slice of the window; empty in rows of older versions.
        lateness_p50_ms: like `lateness_p99_ms`, but the median.
        lateness_p95_ms: like `lateness_p99_ms`, but the 95th percentile.
        lateness_p999_ms: like `lateness_p99_ms`, but the 99.9th percentile.
        quota: the CPU quota of the generator's own control groups.
        clock_changes: changes of the hosts' clocks from before the load to after it.
        parts: part of a mix → the window of its clients; empty for other traffic.
        is_part: True if this window has the clients of only one part of a mix.
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
        """Share of a mix's records that may be uncounted at the edges of the window [ratio]; 0
        without a mix.

        A batch that is open at an edge of the window is counted completely after this edge. So the
        window gains the records of batches that are open at its start, and lacks the records of
        batches that are open at its end. With few producers, the number of gained records may
        differ from the number of lacking records. For each producer, the standard deviation of this
        difference is the number of records of a batch divided by √6.
        """
        accounts = [self] if self.is_part else list(self.parts.values())
        offered = self.counts.offered_records
        if not accounts or not offered:
            return 0.0
        deviation = math.hypot(*(each._edge_deviation for each in accounts))
        return min(EDGE_SHARE_MAX, EDGE_DEVIATIONS * deviation / offered)

    @property
    def _edge_deviation(self) -> float:
        """Standard deviation of the number of uncounted records at the edges of a window."""
        each, count = self.counts.records_per_request, len(self.counts.by_producer.acked)
        return (each or 0.0) * math.sqrt(count / 6)

    def account_of_group(self, group: int) -> ClientWindow:
        """The window of one part of a mix: the part whose topics a consumer group reads. Without a
        mix, the result is this window.
        """
        found = (
            each
            for each in self.parts.values()
            if any(group == own.counts.group for own in each.groups)
        )
        return next(found, self)

    def lateness_ms(self, quantile: str) -> float:
        """A quantile [ms], such as `p99`, of the delays that the generator itself caused before
        sends; NaN without sends.
        """
        found: float = getattr(self, f"lateness_{quantile}_ms")
        return found

    @property
    def duration_s(self) -> float:
        """Length of the measured window [s]."""
        return self.end_s - self.start_s

    @property
    def offered_mb_per_s(self) -> float | None:
        """Payload that the schedule required [MB/s]; None if the schedule required no records."""
        return self._mb_per_s(self.counts.offered_bytes) if self.counts.offered_records else None

    @property
    def achieved_mb_per_s(self) -> float | None:
        """Acknowledged payload [MB/s]; None if no record was offered or sent."""
        return self._mb_per_s(self.counts.acked_bytes)

    def _mb_per_s(self, size_bytes: int) -> float | None:
        counts = self.counts
        if not (counts.offered_records or counts.sent_records) or self.duration_s <= 0:
            return None
        return size_bytes / self.duration_s / 1e6

    @property
    def achieved_share(self) -> float | None:
        """Acknowledged records divided by offered records [ratio]; None if none was offered."""
        return over(self.counts.acked_records, self.counts.offered_records)

    @property
    def shortfall_records(self) -> int:
        """Offered records minus acknowledged records inside the window, at least 0."""
        return max(0, self.counts.offered_records - self.counts.acked_records)

    @property
    def held_up_records(self) -> int:
        """Missing records (`shortfall_records`) that the generator itself delayed. The result is at
        most `shortfall_records`. The number of unsent records at the window's end can be higher,
        because some of them can be due before the window.
        """
        return min(self.counts.unsent_own_records, self.shortfall_records)


WINDOW_TOLERANCE_S = 0.001
"""Largest accepted time between the starts, or the ends, of the windows of two tasks [s]."""


@dataclass(frozen=True)
class ProducerReport:
    """The report of a task's producers.

    Attributes:
        counts: counts of all producers of the task.
        latency_us: time from the intended send to the acknowledgement [µs].
        latency_over_time: the latency in each slice of the window.
        lateness_us: time from the intended to the actual send [µs]; sends that a broker blocked are
            left out.
        shares: the achieved shares of the producers.
        sockets: broker id → sockets to this broker; empty if a client library does not report them.
    """

    counts: Counts = field(default_factory=Counts)
    latency_us: Histogram = field(default_factory=Histogram)
    lateness_us: Histogram = field(default_factory=Histogram)
    shares: ProducerShares = field(default_factory=ProducerShares)
    sockets: dict[int, SocketCounts] = field(default_factory=dict)
    latency_over_time: SlicedTimes = field(default_factory=SlicedTimes)


@dataclass(frozen=True)
class ConsumerReport:
    """The report of a task's members of consumer groups.

    Attributes:
        loop_busy: busy share of the event loop in the window [ratio].
        groups: the counts of the task's members, for each group.
        sockets: broker id → sockets to this broker; empty if a client library does not report them.
    """

    loop_busy: Annotated[float, LARGEST] = 0.0
    groups: tuple[GroupShare, ...] = ()
    sockets: dict[int, SocketCounts] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskReport:
    """The report of one task on one trial.

    If a task could not take part, only its identity, the planned window and `error` are set.

    Attributes:
        task_id: index of the task in the barrier stage, from 0.
        host: name of the machine that ran the task.
        start_s, end_s: start and end of the measured window, which is the same for all tasks [s
            since the epoch].
        produced, consumed: the reports of the task's producers and of its consumers.
        clock: clock of the task's host, compared with the driver's clock. The offset is measured
            before and after the load, and the larger offset counts.
        kernel_buffers: the limits of socket buffers on the task's host; None if they are unknown.
        error: the reason why the task could not take part or did not finish; None without an error.
        is_refused: True if `error` is an error of the configuration, which a retry cannot remove.
        host_samples: samples of the task's host during the load; only one task of each host reports
            them.
        clock_change: the change of the clock's offset from before the load to after it.
        part: name of the part of a mix that the task offers; empty for other traffic.
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
        """The report that a row contains; the row comes from `Row.asDict(recursive=True)` or
        Arrow's `to_pylist()`.
        """
        return restored(cls, row)


def merge(reports: Iterable[TaskReport]) -> ClientWindow:
    """Merge the reports of a trial's tasks into one window, which contains a window for each part
    of a mix.

    The error of each failed task is in `task_errors`.

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
