"""The generator's account of the measured window, all tasks together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import NO_COLUMN, Column, Flat, Moment
from metrics.sources.hosts.sample import HostSample
from metrics.trial.clock import HostClock
from metrics.trial.consumption import GroupWindow
from metrics.trial.counts import Counts
from metrics.trial.histogram import Quantiles
from metrics.trial.over_time import LatencySlice
from metrics.trial.producer_shares import ProducerSpan
from metrics.trial.sockets import KernelBuffers, SocketCounts


@dataclass(frozen=True)
class ClientWindow:
    """What clients did in the measured window [start_s, end_s).

    Attributes:
        start_s: when the measured window began.
        end_s: when it ended.
        counts: of the producers.
        latency: from the intended send time to the acknowledgement.
        lateness_p99_ms: how late sends left that no broker had blocked; NaN without any.
        producer_share: how well the single producers kept their rates.
        task_errors: why tasks could not take part or did not finish, a sentence each.
        groups: what each consumer group read, and how far it was behind.
        consumer_loop_busy: as `loop_busy`, of the tasks with consumers [ratio].
        clocks: of the hosts with tasks, against the driver's.
        host_samples: what these hosts showed, also before and after the window.
        producer_sockets: broker id → the producers' sockets to it; empty where a client library
            does not tell.
        consumer_sockets: likewise of the consumers.
        kernel_buffers: what the hosts with tasks let the buffers of sockets be.
        latency_over_time: the latency by slices of the window; empty in rows of older versions.
    """

    start_s: Annotated[float, Moment(), Column("window_start")]
    end_s: Annotated[float, Moment(), Column("window_end")]
    counts: Annotated[Counts, Flat()] = field(default_factory=Counts)
    latency: Annotated[Quantiles, Flat("latency_", is_told=True)] = field(default_factory=Quantiles)
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

    @property
    def duration_s(self) -> float:
        """Length of the measured window [s]."""
        return self.end_s - self.start_s

    @property
    def offered_mb_per_s(self) -> float | None:
        """Payload that the schedule asked for [MB/s]; None when it asked for nothing."""
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
        """Records offered and not acknowledged inside the window, never below 0."""
        return max(0, self.counts.offered_records - self.counts.acked_records)
