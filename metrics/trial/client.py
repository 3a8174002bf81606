"""The account of the measured window by the generator, for all tasks together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import NO_COLUMN, Column, Flat, Moment
from metrics.sources.hosts.sample import HostSample
from metrics.trial.clock import ClockChange, HostClock
from metrics.trial.consumption import GroupWindow
from metrics.trial.counts import Counts
from metrics.trial.histogram import Quantiles
from metrics.trial.over_time import LatencySlice
from metrics.trial.producer_shares import ProducerSpan
from metrics.trial.quota import QuotaWindow
from metrics.trial.sockets import KernelBuffers, SocketCounts

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

    @property
    def window_log_bytes(self) -> float | None:
        """Size of the record batches that were acknowledged in the window, as brokers count them;
        None where a client library does not report it [B].
        """
        counts = self.counts
        if counts.log_bytes is None:
            return None
        share = counts.acked_records / counts.acked_total if counts.acked_total else 0.0
        return share * counts.log_bytes

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
