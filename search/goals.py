"""Several goals from one set of trials: each trial is judged by all, and answers for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from search.model import Decision, Done, GaveUp, Measure, Observation, Recovers, Searcher, Verdict

Histories = Mapping[str, Sequence[Observation]]


class GoalsMeasurer(Protocol):
    """Carries out one trial and judges it by every goal."""

    def measure(self, load: int) -> Mapping[str, Observation]:
        """Offer `load`; the observation of each goal, by the goal's name."""
        ...


def next_trial(
    searchers: Mapping[str, Searcher], histories: Histories
) -> tuple[Measure | None, dict[str, Decision]]:
    """The trial to make next, or None when every goal has its answer; and all decisions.

    Of the loads that the goals ask for, the lightest comes first.
    """
    decisions = {name: one.decide(histories[name]) for name, one in searchers.items()}
    wishes = [
        (step.load, name, step) for name, step in decisions.items() if isinstance(step, Measure)
    ]
    if not wishes:
        return None, decisions
    load, name, step = min(wishes, key=lambda wish: wish[:2])
    reason = step.reason if len(searchers) == 1 else f"for goal {name}: {step.reason}"
    return Measure(load, reason), decisions


@dataclass(frozen=True)
class Answer:
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
) -> dict[str, Answer]:
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
                name: Answer(decision, tuple(trials[name]))
                for name, decision in decisions.items()
                if not isinstance(decision, Measure)
            }
        _tell(on_step, step, trials)
        if last_overloaded(trials) and isinstance(measurer, Recovers):
            measurer.recover()
        for name, observation in measurer.measure(step.load).items():
            trials[name].append(observation)


def last_overloaded(histories: Histories) -> bool:
    """True when the last trial was an overload in the eyes of any goal."""
    last = [seen[-1].verdict for seen in histories.values() if seen]
    return Verdict.OVERLOADED in last


def _tell(on_step: OnStep | None, decision: Decision, trials: Histories) -> None:
    if on_step is not None:
        on_step(decision, trials)
