"""A limit that is held before it is an answer, and the search below one that does not last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from syrupy.assertion import SnapshotAssertion

from search.bisect import Bisection
from search.budget import Budget
from search.confirming import (
    HOLDS_MAX,
    Confirmation,
    Confirming,
    Hold,
    describe_failure,
    split_history,
)
from search.guided import Guided
from search.limits import Limits
from search.line import Line, ProducerRate
from search.lines import run_goals
from search.model import Bracket, Done, GaveUp, Measure, Observation, Searcher, Verdict
from tests.support.searching import expect, run_search, search_trials
from tests.support.single_goal import run_line

LIMITS = Limits(64, 1000, 0.05, 2)
PLAN = Confirmation(8, 10.0)
IDLE = "request_handler_idle"
S, O, I = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID  # noqa: E741


@dataclass
class Tiring:
    """A cluster whose limit changes with the number of windows that held it so far."""

    limit: Callable[[int], float]
    held: int = 0
    loads: list[tuple[int, bool]] = field(default_factory=list)
    rests: int = 0

    def measure(self, load: int) -> Observation:
        self.loads.append((load, False))
        return self._seen(load)

    def hold(self, load: int) -> Observation:
        self.loads.append((load, True))
        self.held += 1
        return self._seen(load)

    def recover(self) -> None:
        self.rests += 1

    def _seen(self, load: int) -> Observation:
        used = load / self.limit(self.held)
        return Observation(load, S if used <= 1.0 else O, {IDLE: used}, 12.0)


class Misleading(Tiring):
    """A cluster whose held windows have readings of a much higher limit."""

    def hold(self, load: int) -> Observation:
        seen = super().hold(load)
        return replace(seen, indicators={IDLE: 0.6 * seen.indicators[IDLE]})


@dataclass
class AllGoals:
    """One tiring cluster, judged by goals that accept a share of its limit."""

    cluster: Tiring
    shares: dict[str, float]

    def measure(self, load: int) -> dict[str, Observation]:
        return self._judged(self.cluster.measure(load))

    def hold(self, load: int) -> dict[str, Observation]:
        return self._judged(self.cluster.hold(load))

    def _judged(self, seen: Observation) -> dict[str, Observation]:
        used = seen.indicators[IDLE]
        return {
            name: replace(seen, verdict=S if used <= share else O, indicators={IDLE: used / share})
            for name, share in self.shares.items()
        }


def steady(_held: int) -> float:
    return 100.0


def drops_after(windows: int) -> Callable[[int], float]:
    return lambda held: 100.0 if held <= windows else 60.0


SEARCHERS = [lambda: Guided(LIMITS), lambda: Bisection(LIMITS)]


def confirming(searcher: Searcher, plan: Confirmation = PLAN) -> Confirming:
    return Confirming(searcher, LIMITS, plan)


def windows(verdicts: str, load: int = 95) -> tuple[Observation, ...]:
    kinds = {"s": S, "o": O, "i": I}
    return tuple(Observation(load, kinds[each], held=True) for each in verdicts)


@pytest.mark.parametrize("make", SEARCHERS)
def test_a_limit_that_lasts_is_the_answer_of_the_search(make: Callable[[], Searcher]) -> None:
    alone = run_search(make(), Tiring(steady))
    cluster = Tiring(steady)
    held = run_search(confirming(make()), cluster)
    assert isinstance(alone, Done) and alone.confirmed_s is None
    assert held == replace(alone, confirmed_s=80.0)
    assert cluster.loads[-8:] == [(alone.bracket.sustained, True)] * 8
    assert not any(is_held for _, is_held in cluster.loads[:-8])


@pytest.mark.parametrize("make", SEARCHERS)
def test_a_limit_that_does_not_last_is_searched_again_below_and_held_again(
    make: Callable[[], Searcher],
) -> None:
    cluster = Tiring(drops_after(3))
    answer, steps, history = search_trials(confirming(make()), cluster)
    assert expect(Done, answer).confirmed_s == 80.0
    assert answer.bracket.is_closed(0.05)
    assert 57 <= answer.bracket.sustained <= 60 < (answer.bracket.overloaded or 0)
    (failed,) = split_history(history, PLAN).failed
    assert failed.load > 60 and failed.broke_at == 3 and failed.lasted_s == 30.0
    assert len(failed.windows) == 6, "three overloads in a row end the hold"
    after = [load for load, is_held in cluster.loads[cluster.loads.index((failed.load, True)) :]]
    assert max(after) == failed.load, "nothing above a limit that did not last"
    # The first trial after a failed hold has the reason.
    (reason,) = (step.reason for step in steps if " failed: " in step.reason)
    assert " failed: 3 of 3 windows were overloaded from 30 s of load on; " in reason
    assert any("window 2 of 8" in step.reason for step in steps)
    # There is no rest between the windows of a hold.
    assert cluster.rests == sum(
        before.verdict is O and not (before.held and later.held)
        for before, later in pairwise(history)
    )
    # A search that stopped anywhere continues with the same steps.
    assert len(history) == len(steps) > 12
    for used, step in enumerate(steps):
        assert confirming(make()).decide(history[:used]) == step


def test_a_hold_fails_by_the_number_of_its_overloads() -> None:
    cases: list[tuple[str, int, int | None, bool]] = [
        ("ssssssss", 8, None, True),
        ("sososoos", 8, None, True),  # half of them, never three in a row
        ("soosossssoo", 8, 1, False),  # more than half of the eight that were planned
        ("sssooo", 8, 3, False),
        ("ooo", 8, 0, False),
        ("ssss", 8, None, False),
        ("ssiissssi", 8, None, False),  # an INVALID window does not count
        ("ssiissssiss", 8, None, True),
        # A change that stays is seen, although most of the hold was sustained.
        ("s" * 80 + "o" * 11, 100, None, False),
        ("s" * 80 + "o" * 12, 100, 80, False),
        ("sso" * 33 + "s", 100, None, True),  # a third of them, spread evenly
    ]
    for verdicts, planned, broke_at, has_lasted in cases:
        hold = Hold(95, windows(verdicts), Confirmation(planned, 10.0))
        assert (hold.broke_at, hold.has_lasted) == (broke_at, has_lasted), verdicts
    stretches = [Confirmation(n, 1.0).stretch for n in (1, 2, 8, 40, 60, 500)]
    assert stretches == [1, 2, 3, 10, 15, 15], "a quarter of the hold, within bounds"
    lasting = ((1800.0, 10.0, 180), (12.0, 5.0, 3), (None, 5.0, 0))
    for time_s, window_s, count in lasting:
        assert Confirmation.lasting(time_s, window_s).windows == count


def test_the_sentence_of_a_failed_hold() -> None:
    hold = Hold(95, windows("sosssooo"), PLAN)
    assert describe_failure(hold) == (
        "3 of 3 windows were overloaded from 50 s of load on, and 1 before"
    )
    assert describe_failure(Hold(95, windows("ooo"), PLAN)).endswith("from the start")


def test_trials_left_are_those_of_the_search_and_of_the_hold() -> None:
    answer, _, searched = search_trials(Guided(LIMITS), Tiring(steady))
    searcher, load = confirming(Guided(LIMITS)), answer.bracket.sustained
    assert searcher.trials_left(searched[:1]) == Guided(LIMITS).trials_left(searched[:1]) + 8
    for held, left in (
        ((), 8),
        (windows("s", load), 7),
        (windows("si", load), 7),
        (windows("s" * 8, load), 0),
        (windows("ss", load - 1), 8),  # of another goal
    ):
        assert searcher.trials_left([*searched, *held]) == left
    step = expect(Measure, searcher.decide([*searched, *windows("si", load)]))
    assert step.holds and step.load == load
    assert "invalid; repeating it (1 of 2)" in step.reason
    end = expect(GaveUp, searcher.decide([*searched, *windows("siii", load)]))
    assert end.bracket == answer.bracket
    assert end.reason.startswith(
        f"the limit of {load} producers could not be confirmed: 3 invalid trials"
    )


def test_a_search_whose_limits_fail_again_and_again_gives_up(snapshot: SnapshotAssertion) -> None:
    cluster = Tiring(lambda held: 100.0 * 0.98**held)
    answer = expect(GaveUp, run_search(confirming(Guided(LIMITS), Confirmation(40, 10.0)), cluster))
    assert answer.reason.count(" failed: ") == HOLDS_MAX
    assert answer.reason == snapshot
    assert answer.bracket.is_closed(0.05)


def test_a_load_that_is_never_sustained_is_not_held() -> None:
    cluster = Tiring(lambda held: 0.5)
    answer = run_search(confirming(Guided(LIMITS)), cluster)
    assert answer.bracket == Bracket(0, 1) and not cluster.held


def test_the_strict_goal_is_held_first_and_each_goal_has_its_own_answer() -> None:
    shares = {"tolerant": 1.0, "strict": 0.6}
    searchers = {name: confirming(Guided(LIMITS, allowance=8)) for name in shares}
    cluster = Tiring(steady)
    found = run_goals(searchers, AllGoals(cluster, shares))
    ends = {name: expect(Done, end.result) for name, end in found.items()}
    limits = {name: end.bracket.sustained for name, end in ends.items()}
    assert 57 <= limits["strict"] <= 60 and 95 <= limits["tolerant"] <= 100
    assert {end.confirmed_s for end in ends.values()} == {80}
    held = [load for load, is_held in cluster.loads if is_held]
    assert held == [limits["strict"]] * 8 + [limits["tolerant"]] * 8
    # For the strict goal, each window of the tolerant goal's hold is an overload.
    assert split_history(found["strict"].history, PLAN).failed == ()


def test_a_budget_that_ends_in_a_hold_keeps_the_bracket_of_the_search() -> None:
    rate = ProducerRate(bytes_per_s=1000.0)
    free = Line((1000,), rate, LIMITS, confirmation=PLAN, check_for_change=False)
    (whole,) = run_line(free, lambda _: Tiring(steady))
    searched = len(whole.history) - 8
    cut = replace(free, budget=Budget(trials=searched + 3))
    # Windows of which some are overloaded make no bracket.
    flaky = Tiring(lambda held: 90.0 if held == 2 else 100.0)
    (point,) = run_line(cut, lambda _: flaky)
    assert isinstance(point.result, GaveUp) and "budget" in point.result.reason
    assert "about 5 more trials" in point.result.reason
    assert point.result.bracket == whole.result.bracket
    assert [each.verdict for each in point.history[-3:]] == [S, O, S]


def test_held_windows_do_not_affect_the_next_sizes() -> None:
    line = Line((100, 1000), ProducerRate(bytes_per_s=1000.0), LIMITS)
    holding = replace(line, confirmation=PLAN)
    (_, plain), (_, held) = (
        run_line(each, lambda _: Misleading(steady)) for each in (line, holding)
    )
    assert [each for each in held.history if not each.held] == list(plain.history)
