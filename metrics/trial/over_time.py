"""Latency over a measured window, slice by slice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.trial.adding import LARGEST
from metrics.trial.histogram import Histogram, Quantiles

SLICES_MAX = 120
"""Highest number of slices of a window, so that hours take no more space than minutes."""


def slice_length_s(window_s: float) -> int:
    """Length of each slice of a window [s]: one second, or more in a long window."""
    return max(1, math.ceil(window_s / SLICES_MAX))


@dataclass(frozen=True)
class SlicedTimes:
    """Latencies of the records of one task or several, by the slice of their acknowledgement.

    Attributes:
        slice_s: length of a slice [s].
        by_slice: number of the slice, from 0 → rounded latency [µs] → records.
    """

    slice_s: Annotated[int, LARGEST] = 1
    by_slice: dict[int, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class LatencySlice:
    """Latency of the records that were acknowledged in one slice of the window.

    Attributes:
        start_s: start of the slice, after the window's start [s].
        length_s: length of the slice; the window's last slice may be shorter [s].
        records: records acknowledged in the slice.
        p50_ms, p99_ms: the latency that 50 % and 99 % of them do not exceed, accurate to 2 %.
        max_ms: the longest latency, accurate to 2 %.
    """

    start_s: float
    length_s: float
    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def latency_slices(times: SlicedTimes, window_s: float) -> tuple[LatencySlice, ...]:
    """The slices of a window in their order; slices without acknowledged records are left out."""
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
    quantiles = Quantiles.of(found)
    return LatencySlice(
        start_s,
        min(length_s, window_s - start_s),
        found.count,
        quantiles.p50_ms,
        quantiles.p99_ms,
        quantiles.max_ms,
    )
