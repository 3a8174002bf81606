"""The readings of each trial over time, as small drawings that need no script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.units import format_count

WIDTH, HEIGHT = 220, 56  # [px]
BROKERS_MAX = 12
"""Lines in a panel at most: those of the brokers with the lowest ids."""
POINTS_MAX = 60_000
"""Readings in a page at most; a run with more has its drawings in the notebook `trial` alone."""


@dataclass(frozen=True)
class Panel:
    """One reading of all brokers over a trial.

    Attributes:
        title: what it shows, with its unit.
        top: the highest value, in words; the lower edge is 0.
        window: where the measured window begins and how wide it is [px].
        lines: broker and the corners of its line, `x,y x,y`.
        size: width and height of the drawing [px].
    """

    title: str
    top: str
    window: tuple[float, float]
    lines: tuple[tuple[int, str], ...]
    size: tuple[int, int] = (WIDTH, HEIGHT)


Panels = Mapping[int, tuple[Panel, ...]]
"""By the number of the trial."""


def panels_of(rows: Iterable[Mapping[str, Any]], windows_s: Mapping[int, float]) -> Panels:
    """The drawings of each trial.

    Args:
        rows: of `metrics.tables.trial_series.sample_series`, in its order.
        windows_s: trial → length of its measured window [s].
    """
    by_trial: dict[int, dict[str, dict[int, list[tuple[float, float]]]]] = {}
    for row in rows:
        if row["value"] is None or row["trial"] not in windows_s:
            continue
        titles = by_trial.setdefault(row["trial"], {})
        lines = titles.setdefault(row["title"], defaultdict(list))
        lines[row["broker_id"]].append((row["elapsed_s"], row["value"]))
    return {
        trial: tuple(_panel(title, lines, windows_s[trial]) for title, lines in titles.items())
        for trial, titles in by_trial.items()
    }


def _panel(
    title: str, lines: Mapping[int, Sequence[tuple[float, float]]], window_s: float
) -> Panel:
    shown = dict(sorted(lines.items())[:BROKERS_MAX])
    points = [point for line in shown.values() for point in line]
    first_s = min(0.0, *(at_s for at_s, _ in points))
    last_s = max(window_s, *(at_s for at_s, _ in points))
    top = max(value for _, value in points)
    across, up = WIDTH / (last_s - first_s), (HEIGHT - 4) / (top or 1.0)
    drawn = tuple(
        (
            broker,
            " ".join(
                f"{(at_s - first_s) * across:.0f},{HEIGHT - 2 - value * up:.0f}"
                for at_s, value in line
            ),
        )
        for broker, line in shown.items()
    )
    return Panel(title, _short(top), (-first_s * across, window_s * across), drawn)


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 100 else format_count(value)
