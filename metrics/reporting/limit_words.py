"""How sure a limit is and how long records take there, in words: for terminals and for pages."""

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
"""`at 90 %`, which follows an interval where there is little room."""


def span_words(boundary: Boundary) -> str:
    """`44 to 50`: the interval on the axis; empty where the search does not say one."""
    interval = boundary.interval
    return "" if interval is None else format_span(interval.low, interval.high)


def payload_span_words(low: float | None, high: float | None) -> str:
    """`11.0 to 12.5`: an interval of payloads [MB/s]; empty where it is not known."""
    if low is None or high is None:
        return ""
    return f"{format_mb_per_s(low)} to {format_mb_per_s(high)}"


def latency_words(p50_ms: float | None, p99_ms: float | None, p999_ms: float | None) -> str:
    """`p50 3.10 ms, p99 12.0 ms, p99.9 40.0 ms`; empty where nothing is known."""
    named = {"p50": p50_ms, "p99": p99_ms, "p99.9": p999_ms}
    return ", ".join(
        f"{name} {format_ms(value)} ms" for name, value in named.items() if value is not None
    )


def doubt_words(boundary: Boundary) -> str:
    """Why a limit is doubtful, a sentence without its stop; empty where it is not."""
    if not boundary.doubtful:
        return ""
    interval = boundary.interval
    if interval is None:
        share = format_ratio(boundary.confidence)
        return f"it lies inside the bracket with a probability of only {share}"
    return (
        f"its {format_ratio(LEVEL)} interval, {span_words(boundary)} {boundary.along.words}, is "
        f"{format_ratio(interval.relative_width)} wide, and the goal takes at most "
        f"{format_ratio(boundary.interval_max)} (search.interval_max)"
    )


def doubtful_sizes(boundaries: Sequence[Boundary]) -> str:
    """`100 B, 1 kB`: the sizes whose limit is doubtful; empty where none is."""
    return ", ".join(
        format_size(each.bpm) for each in boundaries if each.doubtful and each.gave_up is None
    )
