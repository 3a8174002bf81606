"""Loads that cannot be measured: the search goes on below them, and they are never a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from search.bisect import Bisection
from search.guide import Guide
from search.guided import Guided
from search.limits import Ceiling, Limits, ceiling_of
from search.model import Bracket, Done, GaveUp, Measure, Observation, Searcher, Verdict
from tests.support.searching import expect, run_search

S, O, I = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID  # noqa: E741
LIMITS = Limits(64, 4096, 0.05, 3)
STILL = "broker 2 paused for 1.4 s or more"
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
    assert f" could be measured: {STILL}" in result.reason
    assert low == still_from - 1 or 1 - low / still_from <= 0.12
    invalid = [each for each in cluster.trials if each.verdict is I]
    assert len(invalid) <= 4 + 2 * 5


def still(load: int, times: int = 4) -> list[Observation]:
    return [Observation(load, I, cause=STILL)] * times


def small(load: int, share: float, times: int = 1) -> list[Observation]:
    return [Observation(load, I, cause=SMALL, offered_share=share)] * times


def held(*loads: int) -> list[Observation]:
    return [Observation(load, S) for load in loads]


MORE = "use more executors or cores"


@pytest.mark.parametrize(
    ("history", "load", "reason"),
    [
        (held(40) + still(52, 1), 52, "; repeating it (1 of 3)"),
        (held(40) + still(52), 45, f"52 producers could not be measured ({STILL}); trying 45"),
        # An invalid trial for another goal above such a load is not repeated.
        ([*held(40), *[Observation(52, I)] * 4, Observation(80, I)], 45, "trying 45 below"),
        (held(64, 256) + small(1_024, 0.39), 399,
         f"{SMALL}, at 1,024 producers; trying 399, the most that it can offer"),
        # A trial that the generator almost offered is repeated once.
        (held(256) + small(400, 0.97), 400, "repeating it (1 of 3)"),
        (held(256) + small(400, 0.97, 2), 360, "trying 360"),
        (held(256) + small(400, 0.97) + held(400), 512, "bisecting at 512"),
        # It offered more before.
        ([*held(64), Observation(256, O), *small(128, 0.9)], 128, "repeating it (1 of 3)"),
        # It offers half of the first load, and 99 % of the next, as it shares its cores.
        (small(414, 0.49), 202, ""),
        (small(414, 0.49) + small(202, 0.99), 202, ""),
        (small(414, 0.49) + small(202, 0.99, 2), 151, ""),
    ],
)  # fmt: skip
def test_the_next_load_after_one_that_could_not_be_measured(
    history: list[Observation], load: int, reason: str
) -> None:
    step = expect(Measure, guided().decide(history))
    assert step.load == load
    assert reason in step.reason
    if history[0].load == 414:
        assert expect(Measure, Bisection(LIMITS).decide(history)).load == load


@pytest.mark.parametrize(
    ("history", "bracket", "reason"),
    [
        (held(40) + still(54) + still(47, 2) + held(43) + still(45, 2), Bracket(43, None),
         f"no load above 45 could be measured: {STILL}; remove the cause"),
        (small(414, 0.49) + small(202, 0.99, 2) + held(151), Bracket(151, None), SMALL),
        (held(64, 256) + small(1_024, 0.39) + held(399), Bracket(399, None), f"{SMALL}; {MORE}"),
        (small(1, 0.5), Bracket(0, None), f"{SMALL}; {MORE}"),
    ],
)  # fmt: skip
def test_a_search_that_cannot_measure_higher_loads_ends_with_a_lower_bound(
    history: list[Observation], bracket: Bracket, reason: str
) -> None:
    for searcher in (guided(), Bisection(LIMITS)):
        end = expect(GaveUp, searcher.decide(history))
        assert end.bracket == bracket
        assert end.reason.startswith(reason)
        assert searcher.trials_left(history) == 0


def test_a_valid_trial_above_such_a_load_makes_it_a_load_like_any_other() -> None:
    blocked = [Observation(52, I)] * 4
    assert ceiling_of(blocked, 3) == Ceiling(52, "", None, 1)
    assert ceiling_of([*blocked, Observation(52, S)], 3) is None
    assert ceiling_of([*blocked, Observation(60, O)], 3) is None
    assert ceiling_of([*blocked, Observation(51, S)], 3) == Ceiling(52, "", None, 1)
    assert ceiling_of(blocked[:3], 3) is None


def test_a_cluster_that_cannot_be_measured_at_all_costs_two_loads() -> None:
    cluster = Cluster(still_from=1)
    result = expect(GaveUp, run_search(guided(), cluster))
    assert len(set(cluster.loads)) == 2
    assert len(cluster.loads) == 4 + 2
    assert result.reason.startswith("no load of ")
    assert " or more could be measured: " in result.reason


@each_searcher
def test_a_generator_that_is_too_small_ends_the_search_upward_after_one_invalid_trial(
    searcher: Callable[[Limits], Searcher],
) -> None:
    for generator in (3, 40, 100, 384, 1_500):
        cluster = Cluster(generator=generator)
        result = expect(GaveUp, run_search(searcher(LIMITS), cluster))
        low = result.bracket.sustained
        assert result.bracket == Bracket(low, None)
        assert 0.85 * generator <= low <= generator
        assert result.reason == f"{SMALL}; use more executors or cores"
        invalid = [each for each in cluster.trials if each.verdict is I]
        assert len(invalid) == 1, "the load that it offered is tried next, without a repeat"


@each_searcher
def test_brokers_that_are_overloaded_by_what_can_be_measured_have_a_limit(
    searcher: Callable[[Limits], Searcher],
) -> None:
    for cluster in (Cluster(300, generator=400, reads=False), Cluster(37, still_from=60)):
        result = expect(Done, run_search(searcher(LIMITS), cluster))
        assert result.bracket.sustained <= cluster.limit < (result.bracket.overloaded or 0)


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
    step = expect(Measure, searcher(limits).decide(()))
    assert step.load == 20
    assert step.reason.endswith("; starting at 20, the highest load that was offered before")
    later = expect(Measure, searcher(limits).decide([Observation(20, S)]))
    assert later.load > 20, "its first trial tells more"
