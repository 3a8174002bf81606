"""The one loop of a search: it asks the searchers, and has a measurer do what they say.

Several goals search from one set of trials: each trial is judged by all, and answers for all.
A search of one goal is the same loop with one searcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

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
        """Offer `load`; the observation of each goal, by the goal's name."""
        ...


@runtime_checkable
class HoldingGoalsMeasurer(Protocol):
    """A measurer that can go on with a load, without rest for the cluster before it."""

    def hold(self, load: int) -> Mapping[str, Observation]:
        """One window of a load that is held; the observation of each goal."""
        ...


def next_trial(
    searchers: Mapping[str, Searcher], histories: Histories
) -> tuple[Measure | None, dict[str, Decision]]:
    """The trial to make next, or None when every goal has its answer; and all decisions.

    A hold that is under way goes on. Else, of the loads that the goals ask for, the lightest
    comes first, and one to be held after all that are searched for.
    """
    decisions = {name: one.decide(histories[name]) for name, one in searchers.items()}
    wishes = [
        (step.load, name, step) for name, step in decisions.items() if isinstance(step, Measure)
    ]
    if not wishes:
        return None, decisions
    held = {seen[-1].load for seen in histories.values() if seen and seen[-1].held}
    load, name, step = min(
        wishes,
        key=lambda wish: (not (wish[2].holds and wish[0] in held), wish[2].holds, *wish[:2]),
    )
    reason = step.reason if len(searchers) == 1 else f"for goal {name}: {step.reason}"
    return Measure(load, reason, step.holds), decisions


@dataclass(frozen=True)
class SearchEnd:
    """What one goal's search ended with, and the trials that it rests on, oldest first."""

    result: Done | GaveUp
    history: tuple[Observation, ...]


OnStep = Callable[[Decision, Histories], None]
"""Told every trial before it is made, and every goal's end, with all trials so far."""


def run_goals(
    searchers: Mapping[str, Searcher],
    measurer: GoalsMeasurer,
    on_step: OnStep | None = None,
    histories: Histories | None = None,
) -> dict[str, SearchEnd]:
    """Search until every goal is done or gave up, by all trials that were made.

    A goal that had its answer decides again when the others made more trials, which may
    contradict it.

    Args:
        searchers: one per goal, by the goal's name; guided ones with an allowance for the
            trials that the others ask for.
        measurer: carries out and judges one trial; when it can `recover()`, it is told to
            between an overload, in the eyes of any goal, and the next trial.
        on_step: hears every decision before it is acted on.
        histories: trials already finished, the same loads for every goal.
    """
    trials = {name: list((histories or {}).get(name, ())) for name in searchers}
    while True:
        step, decisions = next_trial(searchers, trials)
        if step is None:
            for decision in decisions.values():
                _tell(on_step, decision, trials)
            return {
                name: SearchEnd(decision, tuple(trials[name]))
                for name, decision in decisions.items()
                if not isinstance(decision, Measure)
            }
        _tell(on_step, step, trials)
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
            trials[name].append(replace(observation, held=step.holds))


def last_overloaded(histories: Histories) -> bool:
    """True when the last trial was an overload in the eyes of any goal."""
    last = [seen[-1].verdict for seen in histories.values() if seen]
    return Verdict.OVERLOADED in last


def _tell(on_step: OnStep | None, decision: Decision, trials: Histories) -> None:
    if on_step is not None:
        on_step(decision, trials)


class SingleGoalMeasurer:
    """A measurer of one goal as one of several."""

    def __init__(self, name: str, measurer: Measurer) -> None:
        self._name = name
        self._measurer = measurer

    def measure(self, load: int) -> dict[str, Observation]:
        """The one goal's observation."""
        return {self._name: self._measurer.measure(load)}

    def hold(self, load: int) -> dict[str, Observation]:
        """The same of a load that is held, where the measurer can."""
        if isinstance(self._measurer, HoldingMeasurer):
            return {self._name: self._measurer.hold(load)}
        return self.measure(load)

    def recover(self) -> None:
        """As the measurer does, where it can."""
        if isinstance(self._measurer, RecoveringMeasurer):
            self._measurer.recover()


def run_search(
    searcher: Searcher,
    measurer: Measurer,
    on_step: Callable[[Decision, Sequence[Observation]], None] | None = None,
    history: Sequence[Observation] = (),
) -> Done | GaveUp:
    """`run_goals` for a single goal, as simulations need it.

    Args:
        history: trials already finished, oldest first, when a search is resumed.
    """
    name = "goal"

    def step(decision: Decision, histories: Histories) -> None:
        if on_step is not None:
            on_step(decision, tuple(histories[name]))

    ends = run_goals({name: searcher}, SingleGoalMeasurer(name, measurer), step, {name: history})
    return ends[name].result
