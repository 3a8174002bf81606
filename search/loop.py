"""The loop of a search: the searchers decide, and a measurer carries out their decisions.

Several goals search with one set of trials: each trial is judged by all goals and counts for all.
A search of one goal is the same loop with one searcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from search.checking import Checking, guide_of
from search.model import (
    Decision,
    Done,
    GaveUp,
    HoldingMeasurer,
    Measure,
    Measurer,
    Observation,
    RecoveringMeasurer,
    Searcher,
    Verdict,
)

Histories = Mapping[str, Sequence[Observation]]


class GoalsMeasurer(Protocol):
    """Carries out one trial and judges it by every goal."""

    def measure(self, load: int) -> Mapping[str, Observation]:
        """Offer `load` and return the observation of each goal, by the goal's name."""
        ...


@runtime_checkable
class HoldingGoalsMeasurer(Protocol):
    """A measurer that can continue a load without a rest for the cluster."""

    def hold(self, load: int) -> Mapping[str, Observation]:
        """Hold the load for one window and return the observation of each goal."""
        ...


def next_trial(
    searchers: Mapping[str, Searcher], histories: Histories
) -> tuple[Measure | None, dict[str, Decision]]:
    """The next trial, or None when every goal has its answer; and all decisions.

    A hold that is under way continues. Otherwise the lightest load that a goal requests comes
    first, a load to be held comes after all other loads, and a look for a change comes last.
    """
    decisions = {name: one.decide(histories[name]) for name, one in searchers.items()}
    wishes = [
        (step.load, name, step) for name, step in decisions.items() if isinstance(step, Measure)
    ]
    if not wishes:
        return None, decisions
    held = {seen[-1].load for seen in histories.values() if seen and seen[-1].held}
    _, name, step = min(
        wishes,
        key=lambda wish: (
            not (wish[2].holds and wish[0] in held),
            wish[2].checks,
            wish[2].holds,
            *wish[:2],
        ),
    )
    reason = step.reason if len(searchers) == 1 else f"for goal {name}: {step.reason}"
    return replace(step, reason=reason), decisions


@dataclass(frozen=True)
class SearchEnd:
    """The end of one goal's search and its trials, oldest first."""

    result: Done | GaveUp
    history: tuple[Observation, ...]


OnStep = Callable[[Decision, Histories], None]
"""Called before every trial and at every goal's end, with the decision and all trials so far."""


def run_goals(
    searchers: Mapping[str, Searcher],
    measurer: GoalsMeasurer,
    on_step: OnStep | None = None,
    histories: Histories | None = None,
) -> dict[str, SearchEnd]:
    """Search until every goal is done or gave up, with all trials counting for all goals.

    A goal that has its answer decides again when trials for other goals contradict it.

    Args:
        searchers: one per goal, by the goal's name; guided ones have an allowance for the
            trials that other goals request.
        measurer: carries out and judges one trial; its `recover()`, if it has one, is called
            after an overload by any goal, before the next trial.
        on_step: called with every decision before it is carried out.
        histories: trials already finished, the same loads for every goal.
    """
    trials = {name: list((histories or {}).get(name, ())) for name in searchers}
    while True:
        step, decisions = next_trial(searchers, trials)
        if step is None:
            for decision in decisions.values():
                _notify(on_step, decision, trials)
            return {
                name: SearchEnd(decision, tuple(trials[name]))
                for name, decision in decisions.items()
                if not isinstance(decision, Measure)
            }
        _notify(on_step, step, trials)
        is_under_way = step.holds and any(seen[-1:] and seen[-1].held for seen in trials.values())
        if (
            last_overloaded(trials)
            and not is_under_way
            and isinstance(measurer, RecoveringMeasurer)
        ):
            measurer.recover()
        offer = (
            measurer.hold
            if step.holds and isinstance(measurer, HoldingGoalsMeasurer)
            else measurer.measure
        )
        for name, observation in offer(step.load).items():
            trials[name].append(replace(observation, held=step.holds, checks=step.checks))


def last_overloaded(histories: Histories) -> bool:
    """True when the last trial was an overload by any goal."""
    last = [seen[-1].verdict for seen in histories.values() if seen]
    return Verdict.OVERLOADED in last


def _notify(on_step: OnStep | None, decision: Decision, trials: Histories) -> None:
    if on_step is not None:
        on_step(decision, trials)


class SingleGoalMeasurer:
    """A measurer of one goal, adapted to `GoalsMeasurer`."""

    def __init__(self, name: str, measurer: Measurer) -> None:
        self._name = name
        self._measurer = measurer

    def measure(self, load: int) -> dict[str, Observation]:
        """Offer the load and return the observation of the goal."""
        return {self._name: self._measurer.measure(load)}

    def hold(self, load: int) -> dict[str, Observation]:
        """Hold the load for one window; a measurer that cannot hold makes an ordinary trial."""
        if isinstance(self._measurer, HoldingMeasurer):
            return {self._name: self._measurer.hold(load)}
        return self.measure(load)

    def recover(self) -> None:
        """Wait for the recovery of the cluster, if the measurer can."""
        if isinstance(self._measurer, RecoveringMeasurer):
            self._measurer.recover()


def run_search(
    searcher: Searcher,
    measurer: Measurer,
    on_step: Callable[[Decision, Sequence[Observation]], None] | None = None,
    history: Sequence[Observation] = (),
    check_for_change: bool = True,
) -> Done | GaveUp:
    """Run `run_goals` for a single goal, as simulations need it.

    Args:
        history: trials already finished, oldest first, when a search is resumed.
        check_for_change: whether a trial at the end looks for a change of the limit.
    """
    name = "goal"
    if check_for_change:
        searcher = Checking(searcher, guide_of(searcher))

    def step(decision: Decision, histories: Histories) -> None:
        if on_step is not None:
            on_step(decision, tuple(histories[name]))

    ends = run_goals({name: searcher}, SingleGoalMeasurer(name, measurer), step, {name: history})
    return ends[name].result
