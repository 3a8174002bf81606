"""Clusters that deliver more than their limit: what an overload says, and what it costs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from search.bisect import Bisection
from search.estimate import Estimate, below
from search.guide import Guide
from search.guided import Guided
from search.limits import Limits
from search.loop import run_search
from search.model import Done, Measure, Observation, Searcher, Verdict
from search.signals import Signals
from search.standing import bracket_of_standings, standings_of
from tests.bench.search_overloads import compare_overloads, conditions

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


def test_it_needs_fewer_trials_than_bisection_and_is_seldom_off_in_every_condition() -> None:
    results = list(compare_overloads(conditions(0.1)))
    ours = [one for one in results if one.method == "redline"]
    plain = [one for one in results if one.method != "redline"]
    assert len(ours) == len(plain) == 20
    assert sum(one.condition.is_held_out for one in ours) == 10
    for guided, bisection in zip(ours, plain, strict=True):
        assert guided.condition == bisection.condition
        assert guided.trials < bisection.trials - 1.0, guided.condition.name
        assert guided.off_10 <= 0.02, guided.condition.name
    assert sum(one.off_10 for one in ours) / len(ours) <= 0.005
    for start, most in {"cold": 5.6, "high": 5.9, "low": 6.7, "line": 4.5}.items():
        trials = [one.trials for one in ours if one.condition.start == start]
        assert sum(trials) / len(trials) <= most, start


# --- Brokers as they were ---------------------------------------------------------


class Recorded:
    """The handlers' idle fraction that real brokers read at each np, at 1 kB, with noise."""

    def __init__(self, idle: dict[int, float], most: float, seed: int) -> None:
        self.idle = idle
        self.most = most
        self.trials: list[Observation] = []
        self._chance = random.Random(seed)

    def measure(self, load: int) -> Observation:
        idle = self._idle(load * math.exp(0.02 * self._chance.gauss(0.0, 1.0)))
        idle = min(1.0, max(0.0, idle + 0.005 * self._chance.gauss(0.0, 1.0)))
        flaps = self._chance.random() < 0.02
        self.trials.append(seen(load, idle, min(1.0, self.most / load), 1.5 * flaps))
        return self.trials[-1]

    def _idle(self, load: float) -> float:
        """Between what was read; from rest in a straight line below it."""
        loads = sorted(self.idle)
        if load <= loads[0]:
            return 0.98 - (0.98 - self.idle[loads[0]]) * load / loads[0]
        for left, right in pairwise(loads):
            if load <= right:
                share = math.log(load / left) / math.log(right / left)
                return self.idle[left] + (self.idle[right] - self.idle[left]) * share
        return self.idle[loads[-1]]


SLOW_BROKER = {8: 0.50, 10: 0.28, 11: 0.22, 12: 0.17, 16: 0.01, 32: 0.0, 64: 0.0}
"""Two brokers, one whose every flush took 4 ms longer; 90 % of np 64 got through."""
DISK_BOUND = {18: 0.31, 20: 0.09, 24: 0.02, 32: 0.0, 64: 0.0}
"""The testbed that waits for the disk; all of np 64 got through."""


@pytest.mark.parametrize(
    ("idle", "most", "limit"),
    [(SLOW_BROKER, 57.6, 11.4), (DISK_BOUND, 64.0, 19.0)],
    ids=["slow broker", "disk-bound"],
)
@pytest.mark.parametrize(("start", "trials_max"), [(128, 6.0), (1024, 8.0)])
def test_on_what_real_brokers_read(
    idle: dict[int, float], most: float, limit: float, start: int, trials_max: float
) -> None:
    limits = Limits(start, 20_000, 0.05, 3)

    def mean(make: Callable[[Limits], Searcher]) -> tuple[float, float, float]:
        trials = off = held = 0
        for seed in range(150):
            brokers = Recorded(idle, most, seed)
            result = run_search(make(limits), brokers)
            trials += len(brokers.trials)
            off += abs(result.bracket.sustained - limit) > max(0.1 * limit, 1.0)
            where = result.interval
            held += where is not None and where.low <= limit <= where.high
        return trials / 150, off / 150, held / 150

    (ours, ours_off, held), (plain, plain_off, _) = mean(Guided), mean(Bisection)
    assert held >= 0.87
    assert ours <= trials_max
    assert ours < plain - 1.0
    assert ours_off <= 0.02 < plain_off


# --- What one overload says -------------------------------------------------------


def test_what_a_saturated_overload_delivered_is_an_upper_bound_and_no_estimate() -> None:
    signals, saturated = Signals(), seen(64, 0.01, achieved=0.9)
    assert signals.delivered(saturated) is None
    assert signals.at_most(saturated) == pytest.approx(57.6)
    standings = standings_of([saturated])
    assert Guide().estimate([saturated], standings, bracket_of_standings(standings)) is None
    below_it = next_load(saturated)
    assert below_it.load < 57.6 / 1.5
    assert "idle 0.01 at np 64 says only that the limit is lower" in below_it.reason


def test_an_overload_with_idle_handlers_says_where_the_limit_is_by_what_it_delivered() -> None:
    signals, short = Signals(), seen(64, 0.52, achieved=0.7)
    assert signals.at_most(short) is None
    assert signals.delivered(short) == pytest.approx(0.7)
    assert signals.delivered(Observation(64, Verdict.OVERLOADED, {"achieved": 30.0})) is not None


def test_a_sustained_load_that_hardly_shows_is_left_behind_fast() -> None:
    decision = next_load(seen(16, 0.98))
    assert decision.load == 64
    assert "idle 0.98 at np 16 says only that the limit is higher" in decision.reason


@pytest.mark.parametrize("fluke", [seen(64, 0.9, isr=1.5), seen(64, 0.9, achieved=0.94)], ids=str)
def test_one_overload_of_handlers_at_rest_is_measured_again(fluke: Observation) -> None:
    assert next_load(fluke) == Measure(
        64, "np 64 was overloaded with idle 0.90, in one trial; repeating it"
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
    brokers = Recorded(SLOW_BROKER, 57.6, 3)
    result = run_search(Guided(LIMITS), brokers)
    assert isinstance(result, Done)
    assert result.bracket.sustained in (10, 11, 12)
