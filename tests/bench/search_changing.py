"""Searches on clusters whose limit changes while it is measured, and on steady ones.

An answer counts as off if its distance from the present limit, the one after the last trial, is
more than 10 %, and more than one producer. It is unnamed if the result has no `changed`, and silent
if it has no note that the limit may have changed either.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search.guide import Guide
from search.guided import Guided
from search.line import Line
from search.model import Done, GaveUp
from tests.bench.search_methods import RATE
from tests.bench.search_overloads import (
    LIMITS_NP,
    LINE_SIZES,
    behavior_of,
    even_in_log,
    limits_from,
    line_spec,
)
from tests.support.simulated_clusters import (
    ClusterSpec,
    SimulatedCluster,
    SimulatedLine,
    run_line_on,
    run_on,
)

SEARCHES = 1000
"""Number of searches per condition; of lines, a quarter."""


@dataclass(frozen=True)
class ChangingCase:
    """One condition.

    Attributes:
        noise: scatter of the limit from trial to trial [σ, ratio].
        factor: factor of a step at any trial of the search; 1 for none.
        trend: change of ln limit in an hour [1/h].
        burst: factor on the limit until a volume was delivered, which ends at any trial.
        stall: share of trials that stall.
        at_limit: utilization at the limit; below 1 where the handlers are not the limit.
        is_line: True for lines of `LINE_SIZES`, which count as one search each.
    """

    name: str
    noise: float = 0.02
    factor: float = 1.0
    trend: float = 0.0
    burst: float = 1.0
    stall: float = 0.0
    at_limit: float = 1.0
    searches: int = SEARCHES
    is_line: bool = False


@dataclass(frozen=True)
class Found:
    """The result of one condition; shares are shares of searches, for lines of points.

    Attributes:
        changed: share of searches with `changed`.
        off_10: share of answers that are off.
        unnamed: share of answers that are off and have no `changed`.
        silent: share of answers that are off and have neither `changed` nor a note.
    """

    name: str
    searches: int
    trials: float
    changed: float
    off_10: float
    unnamed: float
    silent: float


def changing_cases(scale: float = 1.0) -> tuple[ChangingCase, ...]:
    """All conditions; `scale` is a factor on the number of searches."""
    steps = [
        ChangingCase(f"step to {factor:g} times, {100 * noise:.0f} % noise", noise, factor)
        for noise in (0.02, 0.05)
        for factor in (0.5, 0.7, 0.85, 1.15, 1.4, 2.0)
    ]
    cases = (
        *(ChangingCase(f"steady, {100 * noise:.0f} % noise", noise) for noise in (0.0, 0.02, 0.05)),
        ChangingCase("steady, 5 % of trials stall", stall=0.05),
        ChangingCase("steady, CPU is the limit", at_limit=0.6),
        *steps,
        ChangingCase("CPU is the limit, step to 0.7 times", factor=0.7, at_limit=0.6),
        ChangingCase("CPU is the limit, step to 1.4 times", factor=1.4, at_limit=0.6),
        ChangingCase("falls by 40 % in an hour", trend=-0.5),
        ChangingCase("burst of 1.5 times ends", burst=1.5),
        ChangingCase("burst of 3 times ends", burst=3.0),
        ChangingCase("steady, a line of 4 sizes", is_line=True),
        ChangingCase("step to 0.7 times, a line of 4 sizes", factor=0.7, is_line=True),
        ChangingCase("step to 1.4 times, a line of 4 sizes", factor=1.4, is_line=True),
    )
    return tuple(
        replace(each, searches=max(4, round(each.searches * scale / (4 if each.is_line else 1))))
        for each in cases
    )


def found_of(case: ChangingCase) -> Found:
    """Measure one condition."""
    trials = changed = off = unnamed = silent = points = 0
    for seed in range(case.searches):
        answers, count = (_line if case.is_line else _search)(case, seed)
        trials += count
        changed += any(result.changed for result, _ in answers)
        for result, limit in answers:
            points += 1
            if not _is_off(result, limit):
                continue
            off += 1
            unnamed += not result.changed
            notes = result.notes if isinstance(result, Done) else ()
            silent += not (result.changed or any("may have changed" in each for each in notes))
    return Found(
        case.name,
        case.searches,
        trials / case.searches,
        changed / case.searches,
        off / points,
        unnamed / points,
        silent / points,
    )


_GUIDE = Guide(states_interval=False)  # intervals choose no load here, and take time

Answers = list[tuple[Done | GaveUp, float]]
"""Results, each with the present limit."""


def _is_off(result: Done | GaveUp, limit: float) -> bool:
    if isinstance(result, GaveUp):
        return False  # no answer, which is said
    return abs(result.bracket.sustained - limit) > max(0.1 * limit, 1.0)


def _search(case: ChangingCase, seed: int) -> tuple[Answers, int]:
    chance = random.Random(f"change {seed}")
    behavior = _behavior(case, chance)
    spec = replace(behavior, capacity=even_in_log(chance, *LIMITS_NP))
    usual = SimulatedCluster(spec, seed)
    run_on(Guided(limits_from(), _GUIDE), usual)
    loads = [seen.load for seen in usual.trials]
    cluster = SimulatedCluster(_changing(case, spec, loads, chance), seed)
    end = run_on(Guided(limits_from(), _GUIDE), cluster)
    return [(end.result, end.present_limit)], end.trials


def _line(case: ChangingCase, seed: int) -> tuple[Answers, int]:
    chance = random.Random(f"change line {seed}")
    spec = line_spec(chance, lambda c: _behavior(case, c))
    line = Line(LINE_SIZES, RATE, limits_from(), 3, guide=_GUIDE)
    usual = SimulatedLine(spec, seed)
    run_line_on(line, usual)
    behavior = _changing(case, spec.behavior, [1] * usual.clock.trials, chance)
    simulated = SimulatedLine(replace(spec, behavior=behavior), seed)
    ends = run_line_on(line, simulated)
    answers = [
        (point.result, simulated.cluster(point.message_bytes).limit_now) for point, _ in ends
    ]
    return answers, simulated.clock.trials


def _behavior(case: ChangingCase, chance: random.Random) -> ClusterSpec:
    behavior = behavior_of(chance, chance.choice((1.15, 3.0, 8.0)))
    return replace(behavior, noise=case.noise, stall=case.stall, utilization_at_limit=case.at_limit)


def _changing(
    case: ChangingCase, spec: ClusterSpec, loads: Sequence[int], chance: random.Random
) -> ClusterSpec:
    """The cluster with its change, at any trial of the search of a steady one."""
    at = chance.randint(min(2, len(loads)), len(loads))
    volume = spec.trial_s * sum(loads[: at - 1]) if case.burst != 1.0 else 0.0
    return replace(
        spec,
        steps=((at, case.factor),) if case.factor != 1.0 else (),
        trend=case.trend,
        burst=case.burst,
        burst_volume=volume,
    )
