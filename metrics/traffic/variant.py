"""The options that distinguish the limits of two traffic patterns."""

from __future__ import annotations

from metrics.columns import row_of
from metrics.traffic.axes import axis_named
from metrics.traffic.pattern import TrafficPattern

_OF_THE_POINT = ("load", "point_bpm", "bpm")


def variant_of(pattern: TrafficPattern) -> dict[str, str]:
    """All options of a pattern except its load and message size, by the columns of table `trials`.

    The phases of a trial are left out. The option of the searched axis has the value 1.
    """
    neutral = axis_named(pattern.axis).apply(pattern, 1)
    left_out = {*_OF_THE_POINT, *row_of(pattern.phases)}
    if not pattern.mix:  # rows of versions without mixes have the same variant
        left_out.add("mix")
    row = row_of(neutral)
    return {name: _text(row[name]) for name in sorted(row) if name not in left_out}


def _text(value: object) -> str:
    if isinstance(value, list | tuple):  # a map is a list of its pairs
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
