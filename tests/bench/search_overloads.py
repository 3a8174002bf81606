"""Comparison of the search with plain bisection on clusters that deliver more than their limit.

Each condition has clusters of random size, curve and growth of requests, the same for both methods.
An answer counts as off if its distance from the true capacity is more than 10 %, and more than one
producer.

Constants of the search may be chosen on half of the conditions only; those with `is_held_out` only
measure its quality.

The closing trial of a run, which looks for a change of the limit, is left out for both.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from search.bisect import Bisection
from search.guide import Guide
from search.guided import Guided
from search.limits import Limits
from search.line import Line
from search.model import Searcher
from tests.bench.search_methods import RATE, Case
from tests.support.searching import run_sizes_on
from tests.support.simulated_clusters import (
    ClusterSpec,
    LineSpec,
    SimulatedCluster,
    SimulatedEnd,
    SimulatedLine,
    run_line_on,
    run_on,
)

LIMITS_NP = (8.0, 900.0)
"""Range of the limits [producers], uniform in the logarithm."""
LINE_SIZES = (100, 1_000, 10_000, 100_000)
"""Message sizes of a line [B]."""
WRONG_BY = 16
"""Factor by which a wrong start is too high or too low."""
START, CAP, RESOLUTION = 128, 20_000, 0.05
EXCESSES = (1.15, 1.5, 2.0, 5.0, 8.0)
"""Factors by which the clusters deliver more than their limit."""
STARTS = {
    "cold": "a single size, nothing known",
    "high": f"a single size, the start {WRONG_BY} times too high",
    "low": f"a single size, the start {WRONG_BY} times too low",
    "line": f"a line of {len(LINE_SIZES)} sizes",
}
_CHOSEN_ON = {(2.0, start) for start in STARTS} | {(8.0, start) for start in STARTS}
_CHOSEN_ON |= {(1.15, "cold"), (1.15, "line")}


@dataclass(frozen=True)
class Condition:
    """The excess of the clusters, and the start of the search.

    Attributes:
        delivers: largest delivered load, in multiples of the limit.
        start: one of `STARTS`.
        points: number of points; for `line`, in lines of `LINE_SIZES`.
    """

    delivers: float
    start: str
    points: int = 1000

    @property
    def name(self) -> str:
        return f"{STARTS[self.start]}, {self.delivers:g} times"

    @property
    def is_held_out(self) -> bool:
        """True if it was not used to choose constants."""
        return (self.delivers, self.start) not in _CHOSEN_ON


def conditions(scale: float = 1.0) -> tuple[Condition, ...]:
    """All conditions; `scale` is a factor on the number of points."""
    points = max(len(LINE_SIZES), round(1000 * scale))
    return tuple(Condition(excess, start, points) for start in STARTS for excess in EXCESSES)


def behavior_of(chance: random.Random, delivers: float) -> ClusterSpec:
    """A random cluster of capacity 1, with 2 % noise and 2 % false alarms."""
    return ClusterSpec(
        capacity=1.0,
        curve_power=chance.uniform(0.8, 2.5),
        delivers=delivers,
        growth=even_in_log(chance, 0.0015, 0.012),
        idle_min=chance.uniform(0.0, 0.03),
        noise=0.02,
        reading_noise=0.005,
        false_alarm=0.02,
    )


def overload_cases(of: Iterable[Condition], states_interval: bool = False) -> Iterator[Case]:
    """Bisection and the search under each condition.

    Args:
        states_interval: whether the search states intervals, which takes time.
    """
    guide = Guide(states_interval=states_interval)
    for each in of:
        yield Case(each.name, "plain bisection", each.is_held_out, partial(_bisect, each))
        yield Case(each.name, "redline", each.is_held_out, partial(_guided_ends, each, guide))


def _bisect(condition: Condition) -> list[SimulatedEnd]:
    if condition.start != "line":
        return _points(condition, Bisection)
    ends = []
    for line in _lines(condition):
        ends += run_sizes_on(lambda: Bisection(limits_from()), LINE_SIZES, line)
    return ends


def _guided_ends(condition: Condition, guide: Guide) -> list[SimulatedEnd]:
    if condition.start != "line":
        return _points(condition, lambda limits: Guided(limits, guide))
    ends = []
    for simulated in _lines(condition):
        brokers = simulated.spec.brokers
        line = Line(LINE_SIZES, RATE, limits_from(), brokers, guide=guide, check_for_change=False)
        ends += [end for _, end in run_line_on(line, simulated)]
    return ends


def _points(condition: Condition, make: Callable[[Limits], Searcher]) -> list[SimulatedEnd]:
    ends = []
    for seed in range(condition.points):
        chance = random.Random(f"{condition.delivers} {condition.start} {seed}")
        capacity = even_in_log(chance, *LIMITS_NP)
        wrong = {"cold": None, "high": WRONG_BY, "low": 1 / WRONG_BY}[condition.start]
        start = START if wrong is None else max(1, round(capacity * wrong))
        behavior = behavior_of(chance, condition.delivers)
        cluster = SimulatedCluster(replace(behavior, capacity=capacity), seed)
        ends.append(run_on(make(limits_from(start)), cluster, check_for_change=False))
    return ends


def _lines(condition: Condition) -> Iterator[SimulatedLine]:
    for seed in range(condition.points // len(LINE_SIZES)):
        chance = random.Random(f"{condition.delivers} {condition.start} {seed}")
        yield SimulatedLine(line_spec(chance, lambda c: behavior_of(c, condition.delivers)), seed)


def line_spec(chance: random.Random, behavior: Callable[[random.Random], ClusterSpec]) -> LineSpec:
    """A random line with limits in `LIMITS_NP` at all of `LINE_SIZES`."""
    bend = even_in_log(chance, 30.0, 2000.0)
    largest = even_in_log(chance, LIMITS_NP[0] * (1.0 + bend / LINE_SIZES[0]), LIMITS_NP[1])
    per_byte_s = 3.0 / ((RATE.bytes_per_s or 1.0) * largest)
    return LineSpec(3, RATE, per_byte_s * bend, per_byte_s, 0.03, behavior(chance))


def limits_from(start: int = START) -> Limits:
    """The bounds of a search with this first load."""
    return Limits(start, max(CAP, start), RESOLUTION, 3)


def even_in_log(chance: random.Random, low: float, high: float) -> float:
    return math.exp(chance.uniform(math.log(low), math.log(high)))
