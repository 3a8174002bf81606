"""Searches alone, without the trial at the end that looks for a change of the limit.

Tests that count trials are about the search itself; `tests/unit/test_search_closing.py` is about
that trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from search.limits import Limits
from search.model import (
    Bracket,
    Decision,
    Done,
    GaveUp,
    Measure,
    Observation,
    Searcher,
    Verdict,
)
from tests.support.simulated_clusters import SimulatedEnd, SimulatedLine
from tests.support.simulated_clusters import run_on as checked_on
from tests.support.single_goal import Measurer
from tests.support.single_goal import run_search as checked_search

run_search = partial(checked_search, check_for_change=False)
run_on = partial(checked_on, check_for_change=False)

T = TypeVar("T")
Readings = Callable[[int, int], dict[str, float]]
"""(trial number, load) → readings."""


def expect(kind: type[T], found: object) -> T:
    """Return what was found, which is of this kind."""
    assert isinstance(found, kind), found
    return found


class Scripted:
    """A cluster that sustains loads up to `limit`, as far as trials are not in `invalid`."""

    def __init__(
        self,
        limit: float,
        readings: Readings = lambda _number, _load: {},
        invalid: frozenset[int] = frozenset(),
    ) -> None:
        self.limit, self.readings, self.invalid = limit, readings, invalid
        self.trials: list[Observation] = []

    @property
    def loads(self) -> list[int]:
        return [trial.load for trial in self.trials]

    def measure(self, load: int) -> Observation:
        number = len(self.trials)
        verdict = Verdict.SUSTAINED if load <= self.limit else Verdict.OVERLOADED
        if number in self.invalid:
            verdict = Verdict.INVALID
        self.trials.append(Observation(load, verdict, self.readings(number, load)))
        return self.trials[-1]


def assert_right(result: Done | GaveUp, limit: int, limits: Limits) -> None:
    """Check that an answer holds the limit, as narrowly as asked for."""
    if limit >= limits.load_cap:
        assert expect(GaveUp, result).bracket == Bracket(limits.load_cap, None)
        assert "load_cap" in expect(GaveUp, result).reason
        return
    low, high = expect(Done, result).bracket.sustained, result.bracket.overloaded
    assert high is not None
    assert low <= limit < high
    assert high - low == 1 or 1 - low / high <= limits.resolution


def search_steps(searcher: Searcher, measurer: Measurer) -> tuple[Done | GaveUp, list[Decision]]:
    """The result of a search, and all its decisions."""
    steps: list[Decision] = []
    result = run_search(searcher, measurer, lambda step, _: steps.append(step))
    return result, steps


def search_trials(
    searcher: Searcher, measurer: Measurer
) -> tuple[Done | GaveUp, list[Measure], list[Observation]]:
    """The result of a search, the trials that it asked for, and their observations."""
    trials: list[Observation] = []
    steps: list[Measure] = []

    def note(step: Decision, history: Sequence[Observation]) -> None:
        trials[:] = history
        if isinstance(step, Measure):
            steps.append(step)

    return run_search(searcher, measurer, note), steps, trials


class ScriptedGoals:
    """A cluster that sustains loads up to a limit of each goal."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.limits = limits
        self.loads: list[int] = []

    def measure(self, load: int) -> dict[str, Observation]:
        self.loads.append(load)
        return {
            name: Observation(
                load,
                Verdict.SUSTAINED if load <= limit else Verdict.OVERLOADED,
                {"request_handler_idle": min(1.2, load / (limit + 0.5))},
            )
            for name, limit in self.limits.items()
        }

    def hold(self, load: int) -> dict[str, Observation]:
        """Return the verdicts on a load, as of any trial."""
        return self.measure(load)


def run_sizes_on(
    make_searcher: Callable[[], Searcher], sizes: Sequence[int], simulated: SimulatedLine
) -> list[SimulatedEnd]:
    """Measure every size on its own, with a new searcher without neighbors."""
    outcomes = []
    for message_bytes in sizes:
        cluster = simulated.cluster(message_bytes)
        outcomes.append(run_on(make_searcher(), cluster))
        simulated.cluster(message_bytes).recover()
    return outcomes


def off_by(end: SimulatedEnd) -> float:
    """Distance of the answer (the sustained side) from the true limit [ratio].

    It is 1 when the search gave up.
    """
    if isinstance(end.result, GaveUp):
        return 1.0
    return abs(end.result.bracket.sustained - end.true_limit) / end.true_limit


def is_off(end: SimulatedEnd, share: float) -> bool:
    """True when the answer is off by more than a share [ratio] and more than one producer."""
    return isinstance(end.result, GaveUp) or off_by(end) > max(share, 1.0 / end.true_limit)


def holds_the_limit(end: SimulatedEnd) -> bool:
    """True when the bracket of a finished search contains the true limit."""
    bracket = end.result.bracket
    is_done = isinstance(end.result, Done)
    return is_done and bracket.sustained <= end.true_limit < bracket.upper < math.inf
