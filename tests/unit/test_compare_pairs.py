"""The trials of a comparison, on simulated sides: their order, and rates of error."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.config.goal import GuardLimits, OwnerBounds
from jobs.features.compare.answer import (
    EXCESS,
    SATURATED_ACHIEVED_SHARE,
    STEADY_LOWER,
    STEADY_SHARE,
    CaseComparer,
    ComparedSize,
    Effort,
    is_full,
)
from jobs.features.compare.comparison_run import ComparisonRun
from jobs.runs.lifecycle import RunState
from jobs.trials.guards import Guards
from metrics.common.errors import NoConclusionError
from metrics.comparing.effects import CAPACITY, Conclusion, Effect, Side, compared, conclude
from tests.support.guarded_cluster import Cluster
from tests.support.patterns import pattern
from tests.support.two_sides import PRODUCER_MB_PER_S, TwoSides, steady_machine

pytestmark = pytest.mark.computes

EFFORT = Effort(pairs=4, steady_pairs=3)
START, CAP = 128.0, 10_000.0
COMPARISONS = 300


def measured(sides: TwoSides, effort: Effort = EFFORT, start: float = START) -> ComparedSize:
    case = ComparedSize(1_000)
    CaseComparer(sides, effort, start, CAP).measure(case)
    return case


def sides_of(a: float, b: float, **changes: object) -> TwoSides:
    return TwoSides({Side.A: a, Side.B: b}, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("start", [1.0, 30.0, 128.0, 5_000.0])
def test_loads_are_found_that_neither_side_and_that_both_sides_sustain(start: float) -> None:
    case = measured(sides_of(10.0, 8.0), start=start)
    assert case.load == pytest.approx(EXCESS * 10.0 / PRODUCER_MB_PER_S)
    assert case.steady_load == pytest.approx(STEADY_SHARE * 8.0 / PRODUCER_MB_PER_S, rel=0.01)
    assert all(is_full(pair.of(side)) for pair in case.saturated for side in Side)
    assert not any(is_full(pair.of(side)) for pair in case.steady for side in Side)
    for pair in (*case.saturated, *case.steady):
        assert pair.a.pattern.producers == pair.b.pattern.producers


def test_the_sides_take_turns_and_an_invalid_trial_is_made_again() -> None:
    sides = sides_of(10.0, 10.0)
    measured(sides)
    order = "".join(side.value for side, _ in sides.made)
    assert order == "AB" + "ABBAABBA" + "ABBAAB", "neither is always first"
    sides = sides_of(10.0, 10.0, invalid=frozenset({1, 4, 5}))
    case = measured(sides)
    numbers = [pair.of(side).number for pair in case.saturated for side in Side]
    assert len(case.saturated) == EFFORT.pairs
    assert not {1, 4, 5} & set(numbers)
    assert [side for side, _ in sides.made[:2]] == [Side.A, Side.A]


def test_a_side_that_is_never_valid_ends_the_case_without_an_answer() -> None:
    sides = sides_of(10.0, 10.0, invalid=frozenset(range(3, 1_000)))
    case = measured(sides)
    assert case.saturated == []
    assert "INVALID" in case.notes[0]
    assert len(sides.made) < 30
    assert conclude([compared(CAPACITY, case.saturated).effect], 0.05) == (Conclusion.NO_ANSWER,)


def test_a_machine_that_speeds_up_is_offered_more() -> None:
    case = measured(sides_of(10.0, 10.0, machine=lambda trial: 1.0 if trial <= 2 else 3.0))
    assert len(case.saturated) == EFFORT.pairs and case.load is not None
    assert case.load * PRODUCER_MB_PER_S * SATURATED_ACHIEVED_SHARE >= 30.0
    assert compared(CAPACITY, case.saturated).mean(Side.A) == pytest.approx(30.0)


def test_the_steady_load_is_lowered_until_both_sides_sustain_it() -> None:
    """Saturated brokers can take more because their batches are fuller."""
    sides = sides_of(10.0, 8.0, machine=lambda trial: 1.0 if trial <= 10 else 0.2)
    case = measured(sides)
    first = STEADY_SHARE * 8.0 / PRODUCER_MB_PER_S
    assert case.steady_load == pytest.approx(first * STEADY_LOWER**2, rel=0.02)
    assert len(case.steady) == EFFORT.steady_pairs
    assert len(sides.made) == 2 + 2 * EFFORT.pairs + 2 + 2 * EFFORT.steady_pairs
    assert case.notes == []
    case = measured(sides_of(10.0, 10.0, machine=lambda trial: 1.0 if trial <= 10 else 0.01))
    assert "side A was OVERLOADED in 3 of 3 steady trials" in case.notes[0]
    assert "side B" in case.notes[1]


def test_no_more_than_the_cap_is_offered() -> None:
    sides = sides_of(10.0, 10.0)
    with pytest.raises(NoConclusionError, match=r"100% of 20 producers per broker.*load_cap"):
        CaseComparer(sides, EFFORT, 5.0, 20.0).measure(ComparedSize(1_000))
    assert max(load for _, load in sides.made) == 20.0
    # Measured pairs stay when the time is up.
    sides = sides_of(10.0, 10.0)
    case = ComparedSize(1_000)
    CaseComparer(sides, EFFORT, START, CAP, lambda: len(sides.made) < 7).measure(case)
    assert len(case.saturated) == 3
    assert case.steady == []
    assert case.notes[0] == "the time budget ended after 3 of 4 pairs"


def test_the_owners_cap_is_named_where_it_allows_no_higher_load() -> None:
    guards = Guards(GuardLimits(), Cluster(), str.isdigit, print)
    guards.owner = lambda: {"redline-owner": OwnerBounds(np_max=6)}
    guards.read_bounds()
    goal = SimpleNamespace(search=SimpleNamespace(load_cap=100))
    run = SimpleNamespace(
        contexts={
            side: SimpleNamespace(guards=guards, brokers=brokers, pattern=lambda _, n: pattern(n))
            for side, brokers in (("a", 2), ("b", 3))
        }
    )
    body = SimpleNamespace(_config=SimpleNamespace(goal=goal))
    cap, key = ComparisonRun._highest_load(cast(ComparisonRun, body), cast(RunState, run), 1_000)
    assert (cap, key) == (2.0, "np_max of the cluster's owner in the topic redline-owner")
    guards.owner = dict
    guards.read_bounds()
    found = ComparisonRun._highest_load(cast(ComparisonRun, body), cast(RunState, run), 1_000)
    assert found == (100 / 3, "goal.search.load_cap")
    with pytest.raises(NoConclusionError, match=f"100% of 2 producers per broker.*raise {key}"):
        CaseComparer(sides_of(10.0, 10.0), EFFORT, 1.0, 2.0, cap_key=key).measure(
            ComparedSize(1_000)
        )


def drifting(chance: random.Random) -> Callable[[int], float]:
    """A machine that loses a third of its speed over a comparison, and wanders meanwhile."""
    wandering = [0.0]
    for _ in range(60):
        wandering.append(wandering[-1] + chance.gauss(0.0, 0.02))
    return lambda trial: math.exp(wandering[trial] - 0.02 * trial)


MACHINES = {"steady": lambda _chance: steady_machine, "drifting": drifting}


def effects(ratio: float, machine: str, noise: float = 0.04) -> list[Effect]:
    """The effects that comparisons find whose B takes `ratio` of A's load."""
    chance = random.Random(11)
    found = []
    for _ in range(COMPARISONS):
        sides = sides_of(
            10.0, 10.0 * ratio, chance=chance, noise=noise, machine=MACHINES[machine](chance)
        )
        case = measured(sides, Effort(pairs=4, steady_pairs=0))
        effect = compared(CAPACITY, case.saturated).effect
        assert effect is not None
        found.append(effect)
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_equal_sides_raise_no_more_false_alarms_than_promised(machine: str) -> None:
    found = effects(1.0, machine)
    alarms = fmean(not each.low <= 1.0 <= each.high for each in found)
    assert alarms <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / COMPARISONS)
    called = [conclude([each], 0.05)[0] for each in found]
    assert fmean(each is Conclusion.REGRESSION for each in called) <= 0.03


@pytest.mark.parametrize("machine", MACHINES)
def test_the_interval_holds_the_true_loss_as_often_as_promised(machine: str) -> None:
    held = fmean(each.low <= 0.85 <= each.high for each in effects(0.85, machine))
    assert held >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / COMPARISONS)


def test_a_loss_of_a_quarter_is_found() -> None:
    called = [conclude([each], 0.05)[0] for each in effects(0.75, "drifting")]
    assert fmean(each is Conclusion.REGRESSION for each in called) >= 0.9
