"""Latency over a measured window, one slice of it after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.trial.adding import LARGEST
from metrics.trial.histogram import Histogram, Quantiles

SLICES_MAX = 120
"""Slices of a window at most, so that hours take no more room than minutes."""


def slice_length_s(window_s: float) -> int:
    """Length of each slice of a window [s]: one second, or more in a window of many."""
    return max(1, math.ceil(window_s / SLICES_MAX))


@dataclass(frozen=True)
class SlicedTimes:
    """Times of the records of one task, or of several, by the slice in which they were answered.

    Attributes:
        slice_s: length of a slice [s].
        by_slice: number of the slice, from 0 → time [µs], rounded → records.
    """

    slice_s: Annotated[int, LARGEST] = 1
    by_slice: dict[int, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class LatencySlice:
    """Latency of the records that were acknowledged in one slice of the window.

    Attributes:
        start_s: when the slice began, after the window's start [s].
        length_s: how long it is; the window's last one may be cut short [s].
        records: that were acknowledged.
        p50_ms, p99_ms: what 50 and 99 % of them do not exceed, to 2 %.
        max_ms: the longest, to 2 %.
    """

    start_s: float
    length_s: float
    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def latency_slices(times: SlicedTimes, window_s: float) -> tuple[LatencySlice, ...]:
    """The slices of a window in their order; one in which nothing was acknowledged is left out."""
    return tuple(
        _slice(number * times.slice_s, times.slice_s, window_s, times.by_slice[number])
        for number in sorted(times.by_slice)
        if any(times.by_slice[number].values())
    )


def _slice(
    start_s: float, length_s: float, window_s: float, times_us: Mapping[int, int]
) -> LatencySlice:
    found = Histogram()
    for value, records in times_us.items():
        found.record(value, records)
    told = Quantiles.of(found)
    return LatencySlice(
        start_s,
        min(length_s, window_s - start_s),
        found.count,
        told.p50_ms,
        told.p99_ms,
        told.max_ms,
    )
