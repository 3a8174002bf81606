"""The sum of the counts of all tasks of a trial. Each field has a rule for the addition of its
values.

By default numbers are summed, maps are summed key by key, tuples are joined, and histograms and
dataclasses are added. `Annotated` with one of the constants of this module replaces the default
rule for a field.

`Histogram` counts values in an HdrHistogram, and can be added to the histogram of another task.

`SlicedTimes` and `LatencySlice` describe the latency in each slice of a measured window.

`ProducerShares` summarizes the achieved rates of any number of producers in a few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, reduce
from typing import Annotated, Any, TypeVar, get_type_hints

from hdrh.histogram import HdrHistogram

from metrics.columns import Column
from metrics.common.grouping import grouped

LARGEST = "largest"
"""Rule for a field whose value for all tasks is the largest value of a task, not the sum."""
SMALLEST = "smallest"
"""Rule for a field whose value for all tasks is the smallest value of a task, not the sum."""
FIRST = "first"
"""Rule for a field that has one value or None in all tasks: the first value that is not None."""
POINT_BY_POINT = "point by point"
"""Rule for a field with a series: the series of all tasks are summed point by point, up to the end
of the shortest series."""
_WORDS = (LARGEST, SMALLEST, FIRST, POINT_BY_POINT)

Part = TypeVar("Part")


def total(parts: Iterable[Part]) -> Part:
    """Return the sum of all parts, which has the type of the parts.

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
        by_key = grouped(item for each in known for item in each.items())
        return {key: _added(values, None) for key, values in by_key.items()}
    if hasattr(first, "plus"):
        return reduce(lambda one, other: one.plus(other), known)
    if is_dataclass(first):
        kind: Any = type(first)
        rules = _rules(kind)
        values = {
            item.name: _added([getattr(part, item.name) for part in known], rules[item.name])
            for item in fields(kind)
        }
        return kind(**values)
    return sum(known[1:], start=first)


@cache
def _rules(kind: Any) -> dict[str, str | None]:
    """Field → the constant that selects the field's rule; None for the default rule."""
    hints = get_type_hints(kind, include_extras=True)
    marks = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: next((m for m in own if m in _WORDS), None) for name, own in marks.items()}


HIGHEST = 3_600_000_000
"""Highest value that a histogram distinguishes; a larger value is counted as this value. For times
[µs], the highest value is one hour.
"""

_LOWEST = 1
_DIGITS = 3


class Histogram:
    """Histogram of times [µs] or shares [millionths] from 1 to 3.6e9, accurate to three digits.

    Quantiles of several tasks cannot be averaged, but their histograms can be added. Tasks send a
    histogram as base64 text.
    """

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._counts = HdrHistogram(_LOWEST, HIGHEST, _DIGITS)
        for value in values:
            self.record(value)

    def record(self, value: float, count: int = 1) -> None:
        """Count a value; a value outside the range counts as the nearest end of the range.

        HdrHistogram itself refuses values outside its range, so the longest times of an overload
        would be missing.
        """
        self._counts.record_value(min(max(round(value), _LOWEST), HIGHEST), count)

    @property
    def count(self) -> int:
        """Number of recorded values."""
        return int(self._counts.get_total_count())

    def quantile(self, percentile: float) -> float:
        """The given percentile of all values; NaN if there are no values."""
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
        """The histogram as base64 text; the text of an empty histogram is empty."""
        if not self.count:
            return ""
        encoded: bytes = self._counts.encode()
        return encoded.decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> Histogram:
        """Decode a histogram from a text that `to_text` returned."""
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
    """Quantiles of times; NaN if no time was recorded.

    Attributes:
        p50_ms: median of all times.
        p95_ms: 95th percentile of all times.
        p99_ms: 99th percentile of all times.
        p999_ms: 99.9th percentile of all times.
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
"""Highest number of slices of a window, so that the slices of a long window take little space.
"""


def slice_length_s(window_s: float) -> int:
    """Length of each slice of a window [s]: one second, or longer if the window is long."""
    return max(1, math.ceil(window_s / SLICES_MAX))


@dataclass(frozen=True)
class SlicedTimes:
    """Latencies of records, grouped by the slice of the window in which each record was
    acknowledged.

    Attributes:
        slice_s: length of a slice [s].
        by_slice: number of a slice (from 0) → rounded latency [µs] → number of records.
    """

    slice_s: Annotated[int, LARGEST] = 1
    by_slice: dict[int, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class LatencySlice:
    """Latency of the records that were acknowledged in one slice of the window.

    Attributes:
        start_s: time from the start of the window to the start of the slice [s].
        length_s: length of the slice [s]; the last slice of a window may be shorter.
        records: records acknowledged in the slice.
        p50_ms: median latency of the records that were acknowledged in the slice, accurate to 2 %.
        p99_ms: 99th percentile of the latency of the records that were acknowledged in the slice,
            accurate to 2 %.
        max_ms: longest latency of the records that were acknowledged in the slice, accurate to 2 %.
    """

    start_s: float
    length_s: float
    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def latency_slices(times: SlicedTimes, window_s: float) -> tuple[LatencySlice, ...]:
    """The slices of a window in which a record was acknowledged, oldest first."""
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
    """Achieved shares of producers: records acknowledged in the window, divided by records due in
    the window [ratio].

    Attributes:
        lowest, highest: the lowest and the highest share of any producer.
        worst: index of the producer whose share is farthest from 1.
        parts: the shares of all producers [millionths].
    """

    lowest: float | None = None
    highest: float | None = None
    worst: int | None = None
    parts: Histogram = field(default_factory=Histogram)

    @classmethod
    def of(cls, producers: Iterable[tuple[int, int, int]]) -> ProducerShares:
        """The shares, computed from (index, acknowledged records, due records); producers without
        due records are left out.
        """
        shares = [(acked / due, index) for index, acked, due in producers if due > 0]
        if not shares:
            return cls()
        _, worst = max((abs(share - 1.0), index) for share, index in shares)
        parts = Histogram(share * _PARTS for share, _ in shares)
        return cls(min(shares)[0], max(shares)[0], worst, parts)

    def plus(self, other: ProducerShares) -> ProducerShares:
        """The shares of all producers of two tasks."""
        if self.lowest is None or other.lowest is None:
            return other if self.lowest is None else self
        assert self.highest is not None and other.highest is not None, "lowest without highest"
        return ProducerShares(
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            max(self, other, key=lambda each: each.farthest).worst,
            self.parts.plus(other.parts),
        )

    @property
    def farthest(self) -> float:
        """Largest difference between the share of a producer and 1 [ratio]."""
        edges = [edge for edge in (self.lowest, self.highest) if edge is not None]
        return max((abs(edge - 1.0) for edge in edges), default=0.0)

    @property
    def median(self) -> float | None:
        """The median of the producers' achieved shares, accurate to 0.1 %."""
        median = self.parts.quantile(50.0)
        return None if math.isnan(median) else median / _PARTS


@dataclass(frozen=True)
class ProducerSpan:
    """The range of the achieved shares of all producers.

    Attributes:
        min: the lowest share of any producer [ratio]. A share is the number of records acknowledged
            in the window, divided by the number of records due in the window.
        p50: the median share of the producers [ratio].
        max: the highest share of any producer [ratio].
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
