"""The account of the measured window by the generator, for all tasks together.

The CPU quota of the generator's control groups in the measured window.

The clocks of the machines with tasks, compared with the driver's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import NO_COLUMN, Column, Flat, Moment
from metrics.sources.hosts import source as readings
from metrics.sources.hosts.source import HostSample
from metrics.trial.adding import LatencySlice, ProducerSpan, Quantiles
from metrics.trial.consumption import GroupWindow
from metrics.trial.counts import Counts
from metrics.trial.sockets import KernelBuffers, SocketCounts
from metrics.windows.spans import over


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
