"""The guide of the search: the readings that count, and their weights."""

from __future__ import annotations

import math

import pytest

from search.estimate import Curve, Estimate, LoadEquation, solve
from search.guide import Guide
from search.guided import Aim, Guided, aim, bound_from_below
from search.limits import Limits
from search.model import Bracket, Measure, Observation, Trials, Verdict
from tests.support.searching import expect

IDLE_MIN = 0.20


def seen(load: int, idle: float) -> Observation:
    used = (1 - idle) / (1 - IDLE_MIN)
    verdict = Verdict.OVERLOADED if used > 1 else Verdict.SUSTAINED
    return Observation(load, verdict, {"request_handler_idle": used, "achieved": 0.0})


MISLED = [seen(64, 0.19), seen(59, 0.40), seen(64, 0.36), seen(69, 0.28)]
"""Readings of three brokers whose first trial met JVMs that were still cold."""


def test_the_reading_of_an_outvoted_trial_no_longer_guides() -> None:
    estimate = Guide().estimate(Trials(MISLED))
    load = expect(Estimate, estimate).load
    assert load == pytest.approx(74, abs=3), "a line through the other three"
    decision = expect(Measure, Guided(Limits(128, 20_000, 0.08, 3)).decide(MISLED))
    assert 70 <= decision.load <= 85


@pytest.mark.parametrize(("deviations", "counts"), [(2.3, True), (2.7, False)])
def test_an_outvoted_reading_counts_where_it_is_as_near_as_two_readings_scatter(
    deviations: float, counts: bool
) -> None:
    def read(verdict: Verdict, used: float) -> Observation:
        return Observation(100, verdict, {"request_handler_idle": used, "achieved": 0.0})

    guide, believed = Guide(noise=0.02), read(Verdict.SUSTAINED, 0.9)
    away = math.exp(deviations * guide.noise * math.sqrt(2.0))
    outvoted = read(Verdict.OVERLOADED, 0.9 * away)
    alone, all_of_them = [believed] * 2, [outvoted, believed, believed]
    assert (guide.expectation(Trials(all_of_them)) != guide.expectation(Trials(alone))) is counts


def test_a_ceiling_below_a_sustained_load_was_a_stall() -> None:
    read = {"request_handler_idle": 0.5, "achieved": 50.0}
    stood_still = Observation(100, Verdict.OVERLOADED, read)
    assert Guide().curve_of([stood_still]).at_limit == 0.5
    assert Guide().curve_of([stood_still, seen(90, 0.36)]).at_limit == 1.0
    # The reading nearest to the limit explains it.
    estimate = Estimate(120.0, spread=0.1, gain=0.75, at_limit=1.0)
    text = Guide().explain([seen(10, 0.9), seen(100, 0.4), seen(300, 0.1)], estimate)
    assert text.startswith("idle 0.40 at 100 producers, ")


def test_equations_that_contradict_each_other_are_trusted_less() -> None:
    agree = [LoadEquation(math.log(100), 0.0, 0.02)] * 4
    differ = [LoadEquation(math.log(load), 0.0, 0.02) for load in (85, 95, 105, 118)]
    calm, torn = (expect(Estimate, solve(each, None, Curve())) for each in (agree, differ))
    assert calm.scatter == 1.0
    assert torn.scatter > 2.0
    assert torn.spread == pytest.approx(calm.spread * torn.scatter)


@pytest.mark.parametrize(
    ("overloaded", "limit", "expected"),
    [
        (120, 117.0, Aim(115, "end the search")),
        (120, 108.0, Aim(104, "set a lower bound of the limit")),
        (200, 108.0, Aim(114, "bound the limit from above")),
    ],
    ids=["closes at 115", "overload near the estimate", "overload far above it"],
)
def test_the_next_load_closes_the_bracket_or_bounds_it_by_the_larger_gain(
    overloaded: int, limit: float, expected: Aim
) -> None:
    estimate = Estimate(limit, spread=0.1, gain=0.75, at_limit=1.0)
    bracket = Bracket(100, overloaded)
    assert aim(bracket, estimate, resolution=0.05, cap=1_000, climb_max=4.0) == expected


def test_a_bound_from_below_has_a_floor_for_uncertain_estimates() -> None:
    loads = [
        bound_from_below(Aim(990, "end the search"), Estimate(1_000.0, spread, 0.75, 1.0)).load
        for spread in (0.01, 0.1, 0.5, 3.0)
    ]
    assert loads[0] > loads[1] > loads[2] == loads[3] > 500
