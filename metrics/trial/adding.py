"""The sum of the tasks' counts; the annotation of a field states how it adds up.

Numbers are summed, maps are summed key by key, tuples are joined, histograms and dataclasses are
added. `Annotated` with one of the words below states another rule.

Histograms that merge over tasks and never overflow (HdrHistogram).

Latency over a measured window, slice by slice.

The rates that the single producers kept, in a few numbers for any number of producers.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any, TypeVar, get_type_hints

from hdrh.histogram import HdrHistogram

from metrics.columns import Column

LARGEST = "largest"
"""The largest value of all tasks counts."""
SMALLEST = "smallest"
"""The smallest value of all tasks counts."""
FIRST = "first"
"""All tasks have the same value, or None."""
POINT_BY_POINT = "point by point"
"""Series are summed point by point, up to the end of the shortest."""
_WORDS = (LARGEST, SMALLEST, FIRST, POINT_BY_POINT)

Part = TypeVar("Part")


def total(parts: Iterable[Part]) -> Part:
    """The sum of all parts, of the type of each part.

    Raises:
        ValueError: there are no parts.
    """
    listed = list(parts)
    if not listed:
        raise ValueError("there are no parts to add up; expected at least one")
    found: Part = _added(listed, None)
    return found


def _added(parts: Sequence[Any], rule: str | None) -> Any:
    known = [part for part in parts if part is not None]
    if not known or rule == FIRST:
        return known[0] if known else None
    if rule == LARGEST:
        return max(known)
    if rule == SMALLEST:
        return min(known)
    first = known[0]
    if isinstance(first, tuple):
        if rule == POINT_BY_POINT:
            return tuple(sum(point) for point in zip(*known, strict=False))
        return tuple(each for part in known for each in part)
    if isinstance(first, Mapping):
        return _maps_added(known)
    if hasattr(first, "plus"):
        return reduce(lambda one, other: one.plus(other), known)
    if dataclasses.is_dataclass(first):
        kind: Any = type(first)
        rules = _rules(kind)
        values = {
            item.name: _added([getattr(part, item.name) for part in known], rules[item.name])
            for item in dataclasses.fields(kind)
        }
        return kind(**values)
    return sum(known[1:], start=first)


def _maps_added(maps: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, list[Any]] = {}
    for each in maps:
        for key, value in each.items():
            found.setdefault(key, []).append(value)
    return {key: _added(values, None) for key, values in found.items()}


@functools.cache
def _rules(kind: Any) -> dict[str, str | None]:
    """Field → the word that states how it adds up, or None."""
    hints = get_type_hints(kind, include_extras=True)
    marks = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: next((m for m in own if m in _WORDS), None) for name, own in marks.items()}


HIGHEST = 3_600_000_000
"""The highest value that is distinguished: one hour, for times in microseconds."""

_LOWEST = 1
_DIGITS = 3


class Histogram:
    """Counts of values from 1 to 3.6e9 to three digits: times [µs], or shares [millionths].

    Quantiles of tasks cannot be averaged, but histograms can be added. They are sent as base64.
    """

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._counts = HdrHistogram(_LOWEST, HIGHEST, _DIGITS)
        for value in values:
            self.record(value)

    def record(self, value: float, count: int = 1) -> None:
        """Count a value; a value outside of the range counts as the nearest edge.

        HdrHistogram refuses values beyond its range, which would lose the longest times of an
        overload.
        """
        self._counts.record_value(min(max(round(value), _LOWEST), HIGHEST), count)

    @property
    def count(self) -> int:
        """Number of recorded values."""
        return int(self._counts.get_total_count())

    def quantile(self, percentile: float) -> float:
        """The value that `percentile` percent do not exceed; NaN for an empty histogram."""
        if not self.count:
            return math.nan
        return min(float(self._counts.get_value_at_percentile(percentile)), HIGHEST)

    def plus(self, other: Histogram) -> Histogram:
        """The sum of both histograms."""
        total = Histogram()
        total._counts.add(self._counts)
        total._counts.add(other._counts)
        return total

    def to_text(self) -> str:
        """The histogram as base64; an empty text for an empty histogram."""
        if not self.count:
            return ""
        encoded: bytes = self._counts.encode()
        return encoded.decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> Histogram:
        """The histogram from a text by `to_text`."""
        histogram = cls()
        if text:
            histogram._counts.decode_and_add(text.encode("ascii"))
        return histogram

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.to_text() == other.to_text()

    __hash__ = None  # type: ignore[assignment] # it changes

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Histogram.from_text, (self.to_text(),)


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of times; NaN where nothing was recorded.

    Attributes:
        p50_ms: the time that 50 % do not exceed.
        p95_ms: the time that 95 % do not exceed.
        p99_ms: the time that 99 % do not exceed.
        p999_ms: the time that 99.9 % do not exceed.
        max_ms: the longest time.
    """

    p50_ms: float = math.nan
    p95_ms: float = math.nan
    p99_ms: float = math.nan
    p999_ms: float = math.nan
    max_ms: float = math.nan

    @classmethod
    def of(cls, times_us: Histogram) -> Quantiles:
        """The quantiles of a histogram of times [µs]."""
        percentiles = (50.0, 95.0, 99.0, 99.9, 100.0)
        return cls(*(times_us.quantile(each) / 1000.0 for each in percentiles))


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
    slices = []
    for number, times_us in sorted(times.by_slice.items()):
        found, start_s = Histogram(), number * times.slice_s
        for value, records in times_us.items():
            found.record(value, records)
        if found.count:
            quantiles, length_s = Quantiles.of(found), min(times.slice_s, window_s - start_s)
            shown = (quantiles.p50_ms, quantiles.p99_ms, quantiles.max_ms)
            slices.append(LatencySlice(start_s, length_s, found.count, *shown))
    return tuple(slices)


_PARTS = 1_000_000


@dataclass(frozen=True)
class ProducerShares:
    """Achieved shares of producers: acknowledged inside the window over due inside it [ratio].

    Attributes:
        lowest, highest: the lowest and the highest share of a producer.
        worst: index of the producer whose share is farthest from 1.
        parts: the shares of all producers [millionths].
    """

    lowest: float | None = None
    highest: float | None = None
    worst: int | None = None
    parts: Histogram = field(default_factory=Histogram)

    @classmethod
    def of(cls, producers: Iterable[tuple[int, int, int]]) -> ProducerShares:
        """The shares from (index, acknowledged, due), without producers that had no due records."""
        shares = [(acked / due, index) for index, acked, due in producers if due > 0]
        if not shares:
            return cls()
        _, worst = max((abs(share - 1.0), index) for share, index in shares)
        parts = Histogram(share * _PARTS for share, _ in shares)
        return cls(min(shares)[0], max(shares)[0], worst, parts)

    def plus(self, other: ProducerShares) -> ProducerShares:
        """The shares together with those of another task."""
        if self.lowest is None or other.lowest is None:
            return other if self.lowest is None else self
        assert self.highest is not None and other.highest is not None, "known with the lowest"
        return ProducerShares(
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            max(self, other, key=lambda each: each.farthest).worst,
            self.parts.plus(other.parts),
        )

    @property
    def farthest(self) -> float:
        """Distance of the worst producer from its rate [ratio]."""
        edges = [edge for edge in (self.lowest, self.highest) if edge is not None]
        return max((abs(edge - 1.0) for edge in edges), default=0.0)

    @property
    def median(self) -> float | None:
        """The share that half of the producers do not exceed, accurate to 0.1 %."""
        median = self.parts.quantile(50.0)
        return None if math.isnan(median) else median / _PARTS


@dataclass(frozen=True)
class ProducerSpan:
    """The range of the rates that the single producers kept.

    Attributes:
        min: the lowest share of a producer: acknowledged inside the window over due inside it
            [ratio].
        p50: the share that half of the producers do not exceed [ratio].
        max: the highest share of a producer [ratio].
        worst: index of the producer whose share is farthest from 1.
    """

    min: float | None = None
    p50: float | None = None
    max: float | None = None
    worst: Annotated[int | None, Column("producer_worst")] = None

    @classmethod
    def of(cls, shares: ProducerShares) -> ProducerSpan:
        """The range of the shares of all producers of a trial."""
        return cls(shares.lowest, shares.median, shares.highest, shares.worst)
