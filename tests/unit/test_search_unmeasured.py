"""Loads that cannot be measured: the search goes on below them, and they are never a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from search.bisect import Bisection
from search.ceilings import Ceiling, ceiling_of
from search.guide import Guide
from search.guided import Guided
from search.limits import Limits
from search.model import Bracket, Done, GaveUp, Measure, Observation, Searcher, Verdict
from tests.support.searching import run_search

S, O, I = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID  # noqa: E741
LIMITS = Limits(64, 4096, 0.05, 3)
STILL = "broker 2 stood still for 1.4 s or more"
SMALL = "the generator was the limit: 2 cores of 2 busy"


@dataclass
class Cluster:
    """A cluster that sustains loads up to `limit`, as far as they can be measured.

    Attributes:
        still_from: the lowest load at which a broker stands still in each trial.
        generator: the highest load that the generator can offer.
        reads: whether trials have readings.
        claims: share of any load that the generator seems to have offered; None for the true one.
    """

    limit: int = 10_000
    still_from: int = 10_000
    generator: int = 10_000
    reads: bool = True
    claims: float | None = None
    trials: list[Observation] = field(default_factory=list)

    def measure(self, load: int) -> Observation:
        self.trials.append(self._seen(load))
        return self.trials[-1]

    def _seen(self, load: int) -> Observation:
        if load >= self.still_from:
            return Observation(load, I, cause=STILL)
        if load > self.generator:
            share = self.generator / load if self.claims is None else self.claims
            return Observation(load, I, cause=SMALL, offered_share=share)
        used = {"request_handler_idle": min(1.2, load / self.limit)} if self.reads else {}
        return Observation(load, S if load <= self.limit else O, used)

    @property
    def loads(self) -> list[int]:
        return [each.load for each in self.trials]


def guided(limits: Limits = LIMITS) -> Searcher:
    return Guided(limits, Guide(states_interval=False))


SEARCHERS: list[Callable[[Limits], Searcher]] = [guided, Bisection]
each_searcher = pytest.mark.parametrize("searcher", SEARCHERS, ids=["guided", "bisection"])


@each_searcher
@pytest.mark.parametrize("still_from", [2, 3, 4, 9, 17, 52, 64, 65, 200, 1_000])
def test_invalid_trials_from_a_load_on_steer_the_search_down_and_make_no_bound(
    searcher: Callable[[Limits], Searcher], still_from: int
) -> None:
    cluster = Cluster(still_from=still_from)
    result = run_search(searcher(replace(LIMITS, load_start_max=min(64, 4 * still_from))), cluster)
    assert isinstance(result, GaveUp)
    assert result.bracket.overloaded is None
    low = result.bracket.sustained
    assert 0 < low < still_from
    assert f"nothing could be measured: {STILL}" in result.reason
    assert low == still_from - 1 or 1 - low / still_from <= 0.12
    invalid = [each for each in cluster.trials if each.verdict is I]
    assert len(invalid) <= 4 + 2 * 5


def test_the_answer_names_the_load_above_which_nothing_could_be_measured() -> None:
    history = [Observation(40, S), *[Observation(54, I, cause=STILL)] * 4,
               *[Observation(47, I, cause=STILL)] * 2, Observation(43, S),
               *[Observation(45, I, cause=STILL)] * 2]  # fmt: skip
    for searcher in (guided(), Bisection(LIMITS)):
        result = searcher.decide(history)
        assert isinstance(result, GaveUp)
        assert result.reason.startswith(
            f"above 45 nothing could be measured: {STILL}; remove the cause"
        )
        assert searcher.trials_left(history) == 0


def test_a_single_invalid_trial_is_repeated_at_its_load() -> None:
    history = [Observation(40, S), Observation(52, I, cause=STILL)]
    step = guided().decide(history)
    assert isinstance(step, Measure)
    assert step.load == 52
    steered = guided().decide([*history, *[history[-1]] * 3])
    assert isinstance(steered, Measure)
    assert steered.load == 45
    assert steered.reason == f"52 producers could not be measured ({STILL}); trying 45 below"


def test_an_invalid_trial_for_another_goal_above_such_a_load_is_not_repeated() -> None:
    history = [Observation(40, S), *[Observation(52, I)] * 4, Observation(80, I)]
    step = guided().decide(history)
    assert isinstance(step, Measure)
    assert step.load == 45


@each_searcher
def test_an_overload_below_such_a_load_is_searched_as_ever(
    searcher: Callable[[Limits], Searcher],
) -> None:
    cluster = Cluster(limit=37, still_from=60)
    result = run_search(searcher(LIMITS), cluster)
    assert isinstance(result, Done)
    assert result.bracket.sustained <= 37 < (result.bracket.overloaded or 0) < 60


def test_a_valid_trial_above_such_a_load_makes_it_a_load_like_any_other() -> None:
    blocked = [Observation(52, I)] * 4
    assert ceiling_of(blocked, 3) == Ceiling(52, "", None, 1)
    assert ceiling_of([*blocked, Observation(52, S)], 3) is None
    assert ceiling_of([*blocked, Observation(60, O)], 3) is None
    assert ceiling_of([*blocked, Observation(51, S)], 3) == Ceiling(52, "", None, 1)
    assert ceiling_of(blocked[:3], 3) is None


def test_a_cluster_that_cannot_be_measured_at_all_costs_two_loads() -> None:
    cluster = Cluster(still_from=1)
    result = run_search(guided(), cluster)
    assert isinstance(result, GaveUp)
    assert len(set(cluster.loads)) == 2
    assert len(cluster.loads) == 4 + 2
    assert result.reason.startswith("from ")
    assert " on nothing could be measured: " in result.reason


@each_searcher
@pytest.mark.parametrize("generator", [3, 40, 100, 384, 1_500])
def test_a_generator_that_is_too_small_ends_the_search_upward_after_one_invalid_trial(
    searcher: Callable[[Limits], Searcher], generator: int
) -> None:
    cluster = Cluster(generator=generator)
    result = run_search(searcher(LIMITS), cluster)
    assert isinstance(result, GaveUp)
    low = result.bracket.sustained
    assert result.bracket == Bracket(low, None)
    assert 0.85 * generator <= low <= generator
    assert result.reason == f"{SMALL}; use more executors or cores"
    invalid = [each for each in cluster.trials if each.verdict is I]
    assert len(invalid) == 1, "the load that it offered is tried next, without a repeat"


def test_the_load_that_the_generator_offered_is_tried_next() -> None:
    history = [
        Observation(64, S), Observation(256, S),
        Observation(1_024, I, cause=SMALL, offered_share=0.39),
    ]  # fmt: skip
    step = guided().decide(history)
    assert isinstance(step, Measure)
    assert step.load == 399
    assert step.reason == f"{SMALL}, at 1,024 producers; trying 399, the most that it can offer"
    end = guided().decide([*history, Observation(399, S)])
    assert isinstance(end, GaveUp)
    assert end.bracket == Bracket(399, None)


def test_a_trial_that_the_generator_almost_offered_is_repeated_once() -> None:
    almost = Observation(400, I, cause=SMALL, offered_share=0.97)
    steps = [guided().decide([Observation(256, S), *[almost] * times]) for times in (1, 2)]
    assert [step.load for step in steps if isinstance(step, Measure)] == [400, 360]
    assert isinstance(guided().decide([Observation(256, S), almost, Observation(400, S)]), Measure)
    at_once = Guided(replace(LIMITS, invalid_repeats_max=0), Guide(states_interval=False))
    step = at_once.decide([Observation(256, S), almost])
    assert isinstance(step, Measure)
    assert step.load == 360


def test_brokers_that_are_overloaded_by_what_the_generator_offers_have_a_limit() -> None:
    cluster = Cluster(limit=300, generator=400, reads=False)
    result = run_search(guided(), cluster)
    assert isinstance(result, Done)
    assert result.bracket.sustained <= 300 < (result.bracket.overloaded or 0)


def test_a_generator_that_offered_more_before_is_measured_again() -> None:
    history = [Observation(64, S), Observation(256, O),
               Observation(128, I, cause=SMALL, offered_share=0.9)]  # fmt: skip
    step = guided().decide(history)
    assert isinstance(step, Measure)
    assert (step.load, "repeating it (1 of 3)" in step.reason) == (128, True)


def test_a_generator_that_offers_nothing_ends_without_a_figure() -> None:
    history = [Observation(1, I, cause=SMALL, offered_share=0.5)]
    end = guided().decide(history)
    assert isinstance(end, GaveUp)
    assert (end.bracket, end.reason) == (Bracket(0, None), f"{SMALL}; use more executors or cores")


def test_a_generator_that_almost_offers_load_after_load_is_searched_from_below() -> None:
    """It offers half of the first load, and 99 % of the next, as it shares its cores."""
    first = Observation(414, I, cause=SMALL, offered_share=0.49)
    almost = Observation(202, I, cause=SMALL, offered_share=0.99)
    for searcher in (guided(), Bisection(LIMITS)):
        histories = ([first], [first, almost], [first, almost, almost])
        steps = [searcher.decide(history) for history in histories]
        assert [step.load for step in steps if isinstance(step, Measure)] == [202, 202, 151]
        end = searcher.decide([first, almost, almost, Observation(151, S)])
        assert isinstance(end, GaveUp)
        assert end.bracket == Bracket(151, None)


@each_searcher
@pytest.mark.parametrize("resolution", [0.05, 0.3])
@pytest.mark.parametrize("claims", [None, 0.99, 0.5])
def test_each_small_search_ends_with_the_limit_or_an_honest_lower_bound(
    searcher: Callable[[Limits], Searcher], resolution: float, claims: float | None
) -> None:
    for start, limit, generator in product((1, 4, 20), range(17), range(17)):
        cluster = Cluster(limit, generator=generator, reads=limit > 0, claims=claims)
        limits = Limits(start, 40, resolution, 3)
        result = run_search(searcher(limits), cluster)
        low, over = result.bracket.sustained, result.bracket.overloaded
        least = min(limit, generator)
        case = (start, limit, generator, cluster.loads)
        assert low <= least, case
        assert over is None or over > limit, case
        assert over is not None or low >= max(min(1, least), least // 2), case
        if isinstance(result, Done):
            assert result.bracket.is_closed(resolution), case
        else:
            assert over is None, case
        for number, load in enumerate(cluster.loads):
            ceiling = ceiling_of(cluster.trials[:number], 3)
            assert ceiling is None or load < ceiling.load, case
        assert len(cluster.loads) <= 24, case


@each_searcher
def test_a_search_begins_no_higher_than_the_generator_showed_it_can_offer(
    searcher: Callable[[Limits], Searcher],
) -> None:
    limits = replace(LIMITS, first_max=20)
    step = searcher(limits).decide(())
    assert isinstance(step, Measure)
    assert step.load == 20
    assert step.reason.endswith("; beginning with 20, as the generator showed no higher load")
    later = searcher(limits).decide([Observation(20, S)])
    assert isinstance(later, Measure)
    assert later.load > 20, "its first trial tells more"
