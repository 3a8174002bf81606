"""The use of a resource as a line over the load: a part at rest, and a part that grows.

Busy handlers and threads, bytes and CPU time grow in proportion to the requests, beside what an
idle broker uses (fetches of followers, heartbeats). Few trials near the limit do not show that
part, so that it has a prior of its own: near 0, and at most some hundredths of the use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

REST_PRIOR = 0.05
"""Standard deviation of the use at rest before any trial, over the use at the limit [ratio]."""
NOISE_LEAST = 0.01
"""Least standard deviation of a reading, over the use at the limit [ratio]."""


@dataclass(frozen=True)
class Line:
    """The use of a resource over the load.

    Attributes:
        at_rest: use without load.
        at_load: use at the load that the line was fitted for.
        rest_error, load_error: standard deviation of each.
    """

    at_rest: float
    at_load: float
    rest_error: float
    load_error: float


def fit_line(points: Sequence[tuple[float, float]], load: float) -> Line | None:
    """The line through (load, use) of some windows; None without a window under load.

    Args:
        points: load and use of each window.
        load: load at which `at_load` is wanted; the unit is that of the points.
    """
    known = [(each / load, use) for each, use in points if each > 0]
    if not known or load <= 0:
        return None
    # The nearest reading gives the scale of prior and noise.
    nearest = min(known, key=lambda each: abs(each[0] - 1.0))
    scale = nearest[1] / nearest[0]
    if scale <= 0:
        return Line(0.0, 0.0, 0.0, 0.0)
    noise = NOISE_LEAST * scale
    line = _fitted(known, noise, REST_PRIOR * scale)
    if len(known) > 2:
        rest, slope = line.at_rest, line.at_load - line.at_rest
        off = [use - rest - slope * at for at, use in known]
        noise = max(noise, math.sqrt(sum(each * each for each in off) / (len(known) - 2)))
        line = _fitted(known, noise, REST_PRIOR * scale)
    return line


def _fitted(points: Sequence[tuple[float, float]], noise: float, prior: float) -> Line:
    """The posterior line: intercept a ~ N(0, prior²), free slope b, use = a + b·load."""
    count, by_load = len(points), sum(at for at, _ in points)
    squares = sum(at * at for at, _ in points)
    uses, products = sum(use for _, use in points), sum(at * use for at, use in points)
    held = count + (noise / prior) ** 2
    whole = held * squares - by_load * by_load
    rest = (squares * uses - by_load * products) / whole
    slope = (held * products - by_load * uses) / whole
    if rest < 0:
        rest, slope = 0.0, products / squares
    variance = noise * noise / whole
    at_load = variance * (squares + held - 2 * by_load)
    return Line(rest, rest + slope, math.sqrt(variance * squares), math.sqrt(max(0.0, at_load)))
