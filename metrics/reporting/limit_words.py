"""Sentences about the certainty of a limit and the latency there, for terminals and pages."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.tables.boundary import Boundary
from metrics.units import (
    format_mb_per_s,
    format_ms,
    format_ratio,
    format_size,
    format_span,
)
from search.interval import LEVEL

AT_LEVEL = f"at {format_ratio(LEVEL)}"
"""`at 90 %`: the short form for intervals where space is scarce."""


def span_words(boundary: Boundary) -> str:
    """The interval on the axis, such as `44 to 50`; empty if the search has none."""
    interval = boundary.interval
    return "" if interval is None else format_span(interval.low, interval.high)


def payload_span_words(low: float | None, high: float | None) -> str:
    """An interval of payloads [MB/s], such as `11.0 to 12.5`; empty if it is not known."""
    if low is None or high is None:
        return ""
    return f"{format_mb_per_s(low)} to {format_mb_per_s(high)}"


def latency_words(p50_ms: float | None, p99_ms: float | None, p999_ms: float | None) -> str:
    """Latencies as text, such as `p50 3.10 ms, p99 12.0 ms, p99.9 40.0 ms`; empty if unknown."""
    named = {"p50": p50_ms, "p99": p99_ms, "p99.9": p999_ms}
    return ", ".join(
        f"{name} {format_ms(value)} ms" for name, value in named.items() if value is not None
    )


def doubt_words(boundary: Boundary) -> str:
    """The reason why a limit is doubtful, a sentence without its full stop; empty if it is not."""
    if not boundary.doubtful:
        return ""
    interval = boundary.interval
    if interval is None:
        share = format_ratio(boundary.confidence)
        return f"the probability that the limit lies inside the bracket is only {share}"
    return (
        f"its {format_ratio(LEVEL)} interval, {span_words(boundary)} {boundary.along.words}, is "
        f"{format_ratio(interval.relative_width)} wide; the goal accepts at most "
        f"{format_ratio(boundary.interval_max)} (search.interval_max)"
    )


def doubtful_sizes(boundaries: Sequence[Boundary]) -> str:
    """The sizes whose limit is doubtful, such as `100 B, 1 kB`; empty if there is none."""
    return ", ".join(
        format_size(each.message_bytes)
        for each in boundaries
        if each.doubtful and each.gave_up is None
    )
