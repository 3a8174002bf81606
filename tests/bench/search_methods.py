"""Comparison of search methods on the same simulated clusters.

A cluster has a random size, bend and curve; each method measures a line of eight message sizes on
it. The results are the cost of a boundary point, and the distance of its answer, the sustained side
of the bracket, from the mean true capacity during its trials. A search that gave up counts as wrong
by 100 %.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TypeVar

from search.bisect import Bisection
from search.limits import Limits
from search.line import Line, ProducerRate
from search.model import Done
from tests.support.searching import holds_the_limit, is_off, run_sizes_on
from tests.support.simulated_clusters import (
    ClusterSpec,
    LineSpec,
    SimulatedEnd,
    SimulatedLine,
    run_line_on,
)

SIZES = (100, 268, 720, 1931, 5179, 13895, 37276, 100000)
"""Message sizes of a line [B], even in their logarithm."""
_CHOSEN_ON = {
    "no noise, no false alarms",
    "2 % noise, 2 % false alarms",
    "5 % noise",
    "CPU is the limit, idle stays at 0.52",
    "5 % of trials stall",
}
"""Scenarios on which constants of the search were chosen."""
LIMITS = Limits(load_start_max=1024, load_cap=4096, resolution=0.05, invalid_repeats_max=3)
RATE = ProducerRate(bytes_per_s=1e6)

Run = Callable[[SimulatedLine, Sequence[int]], list[SimulatedEnd]]
What = TypeVar("What")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Contestant:
    """A method to measure a line: `run` gets a new simulated line and its sizes."""

    name: str
    run: Run


@dataclass(frozen=True)
class Scenario:
    """The conditions of a comparison.

    Attributes:
        behavior: behavior of every cluster; capacity and curve are random.
        misfit: deviation of the sizes from a line of two costs [σ, ratio].
    """

    name: str
    behavior: ClusterSpec
    misfit: float = 0.03
    lines: int = 100


@dataclass(frozen=True)
class Row:
    """The result of a method under a condition; shares and means are over all points.

    Attributes:
        is_held_out: True if the condition was not used to choose constants.
        trials, trials_p95: mean and 95th percentile of the trials per point.
        seconds: mean simulated time per point, with waits for recovery [s].
        off_5, off_10: shares of points off by more than 5 % and 10 %, and more than one producer
            [ratio].
        inside: share of brackets that contain the true limit [ratio].
        stated: mean stated confidence; None if the method states none.
        held: share of points whose interval contains the true limit [ratio].
        too_high, too_low: shares of points whose interval is above and below it [ratio].
        width: median width of an interval; None without intervals [ratio].
    """

    name: str
    method: str
    is_held_out: bool
    points: int
    trials: float
    trials_p95: int
    seconds: float
    off_5: float
    off_10: float
    inside: float
    stated: float | None
    held: float
    too_high: float
    too_low: float
    width: float | None


@dataclass(frozen=True)
class Case:
    """A method under a condition.

    Attributes:
        is_held_out: True if the condition was not used to choose constants.
        ends: measures its points; it can be pickled.
    """

    name: str
    method: str
    is_held_out: bool
    ends: Callable[[], list[SimulatedEnd]]

    def row(self) -> Row:
        ends = self.ends()
        count = len(ends)
        trials = sorted(end.trials for end in ends)
        sure = [
            end.result.confidence
            for end in ends
            if isinstance(end.result, Done) and end.result.confidence is not None
        ]
        found = [(end.result.interval, end.true_limit) for end in ends if end.result.interval]
        return Row(
            self.name,
            self.method,
            self.is_held_out,
            count,
            sum(trials) / count,
            trials[min(count - 1, math.ceil(0.95 * count) - 1)],
            sum(end.duration_s for end in ends) / count,
            sum(is_off(end, 0.05) for end in ends) / count,
            sum(is_off(end, 0.10) for end in ends) / count,
            sum(holds_the_limit(end) for end in ends) / count,
            sum(sure) / len(sure) if sure else None,
            sum(one.low <= limit <= one.high for one, limit in found) / count,
            sum(limit < one.low for one, limit in found) / count,
            sum(limit > one.high for one, limit in found) / count,
            median(one.relative_width for one, _ in found) if found else None,
        )


def measured(
    measure: Callable[[What], Found], of: Iterable[What], processes: int
) -> Iterator[Found]:
    """The result of each, as soon as it is measured.

    Args:
        processes: number of processes at low priority; 1 for this process.
    """
    if processes == 1:
        yield from map(measure, of)
        return
    with multiprocessing.get_context("spawn").Pool(processes, os.nice, (10,)) as pool:
        yield from pool.imap(measure, of)


_USUAL = ClusterSpec(capacity=1.0, reading_noise=0.005, noise=0.02, false_alarm=0.02)


def scenarios(scale: float = 1.0) -> tuple[Scenario, ...]:
    """The scenarios of the benchmark; `scale` is a factor on the number of clusters."""
    few = max(1, round(75 * scale))
    return (
        Scenario(
            "no noise, no false alarms", replace(_USUAL, noise=0.0, false_alarm=0.0), lines=few
        ),
        Scenario("2 % noise, 2 % false alarms", _USUAL, lines=max(1, round(400 * scale))),
        Scenario(
            "drift of 5 %, 10 % false alarms",
            replace(_USUAL, false_alarm=0.10, drift=0.05),
            lines=2 * few,
        ),
        Scenario("5 % noise", replace(_USUAL, noise=0.05), lines=few),
        Scenario(
            "CPU is the limit, idle stays at 0.52",
            replace(_USUAL, utilization_at_limit=0.6),
            lines=few,
        ),
        Scenario("half of the alarms show in idle", replace(_USUAL, disguised=0.5), lines=few),
        Scenario("2 % false calms", replace(_USUAL, false_calm=0.02), lines=few),
        Scenario("5 % of trials stall", replace(_USUAL, stall=0.05), lines=few),
        Scenario("slow recovery, 2 min", replace(_USUAL, recovery_s=120.0), lines=few),
        Scenario("3 % invalid trials", replace(_USUAL, invalid=0.03), lines=few),
        Scenario("neighbors mislead by 15 %", _USUAL, misfit=0.15, lines=few),
    )


def draw_line(scenario: Scenario, seed: int) -> SimulatedLine:
    """A random cluster with a limit of 30 to 1,000 producers at every size, without the misfit."""
    chance = random.Random(seed)
    bend = math.exp(chance.uniform(math.log(30.0), math.log(2000.0)))
    lightest = max(60.0, 30.0 * (1.0 + bend / min(SIZES)))
    largest = math.exp(chance.uniform(math.log(min(lightest, 1000.0)), math.log(1000.0)))
    per_byte = 3.0 / ((RATE.bytes_per_s or 1.0) * largest)
    behavior = replace(scenario.behavior, curve_power=chance.uniform(0.8, 2.0))
    spec = LineSpec(3, RATE, per_byte * bend, per_byte, scenario.misfit, behavior)
    return SimulatedLine(spec, seed)


def _bisect(simulated: SimulatedLine, sizes: Sequence[int]) -> list[SimulatedEnd]:
    return run_sizes_on(lambda: Bisection(LIMITS), sizes, simulated)


def _guided(simulated: SimulatedLine, sizes: Sequence[int]) -> list[SimulatedEnd]:
    line = Line(tuple(sizes), RATE, LIMITS, simulated.spec.brokers)
    return [outcome for _, outcome in run_line_on(line, simulated)]


OURS = (Contestant("plain bisection", _bisect), Contestant("redline", _guided))


def line_cases(
    contestants: Iterable[Contestant] = OURS, of: Iterable[Scenario] | None = None
) -> list[Case]:
    return [
        Case(each.name, method.name, each.name not in _CHOSEN_ON, partial(_ends, method, each))
        for each in (scenarios() if of is None else of)
        for method in contestants
    ]


def _ends(method: Contestant, scenario: Scenario) -> list[SimulatedEnd]:
    lines = (draw_line(scenario, seed) for seed in range(scenario.lines))
    return [end for line in lines for end in method.run(line, SIZES)]
