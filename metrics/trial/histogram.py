"""Histograms that merge over tasks and never overflow (HdrHistogram)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

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
