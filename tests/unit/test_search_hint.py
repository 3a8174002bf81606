"""The reading of the warm-up chooses the first load, and costs little when it is wrong."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from metrics.trial.warm_up import WarmUp
from search.bisect import Bisection
from search.boundary_model import ProducerRate
from search.guide import Guide
from search.guided import ALLOWANCE, Guided
from search.limits import Limits
from search.line import FinishedPoint, Line
from search.model import Bracket, Done, Measure, Observation, Verdict
from search.simulate import ClusterSpec, SimulatedCluster
from tests.bench.search_overloads import behavior_of
from tests.support.searching import run_on

pytestmark = pytest.mark.computes

LIMITS = Limits(128, 20_000, 0.05, 3)
QUIET = Guide(states_interval=False)


def hint(load: int, idle: float) -> Observation:
    found = WarmUp(load, idle).hint(0.2)
    assert found is not None
    return found


def first_load(seen: Observation) -> Measure:
    decision = Guided(LIMITS, Guide().with_hint(seen)).decide(())
    assert isinstance(decision, Measure)
    return decision


def test_no_warm_up_is_no_hint() -> None:
    assert WarmUp().hint(0.2) is None
    assert WarmUp(64, None).hint(0.2) is None


def test_a_reading_near_the_threshold_is_where_the_search_begins() -> None:
    decision = first_load(hint(32, 0.49))
    assert 35 <= decision.load <= 48
    assert "the warm-up put the limit near" in decision.reason


def test_a_warm_up_that_left_no_idle_time_shows_only_a_lower_limit() -> None:
    decision = first_load(hint(64, 0.0))
    assert decision.load == 21
    assert "idle 0.00 at 64 producers in the warm-up" in decision.reason
    assert "lower" in decision.reason


@pytest.mark.parametrize("idle", [1.0, 0.99, 0.975])
def test_a_warm_up_that_left_brokers_at_rest_shows_only_a_higher_limit(idle: float) -> None:
    decision = first_load(hint(64, idle))
    assert decision.load == 256
    assert "higher" in decision.reason


@pytest.mark.parametrize("theirs", [0.0, 0.2, 0.4, 0.6])
@pytest.mark.parametrize("load", [30, 50])
def test_beside_others_a_hint_counts_what_they_leave(load: int, theirs: float) -> None:
    """The handlers' busy time is that of others and, up to the limit of 100, that of the load."""
    busy = theirs + (0.8 - theirs) * load / 100
    seen = WarmUp(load, 1.0 - busy, idle_at_rest=1.0 - theirs).hint(0.2)
    assert seen is not None
    prior = Guide().with_hint(seen).prior
    assert prior is not None
    alone = WarmUp(load, 1.0 - 0.8 * load / 100).hint(0.2)
    assert alone is not None
    expected = Guide().with_hint(alone).prior
    assert expected is not None
    assert prior.load == pytest.approx(expected.load)
    decision = Guided(LIMITS, Guide().with_hint(seen)).decide(())
    assert isinstance(decision, Measure)
    assert decision.load == first_load(alone).load


def test_a_hint_is_no_bound() -> None:
    cluster = SimulatedCluster(
        ClusterSpec(300.0), 1
    )  # warm brokers sustain far more than cold ones
    end = run_on(Guided(LIMITS, Guide().with_hint(hint(64, 0.0))), cluster)
    assert isinstance(end.result, Done)
    assert end.result.bracket.sustained == pytest.approx(290, abs=12)


def test_only_the_first_measured_size_uses_the_hint() -> None:
    line = Line((100, 1000), ProducerRate(bytes_per_s=1e5), LIMITS, hint=hint(32, 0.49))
    assert line.guide_for(1000, ()).prior is not None
    done = FinishedPoint(1000, Done(Bracket(40, 42)), (Observation(42, Verdict.OVERLOADED, {}),))
    found = line.guide_for(100, (done,)).prior
    assert found is None or found.source != "the warm-up"


def test_a_misleading_hint_costs_a_trial_more_than_any_misleading_guide_at_most() -> None:
    chance = random.Random(5)
    for limit in (3, 8, 20, 40, 50, 64, 100, 127, 128, 129, 300, 900):
        spec = ClusterSpec(limit + 0.5)
        plain = run_on(Bisection(LIMITS), SimulatedCluster(spec, 1)).trials
        for _ in range(20):
            load = round(math.exp(chance.uniform(0.0, math.log(2000.0))))
            seen = hint(load, chance.choice((0.0, chance.uniform(0.0, 0.8))))
            end = run_on(Guided(LIMITS, QUIET.with_hint(seen)), SimulatedCluster(spec, 1))
            misled = seen.indicators["request_handler_idle"] > 1.0 and load <= limit
            assert end.trials <= plain + ALLOWANCE + misled, (limit, load)


def test_a_hint_saves_trials_where_a_single_size_starts_cold() -> None:
    saved, wrong, count = 0, 0, 150
    for seed in range(count):
        chance = random.Random(seed)
        capacity = math.exp(chance.uniform(math.log(16.0), math.log(250.0)))
        spec = replace(behavior_of(chance, chance.choice((1.25, 3.0))), capacity=capacity)
        cold = run_on(Guided(LIMITS, QUIET), SimulatedCluster(spec, seed))
        warmed = SimulatedCluster(replace(spec, noise=0.05, false_alarm=0.0), seed + 1).measure(64)
        used = warmed.indicators["request_handler_idle"]
        seen = hint(64, max(0.0, 1.0 - 0.8 * used))
        hinted = run_on(Guided(LIMITS, QUIET.with_hint(seen)), SimulatedCluster(spec, seed))
        saved += cold.trials - hinted.trials
        wrong += hinted.is_off(0.10)
    assert saved >= 0.5 * count
    assert wrong <= 0.01 * count


def test_only_the_first_size_begins_no_higher_than_the_generator_showed() -> None:
    """Messages of another size cost the generator another time."""
    line = Line(
        (100, 1_000), ProducerRate(bytes_per_s=1e6), replace(LIMITS, first_max=20), guide=QUIET
    )
    first = line.searcher(1_000, ()).decide(())
    found = FinishedPoint(1_000, Done(Bracket(95, 100)), (Observation(95, Verdict.SUSTAINED),))
    second = line.searcher(100, (found,)).decide(())
    assert isinstance(first, Measure)
    assert isinstance(second, Measure)
    assert (first.load, second.load > 20) == (20, True)
