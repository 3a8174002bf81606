"""A limit that changes while it is measured is noticed, named and measured again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from search.bisect import Bisection
from search.budget import Budget
from search.closing import LEAST, MORE_MAX, Checking, describe, suspicion
from search.estimate import Curve
from search.forecast import forecast, trials_left
from search.guided import Guided
from search.limits import Limits
from search.line import Line, ProducerRate
from search.lines import run_lines
from search.model import (
    Change,
    Decision,
    Done,
    GaveUp,
    Interval,
    Measure,
    Observation,
    Searcher,
    Verdict,
)
from search.posterior import TrialEvidence
from tests.bench.search_changing import changing_cases, found_of
from tests.support import searching
from tests.support.searching import ScriptedGoals, expect
from tests.support.simulated_clusters import (
    ClusterSpec,
    LineSpec,
    SimulatedCluster,
    SimulatedEnd,
    SimulatedLine,
    run_line_on,
    run_on,
)
from tests.support.single_goal import guide_of, run_line, run_search

LIMITS = Limits(128, 4096, 0.05, 3)
SPEC = ClusterSpec(300.0, noise=0.02, reading_noise=0.005)


def is_right(end: SimulatedEnd) -> bool:
    """True when the answer is within 10 % of the limit of the last trial."""
    assert isinstance(end.result, Done)
    return end.result.bracket.sustained == pytest.approx(end.present_limit, rel=0.10)


SEARCHERS = [lambda: Guided(LIMITS), lambda: Bisection(LIMITS)]


@pytest.mark.parametrize("make", SEARCHERS)
def test_a_steady_cluster_costs_one_trial_and_keeps_its_answer(
    make: Callable[[], Searcher],
) -> None:
    spec = replace(SPEC, noise=0.0, reading_noise=0.0)
    alone = searching.run_on(make(), SimulatedCluster(spec, 1))
    cluster = SimulatedCluster(spec, 1)
    checked = run_on(make(), cluster)
    assert checked.result == alone.result
    assert checked.trials == alone.trials + 1
    assert isinstance(checked.result, Done)
    bracket = checked.result.bracket
    assert cluster.trials[-1].load in (bracket.sustained, bracket.overloaded)
    assert cluster.trials[-1].load in [seen.load for seen in cluster.trials[:-1]]


@pytest.mark.parametrize("make", SEARCHERS)
@pytest.mark.parametrize("factor", [0.5, 0.75, 1.4])
def test_a_step_in_the_middle_is_named_and_the_present_limit_is_the_answer(
    make: Callable[[], Searcher], factor: float
) -> None:
    spec = replace(SPEC, noise=0.0, steps=((5, factor),))
    end = run_on(make(), SimulatedCluster(spec, 1))
    (change,) = end.result.changed
    assert change.last_before < change.since
    assert change.last_before <= 4 <= change.since + 1
    assert is_right(end)
    assert end.present_limit == pytest.approx(300 * factor)
    assert change.before is not None and change.after is not None
    assert change.before.low <= 300 <= change.before.high * 1.05
    before, after = change.before.median or 0.0, change.after.median or 0.0
    assert (after > before) is (factor > 1.0)


def test_a_single_repeat_that_differs_is_repeated_and_is_no_change() -> None:
    class Stalling(SimulatedCluster):
        """A steady cluster whose trial after the search reads a limit of 60 % less."""

        def measure(self, load: int) -> Observation:
            is_stalled = len(self.trials) == alone.trials
            self.spec = replace(spec, capacity=(0.4 if is_stalled else 1.0) * spec.capacity)
            return super().measure(load)

    spec = replace(SPEC, noise=0.005)
    alone = searching.run_on(Guided(LIMITS), SimulatedCluster(spec, 2))
    cluster = Stalling(spec, 2)
    end = run_on(Guided(LIMITS), cluster)
    assert end.result.changed == ()
    assert is_right(end)
    first, second, *_ = cluster.trials[alone.trials :]
    assert first.load == second.load


@pytest.mark.parametrize("seed", [6, 30])
def test_an_answer_that_its_repeats_contradicted_is_checked_once_more(seed: int) -> None:
    loads: list[tuple[bool, int]] = []

    def note(decision: Decision, _history: Sequence[Observation]) -> None:
        if isinstance(decision, Measure):
            loads.append((decision.checks, decision.load))

    noisy = ClusterSpec(300.0, noise=0.05, reading_noise=0.02)
    end = run_on(Guided(LIMITS), SimulatedCluster(noisy, seed), note)
    assert isinstance(end.result, Done) and not end.result.changed
    checks = "".join("look " if checks else "search " for checks, _ in loads)
    assert "look look search" in checks, "the first answer was contradicted"
    assert checks.endswith("search look ") and checks.count("search look ") == 2
    bracket = end.result.bracket
    assert loads[-1][1] in (bracket.sustained, bracket.overloaded)
    assert loads[-1][1] != next(load for checks, load in loads if checks)


def test_overloads_that_leave_the_handlers_idle_are_no_change() -> None:
    spec = replace(SPEC, capacity=59.0, utilization_at_limit=0.6, curve_power=1.6)
    for seed in (2, 4, 11, 25):
        end = run_on(Guided(LIMITS), SimulatedCluster(spec, seed))
        assert is_right(end)
        assert not end.result.changed


def test_repeats_that_stay_invalid_leave_the_answer_unchecked() -> None:
    class Spoiled(SimulatedCluster):
        def measure(self, load: int) -> Observation:
            seen = super().measure(load)
            if len(self.trials) <= alone.trials:
                return seen
            return replace(seen, verdict=Verdict.INVALID, indicators={})

    alone = searching.run_on(Guided(LIMITS), SimulatedCluster(SPEC, 4))
    end = run_on(Guided(LIMITS), Spoiled(SPEC, 4))
    assert isinstance(end.result, Done) and isinstance(alone.result, Done)
    assert end.result.bracket == alone.result.bracket
    assert end.trials == alone.trials + 2
    assert "not checked for a change of the limit" in end.result.notes[-1]


def test_it_decides_the_same_from_the_history_alone_and_the_first_step_names_a_change() -> None:
    heard: list[tuple[Decision, tuple[Observation, ...]]] = []
    cluster = SimulatedCluster(replace(SPEC, steps=((5, 0.7),)), 5)
    run_search(Guided(LIMITS), cluster, lambda step, seen: heard.append((step, tuple(seen))))
    end = expect(Done, heard[-1][0])
    searcher = Guided(LIMITS)
    for decision, history in heard:
        again = Checking(searcher, guide_of(searcher), LIMITS.words)
        assert again.decide(history) == decision
        assert (again.trials_left(history) == 0) is not isinstance(decision, Measure)
    steps = [step for step, _ in heard if isinstance(step, Measure)]
    assert any(step.checks for step in steps)
    assert any("to check whether the limit has changed" in step.reason for step in steps)
    (named,) = (step for step in steps if step.reason.startswith("the limit changed from"))
    assert named.reason.startswith(describe(end.changed[0], LIMITS.words))


def test_a_limit_that_fell_is_found_though_a_repeat_confirms_the_newer_overload() -> None:
    """Readings of a broker whose CPU quota was lowered: handlers are idle up to its limit."""

    class Throttled:
        def __init__(self) -> None:
            self.trials = 0

        def measure(self, load: int) -> Observation:
            limit, used = (220, 1.2) if self.trials < 4 else (124, 1.225)
            self.trials += 1
            if load > limit:
                return Observation(load, Verdict.OVERLOADED, {"request_handler_idle": used})
            used = float(np.interp(load, (0, 64, 130, 178, 300), (0.0, 0.0625, 0.1125, 0.2, 0.4)))
            return Observation(load, Verdict.SUSTAINED, {"request_handler_idle": used})

    end = expect(Done, run_search(Guided(Limits(128, 1000, 0.15, 3)), Throttled()))
    assert end.changed[0].last_before == 3
    bracket = end.bracket
    assert bracket.overloaded is not None
    assert 100 <= bracket.sustained <= 124 < bracket.overloaded <= 150


def test_after_three_changes_no_further_one_is_looked_for() -> None:
    steps = tuple((at, 0.6) for at in range(5, 200, 4))
    end = run_on(Guided(LIMITS), SimulatedCluster(replace(SPEC, capacity=3000.0, steps=steps), 1))
    assert len(end.result.changed) <= 3
    assert end.trials < 60


def test_one_goal_of_several_asks_for_the_closing_trial_after_all_others() -> None:
    limits = {"loose": 300.0, "strict": 200.0}
    steps: list[Decision] = []
    cluster = ScriptedGoals(limits)
    line = Line((1_000,), ProducerRate(bytes_per_s=1e6), LIMITS)
    found = run_lines(
        dict.fromkeys(limits, line), lambda _: cluster, lambda one, _: steps.append(one)
    )
    asked = [step for step in steps if isinstance(step, Measure)]
    checks = [step.checks for step in asked]
    first = checks.index(True)
    assert all(checks[first:])
    assert asked[first].reason.startswith("for goal loose: repeating")
    for name, (point,) in found.items():
        assert point.result.bracket.sustained <= limits[name]
        assert point.result.changed == ()
        assert len(point.history) == len(cluster.loads)


RATE = ProducerRate(bytes_per_s=1e6)
LINE = Line((100, 1_000, 10_000), RATE, LIMITS, brokers=3)


def line_spec(**changes: object) -> LineSpec:
    """Brokers with a limit of some hundred producers at each size."""
    behavior = replace(SPEC, capacity=1.0, **changes)  # type: ignore[arg-type]
    return LineSpec(3, RATE, 2e-7, 5e-9, 0.03, behavior)


def test_a_line_costs_one_trial_more_at_the_size_that_was_measured_first() -> None:
    plain = run_line_on(replace(LINE, check_for_change=False), SimulatedLine(line_spec(), 1))
    simulated = SimulatedLine(line_spec(), 1)
    checked = run_line_on(LINE, simulated)
    assert [point.result for point, _ in checked] == [point.result for point, _ in plain]
    more = [
        len(one.history) - len(other.history)
        for (one, _), (other, _) in zip(checked, plain, strict=True)
    ]
    assert more == [1, 0, 0]
    assert [point.checked for point, _ in checked] == [True, False, False]
    assert checked[0][0].history[-1].checks
    trials = sum(len(point.history) for point, _ in plain)
    assert forecast(LINE, 60.0, clusters=4).trials.median == (
        forecast(replace(LINE, check_for_change=False), 60.0, clusters=4).trials.median + 1
    )
    assert trials_left(LINE, [point for point, _ in plain], ()) == 1
    assert trials_left(LINE, [point for point, _ in checked], ()) == 0
    assert simulated.clock.trials == trials + 1


def test_a_utilization_below_one_at_every_limit_is_no_reason_to_check_each_size() -> None:
    sizes = (100, 268, 720, 1_931, 5_179, 13_895, 37_276, 100_000)
    simulated = SimulatedLine(line_spec(utilization_at_limit=0.6), 2)
    points = run_line_on(replace(LINE, sizes=sizes), simulated)
    assert sum(point.checked for point, _ in points) <= 3


@pytest.mark.parametrize("at", [6, 9, 13])
def test_all_sizes_that_may_have_changed_are_measured_again(at: int) -> None:
    simulated = SimulatedLine(line_spec(steps=((at, 0.6),)), 2)
    points = run_line(LINE, simulated.cluster)
    assert points[0].result.changed
    assert all(point.checked for point in points)
    for point in points:
        limit = simulated.cluster(point.message_bytes).limit_now
        assert point.result.bracket.sustained == pytest.approx(limit, rel=0.10)
        assert point.counted == point.history[len(point.history) - len(point.counted) :]


def test_a_budget_that_is_used_up_leaves_the_answers_unchecked() -> None:
    plain = run_line(replace(LINE, check_for_change=False), SimulatedLine(line_spec(), 1).cluster)
    trials = sum(len(point.history) for point in plain)
    capped = replace(LINE, budget=Budget(trials=trials))
    points = run_line(capped, SimulatedLine(line_spec(), 1).cluster)
    assert sum(len(point.history) for point in points) == trials
    assert isinstance(points[0].result, Done)
    note = "not checked for a change of the limit, because the budget of {} trials is used up"
    assert points[0].result.notes[-1] == note.format(trials)
    more = replace(LINE, budget=Budget(trials=trials + 1))
    checked = run_line(more, SimulatedLine(line_spec(), 1).cluster)
    assert sum(len(point.history) for point in checked) == trials + 1
    assert isinstance(checked[0].result, Done)
    assert note.format(trials) not in checked[0].result.notes


def test_a_budget_that_ends_after_a_change_names_the_change() -> None:
    spec = replace(SPEC, noise=0.0, steps=((5, 0.5),))
    single = Line((1_000,), RATE, LIMITS)
    cluster = SimulatedCluster(spec, 1)
    (whole,) = run_line(single, lambda _: cluster)
    first = next(i for i, seen in enumerate(whole.history) if seen.checks)
    capped = replace(single, budget=Budget(trials=first + MORE_MAX))
    (ended,) = run_line(capped, lambda _: SimulatedCluster(spec, 1))
    assert isinstance(ended.result, GaveUp)
    assert ended.result.changed == whole.result.changed
    assert "is used up" in ended.result.reason


def suspicion_of(*limits: float) -> Change:
    """The suspicion of trials at 300 producers that read limits with 2 % noise."""
    chance = random.Random(1)
    reads = [
        TrialEvidence(5.7, True, 5.7 + one + chance.gauss(0.0, 0.02), 0.0, 0.004, True)
        for one in limits
    ]
    return suspicion(reads, Curve())


def test_the_probability_of_a_change_grows_with_its_size() -> None:
    steady, small, large = (suspicion_of(*[0.0] * 4, *[by] * 3) for by in (0.0, -0.12, -0.3))
    assert steady.probability < 0.03 < small.probability < large.probability
    assert large.probability > 0.9
    assert (large.last_before, large.since) == (3, 4)
    assert large.after is not None and large.before is not None
    assert large.after.high < large.before.low
    assert LEAST < 0.12
    # One stray is no change, and neither are fewer than two trials.
    assert suspicion_of(0.0, 0.0, 0.0, -0.3, 0.0, 0.0, 0.0).probability < 0.2
    assert suspicion_of(*[0.0] * 5, -0.3).probability < 0.9
    assert suspicion_of(*[0.0] * 5, -0.3, -0.3).probability > 0.9
    assert suspicion_of().probability == suspicion_of(0.0).probability == 0.0
    before, after = Interval(380.0, 400.0, 390.0), Interval(190.0, 210.0, 200.0)
    for probability, verb in ((0.9, "changed"), (0.67, "probably"), (0.2, "may have changed")):
        words = describe(Change(0, 1, probability, before, after))
        assert words.startswith(f"the limit {verb}") and words.endswith("from 390 to 200 producers")


SEARCHES = 40
"""Number of searches of a condition; `python -m tests.bench.search --part changing` has 1,000."""


@pytest.mark.computes
@pytest.mark.parametrize(
    "name", ["steady", "step to 0.85 times", "step to 1.15 times", "step to 0.5 times"]
)
def test_changes_are_named_and_steady_clusters_are_not(name: str) -> None:
    """At most 2 % of runs, plus three standard errors."""
    (case,) = [each for each in changing_cases() if each.name == f"{name}, 2 % noise"]
    found = found_of(replace(case, searches=SEARCHES))
    allowed = 0.02 + 3 * (0.02 * 0.98 / SEARCHES) ** 0.5
    assert found.silent <= allowed
    assert found.changed <= allowed if name == "steady" else found.changed > 0.3
