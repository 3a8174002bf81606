"""The guided search: its worst case exhaustively, and that no guide can mislead it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from search.bisect import Bisection
from search.estimate import Curve, Estimate, Prior
from search.guide import Guide
from search.guided import ALLOWANCE, Guided
from search.limits import Limits
from search.model import Bracket, Decision, Done, GaveUp, LoadWords, Measure, Observation, Verdict
from search.shadow import Shadow
from tests.support.searching import run_search

pytestmark = pytest.mark.computes

SUSTAINED, OVERLOADED, INVALID = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID
Readings = Callable[[int, int], dict[str, float]]


class Scripted:
    """A cluster that sustains up to `limit`, with scripted readings of (trial number, load)."""

    def __init__(self, limit: int, readings: Readings) -> None:
        self.limit = limit
        self.readings = readings
        self.trials: list[Observation] = []

    def measure(self, load: int) -> Observation:
        verdict = SUSTAINED if load <= self.limit else OVERLOADED
        self.trials.append(Observation(load, verdict, self.readings(len(self.trials), load)))
        return self.trials[-1]


def no_readings(_: int, __: int) -> dict[str, float]:
    return {}


def as_if_limit_were(fake: float) -> Readings:
    def read(_: int, load: int) -> dict[str, float]:
        return {"request_handler_idle": min(1.2, load / fake), "achieved": 0.0}

    return read


def bisection_trials(limits: Limits, limit: int) -> int:
    cluster = Scripted(limit, no_readings)
    run_search(Bisection(limits), cluster)
    return len(cluster.trials)


def assert_right(result: Done | GaveUp, limit: int, limits: Limits) -> None:
    if limit >= limits.load_cap:
        assert isinstance(result, GaveUp)
        assert result.bracket == Bracket(limits.load_cap, None)
        return
    assert isinstance(result, Done)
    high = result.bracket.overloaded
    assert high is not None
    assert result.bracket.sustained <= limit < high
    assert result.bracket.is_closed(limits.resolution)


SMALL = [
    Limits(start_max, start_max * factor, resolution, 3)
    for start_max in (1, 2, 3, 5, 8, 13)
    for factor in (1, 3)
    for resolution in (0.05, 0.25)
]


@pytest.mark.parametrize("limits", SMALL, ids=str)
def test_the_worst_case_holds_for_any_affordable_loads(limits: Limits) -> None:
    """Check every affordable load of every possible guide against every limit."""
    shadow = Shadow(Bisection(limits))
    allowed = [bisection_trials(limits, limit) + ALLOWANCE for limit in range(limits.load_cap + 1)]

    @cache
    def play(used: int, low: int, high: int | None) -> bool:
        bracket = Bracket(low, high)
        if limits.settle_bracket(bracket) is not None:
            reach = limits.load_cap + 1 if high is None else high
            assert all(used <= allowed[limit] for limit in range(low, reach))
            return True
        top = limits.load_cap if high is None else high - 1
        fallback = shadow.next_load(bracket)
        affordable = [
            load
            for load in range(low + 1, top + 1)
            if shadow.excess_after(used, bracket, load) <= ALLOWANCE
        ]
        assert fallback in affordable, "bisection's own next load never costs more"
        if shadow.excess(used + 1, bracket) <= ALLOWANCE:  # a repeat
            play(used + 1, low, high)
        return all(play(used + 1, low, x) and play(used + 1, x, high) for x in affordable)

    assert play(0, 0, None)


@pytest.mark.parametrize("limits", [Limits(8, 24, 0.05, 3), Limits(20, 20, 0.1, 3)], ids=str)
def test_misleading_readings_and_neighbours_cost_two_trials_at_most(limits: Limits) -> None:
    for limit in range(limits.load_cap + 1):
        most = bisection_trials(limits, limit) + ALLOWANCE
        for fake in range(1, limits.load_cap + 8, 3):
            misleading = Prior(fake, 0.05)
            others = (None, Prior(1.0, 0.05), Prior(limits.load_cap, 0.3))
            # Without readings only the first prior depends on `fake`.
            for prior, readings in (
                (misleading, no_readings),
                *((prior, no_readings) for prior in others if fake == 1),
                *((prior, as_if_limit_were(fake)) for prior in (misleading, *others)),
            ):
                cluster = Scripted(limit, readings)
                guide = Guide(prior=prior, states_interval=False)
                result = run_search(Guided(limits, guide), cluster)
                assert_right(result, limit, limits)
                assert len(cluster.trials) <= most
                assert all(1 <= seen.load <= limits.load_cap for seen in cluster.trials)


utilizations = st.floats(0.0, 30.0) | st.sampled_from([0.0, 0.5, 0.99, 1.0, 1.2])
indicators = st.dictionaries(
    st.sampled_from(["request_handler_idle", "achieved", "isr", "latency_p99"]),
    utilizations,
)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_readings_any_axis_monotone_verdicts(data: st.DataObject) -> None:
    start_max = data.draw(st.integers(1, 1024))
    cap = data.draw(st.integers(start_max, 20_000))
    limits = Limits(start_max, cap, data.draw(st.sampled_from([0.01, 0.05, 0.2])), 3)
    limit = data.draw(st.integers(0, cap))
    drawn = data.draw(st.lists(indicators, min_size=1, max_size=12))
    prior = data.draw(st.none() | st.builds(Prior, st.floats(1, 1e5), st.floats(0.01, 0.5)))
    curve = data.draw(
        st.builds(Curve, st.floats(0.3, 3.0), st.floats(0.05, 0.5), st.floats(0.3, 1.0))
    )
    cluster = Scripted(limit, lambda number, _: drawn[number % len(drawn)])
    result = run_search(Guided(limits, Guide(curve=curve, prior=prior)), cluster)
    assert_right(result, limit, limits)
    assert all(1 <= seen.load <= cap for seen in cluster.trials)
    assert len(cluster.trials) <= bisection_trials(limits, limit) + ALLOWANCE


class AnyVerdict:
    """Verdicts and readings from a list, for any load."""

    def __init__(self, script: Sequence[tuple[Verdict, dict[str, float]]]) -> None:
        self.script = script
        self.trials: list[Observation] = []

    def measure(self, load: int) -> Observation:
        verdict, read = self.script[len(self.trials) % len(self.script)]
        self.trials.append(Observation(load, verdict, read))
        return self.trials[-1]


@settings(max_examples=200, deadline=None)
@given(
    script=st.lists(
        st.tuples(st.sampled_from([SUSTAINED, OVERLOADED, INVALID]), indicators),
        min_size=1,
        max_size=25,
    ),
    start_max=st.integers(1, 300),
    prior=st.none() | st.builds(Prior, st.floats(1, 1e5), st.floats(0.01, 0.5)),
)
def test_the_search_always_ends_and_notes_each_overload_below_its_answer(
    script: list[tuple[Verdict, dict[str, float]]], start_max: int, prior: Prior | None
) -> None:
    limits = Limits(start_max, 4 * start_max, 0.05, 2)
    cluster = AnyVerdict(script)
    result = run_search(Guided(limits, Guide(prior=prior)), cluster)
    assert len(cluster.trials) < 150
    assert all(1 <= seen.load <= limits.load_cap for seen in cluster.trials)
    if isinstance(result, Done):
        assert result.confidence is not None
        assert 0.0 <= result.confidence <= 1.0
        below = [
            seen.load
            for seen in cluster.trials
            if seen.verdict is OVERLOADED and seen.load <= result.bracket.sustained
        ]
        for load in below:
            beginning = f"{limits.words.amount(load)}: overloaded"
            assert any(note.startswith(beginning) for note in result.notes)


@pytest.mark.parametrize("limit", [3, 40, 77, 150, 333])
def test_a_cut_history_leads_to_the_same_decisions(limit: int) -> None:
    limits = Limits(128, 1000, 0.05, 3)
    guide = Guide(prior=Prior(90.0, 0.1))
    whole = Scripted(limit, as_if_limit_were(limit * 1.1))
    seen: list[Decision] = []
    result = run_search(Guided(limits, guide), whole, lambda decision, _: seen.append(decision))
    for cut in range(len(whole.trials) + 1):
        assert Guided(limits, guide).decide(whole.trials[:cut]) == seen[cut]
        rest = Scripted(limit, as_if_limit_were(limit * 1.1))
        assert run_search(Guided(limits, guide), rest, history=whole.trials[:cut]) == result
        assert len(rest.trials) == len(whole.trials) - cut


def test_true_readings_make_a_point_in_few_trials() -> None:
    limits = Limits(128, 4096, 0.05, 3)
    counts = []
    for limit in range(40, 500, 7):
        cluster = Scripted(limit, as_if_limit_were(limit + 0.5))
        result = run_search(Guided(limits, Guide(prior=Prior(limit, 0.05))), cluster)
        assert_right(result, limit, limits)
        counts.append(len(cluster.trials))
    assert max(counts) <= 4
    assert sum(counts) / len(counts) <= 3.3


def test_a_lone_false_alarm_is_outvoted_and_noted() -> None:
    limits = Limits(128, 4096, 0.05, 3)

    class OneFlap(Scripted):
        def measure(self, load: int) -> Observation:
            seen = super().measure(load)
            if len(self.trials) == 1:
                flapped = {**seen.indicators, "isr": 1.5}
                self.trials[0] = Observation(load, OVERLOADED, flapped)
            return self.trials[-1]

    cluster = OneFlap(100, as_if_limit_were(100.5))
    steps: list[Decision] = []
    result = run_search(Guided(limits), cluster, lambda decision, _: steps.append(decision))
    assert_right(result, 100, limits)
    assert isinstance(result, Done)
    assert cluster.trials[1].load == cluster.trials[0].load == 64
    assert isinstance(steps[1], Measure)
    assert steps[1].reason.endswith("repeating it")
    assert any("64 producers: overloaded in 1 of 2" in note for note in result.notes)


def test_the_reason_is_one_sentence_with_the_numbers_behind_it(snapshot: SnapshotAssertion) -> None:
    history = [Observation(96, SUSTAINED, {"request_handler_idle": 0.75})]
    decision = Guided(Limits(192, 4096, 0.05, 3)).decide(history)
    assert isinstance(decision, Measure)
    assert decision.reason == snapshot
    figures = ("idle 0.40", "96 producers", "0.20 at 119", "probing 115")
    assert not [figure for figure in figures if figure not in decision.reason]


def test_trials_left_follows_the_guide_and_ends_at_zero() -> None:
    limits = Limits(128, 4096, 0.05, 3)
    subject = Guided(limits, Guide(prior=Prior(200.0, 0.05)))
    cluster = Scripted(200, as_if_limit_were(200.5))
    left: list[int] = []
    run_search(subject, cluster, lambda _, history: left.append(subject.trials_left(history)))
    assert left[0] == len(cluster.trials)
    assert left[-1] == 0
    invalid = [Observation(190, INVALID)]
    assert subject.trials_left(invalid) == 1 + left[0]


@pytest.mark.parametrize("start_max", [15, 55, 85])
def test_before_any_trial_the_limit_is_foreseen_at_three_quarters_of_the_start(
    start_max: int,
) -> None:
    limits, limit = Limits(start_max, 8 * start_max, 0.05, 3), 0.75 * start_max
    usual = Estimate(limit, 1.0, Curve().gain, 1.0)
    cluster = Scripted(
        math.floor(limit), lambda _, load: {"request_handler_idle": usual.utilization_at(load)}
    )
    run_search(Guided(limits), cluster)
    assert Guided(limits).trials_left(()) == len(cluster.trials)


def test_any_axis_on_which_load_grows_is_searched_and_named() -> None:
    limits = Limits(4, 12, 0.05, 3, words=LoadWords("consumer groups"))
    cluster = Scripted(5, as_if_limit_were(5.5))
    steps: list[Decision] = []
    result = run_search(Guided(limits), cluster, lambda decision, _: steps.append(decision))
    assert isinstance(result, Done)
    assert result.bracket == Bracket(5, 6)
    reasons = [step.reason for step in steps if isinstance(step, Measure)]
    assert all("consumer groups" in reason for reason in reasons)
    assert not any("producers" in reason for reason in reasons)


def test_a_doubt_that_could_not_be_settled_is_noted() -> None:
    """Readings that mislead all the way use up the allowance, and the answer says so."""
    limits = Limits(128, 1024, 0.05, 3)
    noted = 0
    for limit in range(10, 100):
        cluster = Scripted(limit, as_if_limit_were(3.0 * limit))
        result = run_search(Guided(limits, Guide(states_interval=False)), cluster)
        assert_right(result, limit, limits)
        assert isinstance(result, Done)
        assert len(cluster.trials) <= bisection_trials(limits, limit) + ALLOWANCE
        noted += any("; not repeated, as " in note for note in result.notes)
    assert noted > 0
