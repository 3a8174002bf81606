"""Bisection, for every limit of small axes and every place of an invalid trial."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from search.bisect import Bisection
from search.limits import Limits
from search.model import Bracket, Decision, Done, GaveUp, Measure, Observation, Verdict
from tests.support.searching import run_search

pytestmark = pytest.mark.computes

SUSTAINED, OVERLOADED, INVALID = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID


class Scripted:
    """A cluster that sustains loads up to `limit`; the trials numbered in `invalid` are INVALID."""

    def __init__(self, limit: int, invalid: frozenset[int] = frozenset()) -> None:
        self.limit = limit
        self.invalid = invalid
        self.trials: list[Observation] = []

    def measure(self, load: int) -> Observation:
        if len(self.trials) in self.invalid:
            verdict = INVALID
        else:
            verdict = SUSTAINED if load <= self.limit else OVERLOADED
        self.trials.append(Observation(load, verdict))
        return self.trials[-1]


def searcher(start_max: int, cap: int, resolution: float = 0.05, repeats: int = 3) -> Bisection:
    return Bisection(Limits(start_max, cap, resolution, repeats))


def assert_right(result: Done | GaveUp, limit: int, cap: int, resolution: float) -> None:
    if limit >= cap:
        assert isinstance(result, GaveUp)
        assert result.bracket == Bracket(cap, None)
        assert "load_cap" in result.reason
        return
    assert isinstance(result, Done)
    low, high = result.bracket.sustained, result.bracket.overloaded
    assert high is not None
    assert low <= limit < high
    assert high - low == 1 or 1 - low / high <= resolution


@pytest.mark.parametrize("resolution", [0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("cap_factor", [1, 3])
@pytest.mark.parametrize("start_max", [*range(1, 18), 31, 32, 33, 64])
def test_every_limit_is_found(start_max: int, cap_factor: int, resolution: float) -> None:
    cap = start_max * cap_factor
    for limit in range(cap + 1):
        cluster = Scripted(limit)
        result = run_search(searcher(start_max, cap, resolution), cluster)
        assert_right(result, limit, cap, resolution)
        loads = [trial.load for trial in cluster.trials]
        assert all(1 <= load <= cap for load in loads)
        assert len(set(loads)) == len(loads), "no load is measured twice"
        raised = (cap - 1).bit_length() if limit >= start_max else 0
        assert len(loads) <= 2 + raised + max(start_max, limit).bit_length()


@pytest.mark.parametrize("start_max", [1, 2, 3, 7, 16])
def test_invalid_trials_at_every_position(start_max: int) -> None:
    cap = 2 * start_max
    for limit in range(cap + 1):
        plain = Scripted(limit)
        expected = run_search(searcher(start_max, cap), plain)
        loads = [trial.load for trial in plain.trials]
        for position in range(len(loads)):
            for times in (1, 2, 3):
                invalid = frozenset(range(position, position + times))
                cluster = Scripted(limit, invalid)
                assert run_search(searcher(start_max, cap), cluster) == expected
                repeated = loads[: position + 1] + [loads[position]] * times + loads[position + 1 :]
                assert [trial.load for trial in cluster.trials] == repeated


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_too_many_invalid_trials_in_a_row_end_without_a_conclusion(repeats: int) -> None:
    for position in range(3):
        cluster = Scripted(5, frozenset(range(position, 100)))
        result = run_search(searcher(16, 64, repeats=repeats), cluster)
        assert isinstance(result, GaveUp)
        assert "invalid" in result.reason and str(repeats) in result.reason
        below = 1 + min(1, repeats)  # trials of a lower load, as the cause may depend on the load
        assert len(cluster.trials) == position + 1 + repeats + below


def test_invalid_trials_count_anew_for_every_load() -> None:
    cluster = Scripted(5, frozenset({0, 1, 3, 4, 6, 7}))
    assert isinstance(run_search(searcher(16, 64, repeats=2), cluster), Done)


def test_light_loads_come_first_and_the_maximum_is_raised_up_to_the_cap() -> None:
    cluster = Scripted(10**6)
    run_search(searcher(16, 100), cluster)
    assert [trial.load for trial in cluster.trials] == [8, 16, 32, 64, 100]


@pytest.mark.parametrize("limit", range(70))
def test_decisions_depend_on_the_history_alone(limit: int) -> None:
    cluster = Scripted(limit, frozenset({2, 5}))
    seen: list[Decision] = []
    result = run_search(searcher(16, 64), cluster, lambda decision, _: seen.append(decision))
    assert seen[-1] == result
    for cut in range(len(cluster.trials) + 1):
        assert searcher(16, 64).decide(cluster.trials[:cut]) == seen[cut]


def test_a_resumed_search_repeats_no_trial() -> None:
    whole = Scripted(23)
    result = run_search(searcher(16, 64), whole)
    for cut in range(len(whole.trials) + 1):
        rest = Scripted(23)
        assert run_search(searcher(16, 64), rest, history=whole.trials[:cut]) == result
        assert whole.trials[:cut] + rest.trials == whole.trials


def test_contradictory_trials_keep_the_lowest_overload() -> None:
    history = [
        Observation(8, OVERLOADED),
        Observation(12, SUSTAINED),
        Observation(4, SUSTAINED),
        Observation(5, SUSTAINED),
    ]
    decision = searcher(16, 64).decide(history)
    assert isinstance(decision, Measure)
    assert decision.load == 6


def estimates_along(subject: Bisection, limit: int) -> list[int]:
    """The values of `trials_left` before every trial and at the end."""
    estimates: list[int] = []

    def note(_: Decision, history: Sequence[Observation]) -> None:
        estimates.append(subject.trials_left(history))

    assert isinstance(run_search(subject, Scripted(limit), note), Done)
    return estimates


@pytest.mark.parametrize("start_max", [1, 2, 16, 128])
def test_trials_left_falls_to_zero_at_the_end_and_only_then(start_max: int) -> None:
    for limit in range(start_max + 1):
        estimates = estimates_along(searcher(start_max, 4 * start_max), limit)
        assert estimates[-1] == 0
        assert all(estimate >= 1 for estimate in estimates[:-1])


def test_a_repeat_of_an_invalid_trial_is_one_that_is_left() -> None:
    history = [Observation(8, OVERLOADED), Observation(7, SUSTAINED)]
    subject = searcher(16, 64)
    assert subject.trials_left(history) == 0
    invalid = Observation(8, INVALID)
    assert isinstance(subject.decide([*history, invalid]), Measure)
    assert subject.trials_left([*history, invalid]) == 1


def test_trials_left_is_exact_within_one_inside_the_maximum() -> None:
    subject = searcher(1024, 4096)
    for limit in range(512, 1024):
        cluster = Scripted(limit)
        run_search(subject, cluster)
        assert abs(subject.trials_left(cluster.trials[:2]) - (len(cluster.trials) - 2)) <= 1


@pytest.mark.parametrize(
    ("start_max", "cap", "resolution", "repeats", "names"),
    [
        (0, 10, 0.05, 3, "load_start_max is 0"),
        (11, 10, 0.05, 3, "load_cap 10"),
        (1, 10, 0.0, 3, "resolution is 0.0"),
        (1, 10, 1.0, 3, "resolution is 1.0"),
        (1, 10, 0.05, -1, "invalid_repeats_max is -1"),
    ],
)
def test_impossible_limits_are_refused(
    start_max: int, cap: int, resolution: float, repeats: int, names: str
) -> None:
    with pytest.raises(ValueError, match=names):
        Bisection(Limits(start_max, cap, resolution, repeats))
