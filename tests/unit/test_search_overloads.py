"""Clusters that deliver more than their limit: the information of an overload, and its cost."""

from __future__ import annotations

import math
import random

import pytest

from search.estimate import Estimate, below, delivered_readings
from search.guide import Guide
from search.guided import Guided
from search.limits import Limits
from search.load_verdicts import bracket_of_verdicts, load_verdicts_of
from search.model import Done, Measure, Observation, Verdict
from search.signals import Signals
from search.simulate import ClusterSpec
from tests.bench.search_overloads import compare_overloads, conditions
from tests.bench.search_recorded import STARTS, RecordedCluster, ladders, replay
from tests.support.searching import run_search

pytestmark = pytest.mark.computes

LIMITS = Limits(128, 20_000, 0.05, 3)


def seen(load: int, idle: float, achieved: float = 1.0, isr: float = 0.0) -> Observation:
    read = {
        "request_handler_idle": (1 - idle) / 0.8,
        "achieved": (1 - achieved) / 0.01,
        "isr": isr,
    }
    over = max(read.values()) > 1.0
    return Observation(load, Verdict.OVERLOADED if over else Verdict.SUSTAINED, read)


def next_load(*history: Observation) -> Measure:
    decision = Guided(LIMITS).decide(history)
    assert isinstance(decision, Measure)
    return decision


# --- The figures of `make bench-search`, on fewer points --------------------------


def test_the_guided_search_needs_fewer_trials_than_bisection_in_every_condition() -> None:
    results = list(compare_overloads(conditions(0.05)))
    own = [one for one in results if one.method == "redline"]
    plain = [one for one in results if one.method != "redline"]
    assert len(own) == len(plain) == 20
    assert sum(one.condition.is_held_out for one in own) == 10
    for guided, bisection in zip(own, plain, strict=True):
        assert guided.condition == bisection.condition
        assert guided.trials < bisection.trials - 1.0, guided.condition.name
        assert guided.off_10 <= 0.02, guided.condition.name
    assert sum(one.off_10 for one in own) / len(own) <= 0.005
    for start, most in {"cold": 5.6, "high": 5.9, "low": 6.7, "line": 4.5}.items():
        trials = [one.trials for one in own if one.condition.start == start]
        assert sum(trials) / len(trials) <= most, start


# --- Recorded brokers ------------------------------------------------------------


REPLAYS = {start: 40 if start == "cold" else 20 for start in STARTS}
"""Start → searches on each ladder; cold ones are wrong most often, in 1 % of all."""


@pytest.mark.parametrize("start", STARTS)
def test_the_search_on_readings_of_real_brokers(start: str) -> None:
    results = list(replay(ladders(), (start,), points=REPLAYS[start]))
    own = [one for one in results if one.method == "redline"]
    plain = [one for one in results if one.method != "redline"]
    assert len(own) == len(plain) == len(ladders()) >= 12
    assert sum(one.ladder.is_held_out for one in own) >= len(own) / 2
    for guided, bisection in zip(own, plain, strict=True):
        assert guided.trials < bisection.trials, guided.ladder.name
        assert guided.off_10 <= 0.05, guided.ladder.name
    count = len(own)
    assert sum(one.off_10 for one in own) / count <= 0.015
    assert sum(one.held for one in own) / count >= 0.85
    assert sum(one.trials for one in own) < sum(one.trials for one in plain) - 1.0 * count


def test_ladders_have_recorded_readings_and_cross_the_threshold_at_their_limit() -> None:
    for ladder in ladders():
        assert max(ladder.indicators(0.98).values()) < 1.0 < max(ladder.indicators(1.02).values())
        readings = [value for _, value in ladder.handlers]
        assert readings == sorted(readings)
        assert ladder.handlers[0][0] < 0.3 and ladder.heaviest > 3.0, ladder.name


# --- One overload ----------------------------------------------------------------


def test_the_delivered_load_of_a_saturated_overload_is_an_upper_bound_and_no_estimate() -> None:
    signals, saturated = Signals(), seen(64, 0.01, achieved=0.9)
    assert signals.delivered(saturated) is None
    assert signals.at_most(saturated) == pytest.approx(57.6)
    verdicts = load_verdicts_of([saturated])
    assert Guide().estimate([saturated], verdicts, bracket_of_verdicts(verdicts)) is None
    below_it = next_load(saturated)
    assert below_it.load < 57.6 / 1.5
    assert "idle 0.01 at 64 producers shows only that the limit is lower" in below_it.reason


def test_the_delivered_load_of_an_overload_with_idle_handlers_shows_the_limit() -> None:
    signals, short = Signals(), seen(64, 0.52, achieved=0.7)
    assert signals.at_most(short) is None
    assert signals.delivered(short) == pytest.approx(0.7)
    (equation,) = delivered_readings([short], signals)
    assert math.exp(equation.log_load) == pytest.approx(64 * 0.7 / 0.99)
    assert signals.delivered(Observation(64, Verdict.OVERLOADED, {"achieved": 30.0})) is not None


def test_after_a_very_light_sustained_load_the_next_one_is_four_times_as_heavy() -> None:
    decision = next_load(seen(16, 0.98))
    assert decision.load == 64
    assert "idle 0.98 at 16 producers shows only that the limit is higher" in decision.reason


@pytest.mark.parametrize("fluke", [seen(64, 0.9, isr=1.5), seen(64, 0.9, achieved=0.94)], ids=str)
def test_one_overload_of_handlers_at_rest_is_measured_again(fluke: Observation) -> None:
    assert next_load(fluke) == Measure(
        64, "overloaded at 64 producers with idle 0.90, in one trial; repeating it"
    )
    twice = next_load(fluke, fluke)
    assert twice.load != 64


def test_a_heavier_overload_that_left_handlers_as_idle_supports_a_lighter_one() -> None:
    short = [seen(64, 0.52, achieved=0.8), seen(64, 0.52, achieved=0.8), seen(48, 0.53, 0.95)]
    assert next_load(*short).load != 48


def test_an_estimate_below_a_bound_is_a_normal_curve_cut_off_there() -> None:
    chance = random.Random(1)
    for load, spread, bound in ((100.0, 0.3, 80.0), (100.0, 0.1, 105.0), (100.0, 0.2, 60.0)):
        cut = below(Estimate(load, spread, 1.0, 1.0), bound)
        drawn = [chance.gauss(math.log(load), spread) for _ in range(400_000)]
        kept = [one for one in drawn if one < math.log(bound)]
        mean = sum(kept) / len(kept)
        assert math.log(cut.load) == pytest.approx(mean, abs=0.01)
        variance = sum((one - mean) ** 2 for one in kept) / len(kept)
        assert cut.spread == pytest.approx(math.sqrt(variance), abs=0.01)
    far = Estimate(100.0, 0.05, 1.0, 1.0)
    assert below(far, 200.0) == far
    assert below(far, 50.0).load == 50.0


def test_a_cold_start_far_above_ends_with_the_right_bracket() -> None:
    (slow,) = [one for one in ladders() if one.name == "slow-broker 1 kB"]
    spec = ClusterSpec(11.4, noise=0.02, reading_noise=0.005, false_alarm=0.02)
    result = run_search(Guided(LIMITS), RecordedCluster(slow, spec, 3))
    assert isinstance(result, Done)
    assert result.bracket.sustained in (10, 11, 12)
