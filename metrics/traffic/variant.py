"""What tells the limit of one traffic pattern from that of another."""

from __future__ import annotations

from metrics.columns import row_of
from metrics.traffic.axes import axis_named
from metrics.traffic.pattern import TrafficPattern

_OF_THE_POINT = ("load", "point_bpm", "bpm")


def variant_of(pattern: TrafficPattern) -> dict[str, str]:
    """All options of a pattern but its load and its message size, as the table `trials` names them.

    How long its trials are is none of them. What is searched along has the value 1.
    """
    neutral = axis_named(pattern.axis).apply(pattern, 1)
    left_out = {*_OF_THE_POINT, *row_of(pattern.phases)}
    row = row_of(neutral)
    return {name: _text(row[name]) for name in sorted(row) if name not in left_out}


def _text(value: object) -> str:
    if isinstance(value, list | tuple):  # of a map its pairs
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
