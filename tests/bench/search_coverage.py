"""Share of intervals that contain the true limit, under each condition of the benchmark.

The searcher does not know the condition. The constants of its posterior were chosen on half of the
conditions, and not on those with `is_held_out`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from search.guided import Guided
from tests.bench.search_methods import OURS, SIZES, Case, line_cases, scenarios
from tests.bench.search_overloads import (
    LIMITS_NP,
    behavior_of,
    conditions,
    even_in_log,
    limits_from,
    overload_cases,
)
from tests.support.simulated_clusters import SimulatedCluster, SimulatedEnd, run_on

POINTS = 1000
"""Number of points per condition."""
NOISES = (0.0, 0.01, 0.03, 0.05, 0.08)
"""Noise of single points without earlier knowledge [σ, ratio]."""
_NOISES_CHOSEN_ON = (0.01, 0.05)


def coverage_cases(scale: float = 1.0) -> list[Case]:
    """The search under all conditions of the benchmark, and single points with other noise."""
    points = max(len(SIZES), round(POINTS * scale))
    lines = [replace(each, lines=points // len(SIZES)) for each in scenarios()]
    overloads = overload_cases(conditions(scale), states_interval=True)
    singles = [
        Case(
            f"a single size, nothing known, {noise:.0%} noise",
            "redline",
            noise not in _NOISES_CHOSEN_ON,
            partial(_singles, noise, points),
        )
        for noise in NOISES
    ]
    ours = [each for each in overloads if each.method == "redline"]
    return [*line_cases(OURS[1:], lines), *ours, *singles]


def _singles(noise: float, points: int) -> list[SimulatedEnd]:
    ends = []
    for seed in range(points):
        chance = random.Random(f"{noise} {seed}")
        capacity = even_in_log(chance, *LIMITS_NP)
        usual = behavior_of(chance, chance.choice((1.15, 3.0)))
        cluster = SimulatedCluster(replace(usual, noise=noise, capacity=capacity), seed)
        ends.append(run_on(Guided(limits_from()), cluster))
    return ends
