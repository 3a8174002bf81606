"""The boundary line: its order, the effect of sizes on each other, budgets, resume, goals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from search.budget import Budget
from search.forecast import forecast, trials_left
from search.guided import Guided
from search.limits import Limits
from search.line import BoundaryModel, FinishedPoint, Line, Point, ProducerRate, bend_of, fit
from search.lines import run_goals
from search.model import Bracket, Decision, Done, GaveUp, Observation, Verdict
from tests.bench.search_methods import LIMITS, RATE, SIZES, Scenario, draw_line
from tests.support.searching import ScriptedGoals, expect, off_by
from tests.support.simulated_clusters import ClusterSpec, LineSpec, SimulatedLine, run_line_on
from tests.support.single_goal import run_line

pytestmark = pytest.mark.computes

USUAL = Scenario(
    "usual", ClusterSpec(capacity=1.0, noise=0.02, reading_noise=0.005, false_alarm=0.02)
)
LINE = Line(SIZES, RATE, LIMITS, brokers=3)


def test_extremes_come_first_and_then_the_widest_gap() -> None:
    order: list[int] = []
    points: list[FinishedPoint] = []
    line = Line((100, 1000, 10_000, 100_000), RATE, LIMITS)
    while (message_bytes := line.next_message_bytes(points)) is not None:
        order.append(message_bytes)
        points.append(FinishedPoint(message_bytes, GaveUp(Bracket(0, None), "none"), ()))
    assert order == [100_000, 100, 10_000, 1000]


def test_every_size_is_measured_and_neighbours_save_trials() -> None:
    first, later = [], []
    for seed in range(12):
        found = run_line_on(LINE, draw_line(USUAL, seed))
        assert sorted(point.message_bytes for point, _ in found) == sorted(SIZES)
        assert all(isinstance(point.result, Done) for point, _ in found)
        first += [outcome.trials for _, outcome in found[:2]]
        later += [outcome.trials for _, outcome in found[2:]]
    assert sum(later) / len(later) < min(4.0, sum(first) / len(first))
    heard: list[Decision] = []
    line = replace(LINE, check_for_change=False)
    points = run_line(line, draw_line(USUAL, 1).cluster, lambda decision, _: heard.append(decision))
    assert [one for one in heard if isinstance(one, (Done, GaveUp))] == [p.result for p in points]
    assert len(heard) == len(points) + sum(len(point.history) for point in points)


def test_a_budget_ends_the_line_with_the_best_bracket_so_far() -> None:
    for budget, names in (
        (Budget(trials=7), "budget of 7 trials"),
        (Budget(duration_s=400.0), "budget of 400 s"),
        (Budget(payload_bytes=60_000_000_000), "budget of 60000 MB"),
    ):
        line = Line(SIZES, RATE, LIMITS, brokers=3, budget=budget)
        points = run_line(line, draw_line(USUAL, 4).cluster)
        assert sorted(point.message_bytes for point in points) == sorted(SIZES)
        reasons = [point.result.reason for point in points if isinstance(point.result, GaveUp)]
        assert reasons
        for reason in reasons:
            assert names in reason or "this size's part of the budget" in reason
            assert "more trials" in reason
    least = Budget(trials=1, duration_s=0.1, payload_bytes=1)
    assert least.exhausted(LINE.spent(())) is None, "not used up before the first trial"


def test_a_difficult_size_leaves_trials_to_the_others() -> None:
    limits, budget = replace(LIMITS, resolution=0.002), Budget(trials=9)
    line = Line(SIZES[:3], RATE, limits, brokers=3, budget=budget)
    for seed in range(8):
        points = run_line(line, draw_line(USUAL, seed).cluster)
        assert [len(point.history) for point in points] == [5, 3, 1]
        first, _, last = (expect(GaveUp, point.result).reason for point in points)
        assert "this size's part of the budget, 5 trials, is used up" in first
        assert "the budget of 9 trials is used up" in last
    # A size without readings counts with the middle of its bracket.
    trials = (Observation(81, Verdict.SUSTAINED), Observation(100, Verdict.OVERLOADED))
    (point,) = LINE.points([FinishedPoint(1_000, Done(Bracket(81, 100)), trials)])
    assert point.limit == pytest.approx(90.0)


def fitted(points: Sequence[Point], rate: ProducerRate, **options: Any) -> BoundaryModel:
    return expect(BoundaryModel, fit(points, rate, **options))


def test_two_costs_are_recovered_from_three_points() -> None:
    rate = ProducerRate(records_per_s=1000.0)
    spec = LineSpec(3, rate, 2e-6, 4e-9, 0.0, ClusterSpec(capacity=1.0))
    points = [Point(size, spec.capacity(size), 0.01) for size in (100, 1000, 100_000)]
    model = fitted(points, rate, brokers=3)
    per_byte_s = sum(weight * cost_s for weight, _, cost_s in model.bends)
    per_batch_s = sum(weight * cost_s * bend for weight, bend, cost_s in model.bends)
    assert (per_byte_s, per_batch_s) == pytest.approx((4e-9, 2e-6), rel=0.1)
    for message_bytes in (300, 5000, 30_000):
        expected, spread = model.predict(message_bytes)
        assert expected == pytest.approx(spec.capacity(message_bytes), rel=0.05)
        assert spread < 0.1


def test_batches_follow_from_rate_linger_and_size() -> None:
    rate = ProducerRate(bytes_per_s=125_000, linger_s=0.025, batch_bytes=16_384)
    assert rate.batches(10_000) == 12.5  # one record each
    assert rate.batches(1_000) == 125 / 4
    assert rate.batches(100) == 1_250 / 32
    assert rate.batches(10) == pytest.approx(12_500 / 313)
    full = ProducerRate(bytes_per_s=1e6, linger_s=0.025, batch_bytes=16_384)
    assert full.batches(1_000) == pytest.approx(1_000 / 16.384)
    # Small batches cost as much as large ones: three disk-bound brokers sustained 46 producers
    # at 100 B, 48 to 56 at 1 kB and 112 at 10 kB.
    model = fitted([Point(10_000, 112.0, 0.04), Point(100, 46.0, 0.04)], rate, brokers=3)
    assert model.predict(1_000)[0] == pytest.approx(52, abs=5)
    for rates in ({}, {"records_per_s": 1.0, "bytes_per_s": 1.0}):
        with pytest.raises(ValueError, match="exactly one"):
            ProducerRate(**rates)


def test_one_point_predicts_near_sizes_better_than_far_ones() -> None:
    model = fitted([Point(1000, 200.0, 0.02)], RATE, brokers=3)
    same, near, far = (model.predict(message_bytes)[1] for message_bytes in (1000, 2000, 10_000))
    assert same < near < far
    assert model.predict(1000)[0] == pytest.approx(200.0, rel=0.01)
    assert fit([], RATE, brokers=3) is None


def test_bends_weigh_by_the_likelihood_of_the_difference_of_two_points() -> None:
    points = [Point(100, 46.0, 0.2), Point(10_000, 26.0, 0.1)]
    model = fitted(points, ProducerRate(records_per_s=1_000.0), brokers=3, misfit=0.05)
    variance = 0.2**2 + 0.1**2 + 2 * 0.05**2
    misses = [
        math.log(46.0 / 26.0) - math.log((bend + 10_000) / (bend + 100))
        for _, bend, _ in model.bends
    ]
    likely = [math.exp(-0.5 * miss**2 / variance) for miss in misses]
    expected = [each / sum(likely) for each in likely]
    assert [weight for weight, _, _ in model.bends] == pytest.approx(expected)


def test_the_line_is_refined_where_it_bends() -> None:
    rate = ProducerRate(bytes_per_s=1e6)
    points = [
        Point(message_bytes, 300.0 / (1.0 + 1_000.0 / message_bytes), 0.02)
        for message_bytes in (10, 100, 3000, 30_000, 100_000)
    ]
    added = bend_of(points, rate)
    assert added is not None
    assert 100 < added < 3000
    # On the side of the bend with the farther neighbor; none on a straight line.
    for limits, size in (
        ({100: 100.0, 1_000: 300.0, 100_000: 300.0}, 10_000),
        ({10: 100.0, 10_000: 300.0, 100_000: 300.0}, 316),
        (dict.fromkeys((100, 3000, 10_000, 100_000), 300.0), None),
    ):
        assert bend_of([Point(*each, 0.02) for each in limits.items()], rate) == size
    line = Line((100, 3000, 100_000), rate, LIMITS, brokers=3, refine_max=2)
    measured = run_line(line, draw_line(USUAL, 3).cluster)
    assert 3 <= len(measured) <= 5


def test_the_utilization_at_the_limit_is_that_of_most_sizes() -> None:
    def point(message_bytes: int, used: float, achieved: float) -> FinishedPoint:
        read = {"request_handler_idle": used, "achieved": achieved}
        trials = (
            Observation(97, Verdict.SUSTAINED, {"request_handler_idle": 0.97 * used}),
            Observation(100, Verdict.OVERLOADED, read),
        )
        return FinishedPoint(message_bytes, Done(Bracket(97, 100)), trials)

    by_handlers = [point(message_bytes, 1.02, 1.0) for message_bytes in (100, 200, 400)]
    by_something_else = [point(message_bytes, 0.5, 50.0) for message_bytes in (1_000, 2_000)]
    for finished, at_limit in (
        (by_handlers + by_something_else, 1.0),
        (by_handlers[:1] + by_something_else, 0.5),
    ):
        assert LINE.guide_for(10_000, finished).curve.at_limit == at_limit


def test_a_forecast_covers_the_later_trials() -> None:
    line = Line((100, 1000, 10_000), RATE, Limits(128, 20_000, 0.05, 3), brokers=3)
    before = forecast(line, trial_s=40.0, clusters=30)
    assert before == forecast(line, trial_s=40.0, clusters=30)
    assert before.trials.low <= before.trials.median <= before.trials.high
    assert before.seconds.median == pytest.approx(before.trials.median * 40.0)
    spec = LineSpec(
        3, RATE, 1e-5, 1e-8, 0.03, ClusterSpec(capacity=1.0, noise=0.02, reading_noise=0.005)
    )
    points = run_line(line, SimulatedLine(spec, 5).cluster)
    assert before.trials.low <= line.spent(points).trials <= before.trials.high + 3
    assert trials_left(line, points, ()) == 0
    assert trials_left(line, points[:2], ()) >= 1
    capped = Line(line.sizes, RATE, line.limits, 3, Budget(trials=5))
    assert forecast(capped, 40.0, clusters=10).trials.high <= 5
    assert trials_left(capped, (), ()) == 5
    narrow, wide = (
        replace(LINE, sizes=SIZES[:2], limits=replace(LIMITS, interval_max=share))
        for share in (0.03, None)
    )
    highs = [forecast(each, 40.0, clusters=8).trials.high for each in (narrow, wide)]
    assert highs[0] > highs[1]


def test_answers_without_an_interval_come_from_the_same_trials() -> None:
    quiet = replace(LINE, guide=replace(LINE.guide, states_interval=False))
    spec = draw_line(USUAL, 4).spec
    stated, unstated = (run_line(line, SimulatedLine(spec, 4).cluster) for line in (LINE, quiet))
    assert [point.history for point in stated] == [point.history for point in unstated]
    assert [point.result.bracket for point in stated] == [
        point.result.bracket for point in unstated
    ]
    assert all(point.result.interval is not None for point in stated)
    assert all(point.result.interval is None for point in unstated)
    (end, *_) = (point.result for point in unstated)
    assert isinstance(end, Done)
    assert end.confidence is None


def test_a_hundred_brokers_and_twenty_thousand_producers_can_be_planned() -> None:
    rate = ProducerRate(bytes_per_s=300e3)
    behavior = ClusterSpec(capacity=1.0, noise=0.02, reading_noise=0.005, false_alarm=0.02)
    spec = LineSpec(100, rate, 1e-6, 1.0 / 60e6, 0.03, behavior)
    line = Line((100, 1000, 10_000), rate, Limits(10_000, 40_000, 0.05, 3), brokers=100)
    found = run_line_on(line, SimulatedLine(spec, 1))
    assert max(point.result.bracket.sustained for point, _ in found) > 15_000
    for _, outcome in found:
        assert off_by(outcome) < 0.10


def test_several_goals_share_their_trials() -> None:
    pairs = [(50, 60), (100, 400), (90, 90)]
    pairs += [(strict, strict * by // 10) for strict in range(30, 200, 17) for by in (11, 15, 30)]
    together, alone, search = 0, 0, Limits(256, 1024, 0.05, 3)
    for strict, loose in pairs:
        goals = {"strict": strict, "loose": loose}
        measurer, apart = ScriptedGoals(goals), 0
        results = run_goals({name: Guided(search, allowance=8) for name in goals}, measurer)
        for name, limit in goals.items():
            bracket = expect(Done, results[name].result).bracket
            assert bracket.overloaded is not None
            assert bracket.sustained <= limit < bracket.overloaded
            single = ScriptedGoals({name: limit})
            run_goals({name: Guided(search)}, single)
            apart += len(single.loads)
        assert len(measurer.loads) <= apart
        together, alone = together + len(measurer.loads), alone + apart
    assert together < 0.9 * alone
