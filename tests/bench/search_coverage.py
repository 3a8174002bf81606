"""Share of intervals that contain the true limit, under each condition of the benchmark.

The searcher does not know the condition. The constants of its posterior were chosen on half of the
conditions, and not on those with `is_held_out`.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from search.guide import Guide
from search.guided import Guided
from search.model import Done
from search.simulate import SimulatedCluster, SimulatedEnd, run_on
from tests.bench.search_methods import OURS, SIZES, Scenario, draw_line, scenarios
from tests.bench.search_overloads import (
    LIMITS_NP,
    Condition,
    behavior_of,
    conditions,
    guided_ends,
    limits_from,
)

POINTS = 1000
"""Number of points per condition."""
NOISES = (0.0, 0.01, 0.03, 0.05, 0.08)
"""Noise of single points without earlier knowledge [σ, ratio]."""
_NOISES_CHOSEN_ON = (0.01, 0.05)
_CHOSEN_ON = {
    "no noise, no false alarms",
    "2 % noise, 2 % false alarms",
    "5 % noise",
    "CPU is the limit, idle stays at 0.52",
    "5 % of trials stall",
}


@dataclass(frozen=True)
class Case:
    """One condition.

    Attributes:
        is_held_out: True if it was not used to choose constants.
        ends: measures its points.
    """

    name: str
    is_held_out: bool
    ends: Callable[[], list[SimulatedEnd]]


@dataclass(frozen=True)
class Coverage:
    """The quality of the intervals of one condition; shares are shares of its points [ratio].

    Attributes:
        held: share of intervals that contain the true limit.
        too_high, too_low: shares of intervals above and below the true limit.
        width: median width of an interval [ratio].
        inside, stated: share of brackets that contain the limit, and the mean stated confidence.
    """

    name: str
    is_held_out: bool
    points: int
    held: float
    too_high: float
    too_low: float
    width: float
    inside: float
    stated: float


def coverage_of(case: Case) -> Coverage:
    """Measure one condition; a point without an interval counts as not held."""
    ends = case.ends()
    count = len(ends)
    found = [(end.result.interval, end.true_limit) for end in ends if end.result.interval]
    stated = [end.result.confidence or 0.0 for end in ends if isinstance(end.result, Done)]
    return Coverage(
        case.name,
        case.is_held_out,
        count,
        sum(one.low <= limit <= one.high for one, limit in found) / count,
        sum(limit < one.low for one, limit in found) / count,
        sum(limit > one.high for one, limit in found) / count,
        median(one.relative_width for one, _ in found),
        sum(end.holds_the_limit for end in ends) / count,
        sum(stated) / count,
    )


def cases(scale: float = 1.0) -> tuple[Case, ...]:
    """All conditions of the benchmark, and single points with other noise."""
    points = max(len(SIZES), round(POINTS * scale))
    lines = [
        Case(one.name, one.name not in _CHOSEN_ON, _Lines(replace(one, lines=points // len(SIZES))))
        for one in scenarios()
    ]
    overloads = [Case(one.name, one.is_held_out, _Overloads(one)) for one in conditions(scale)]
    singles = [
        Case(
            f"a single size, nothing known, {noise:.0%} noise",
            noise not in _NOISES_CHOSEN_ON,
            _Singles(noise, points),
        )
        for noise in NOISES
    ]
    return (*lines, *overloads, *singles)


def compare_coverage(of: Sequence[Case], processes: int = 1) -> Iterator[Coverage]:
    """The result of each condition, as soon as it is measured.

    Args:
        processes: number of processes at low priority; 1 for this process.
    """
    if processes == 1:
        yield from map(coverage_of, of)
        return
    with multiprocessing.get_context("spawn").Pool(processes, os.nice, (10,)) as pool:
        yield from pool.imap(coverage_of, of)


# Classes instead of nested functions, as they are pickled for other processes.


@dataclass(frozen=True)
class _Lines:
    scenario: Scenario

    def __call__(self) -> list[SimulatedEnd]:
        _, redline = OURS
        lines = (draw_line(self.scenario, seed) for seed in range(self.scenario.lines))
        return [end for line in lines for end in redline.run(line, SIZES)]


@dataclass(frozen=True)
class _Overloads:
    condition: Condition

    def __call__(self) -> list[SimulatedEnd]:
        return guided_ends(self.condition, Guide())


@dataclass(frozen=True)
class _Singles:
    noise: float
    points: int

    def __call__(self) -> list[SimulatedEnd]:
        return [self._end(seed) for seed in range(self.points)]

    def _end(self, seed: int) -> SimulatedEnd:
        chance = random.Random(f"{self.noise} {seed}")
        low, high = map(math.log, LIMITS_NP)
        capacity = math.exp(chance.uniform(low, high))
        usual = behavior_of(chance, chance.choice((1.15, 3.0)))
        cluster = SimulatedCluster(replace(usual, noise=self.noise, capacity=capacity), seed)
        return run_on(Guided(limits_from()), cluster)
