"""Histograms of times that merge over tasks and never overflow (HdrHistogram)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hdrh.histogram import HdrHistogram

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
SIGNIFICANT_DIGITS = 3


def new_histogram() -> HdrHistogram:
    """An empty histogram of times from 1 µs to 1 h [µs], three significant digits."""
    return HdrHistogram(LOWEST_US, HIGHEST_US, SIGNIFICANT_DIGITS)


def record_us(histogram: HdrHistogram, value_us: float, count: int = 1) -> None:
    """Count a time [µs] `count` times; what lies outside 1 µs..1 h counts as the nearest edge.

    HdrHistogram refuses values beyond its range, which at overload would lose just
    the worst ones.
    """
    histogram.record_value(min(max(round(value_us), LOWEST_US), HIGHEST_US), count)


def encode_histogram(histogram: HdrHistogram) -> str:
    """The histogram as base64 text, for a row."""
    encoded: bytes = histogram.encode()
    return encoded.decode("ascii")


def decode_histogram(text: str) -> HdrHistogram:
    """The inverse of `encode_histogram`; the empty string is an empty histogram."""
    histogram = new_histogram()
    if text:
        histogram.decode_and_add(text.encode("ascii"))
    return histogram


def quantile_ms(histogram: HdrHistogram, percentile: float) -> float:
    """Value at a percentile [ms]; NaN of an empty histogram, which has none."""
    if histogram.get_total_count() == 0:
        return math.nan
    return min(float(histogram.get_value_at_percentile(percentile)), HIGHEST_US) / 1000.0


def merged_histogram(encoded: Iterable[str]) -> HdrHistogram:
    """The sum of encoded histograms; quantiles cannot be averaged, but these can be added."""
    merged = new_histogram()
    for text in encoded:
        if text:
            merged.decode_and_add(text.encode("ascii"))
    return merged
