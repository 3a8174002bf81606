"""Several goals from one set of trials: each trial is judged by all, and answers for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    return Measure(load, f"for goal {name}: {step.reason}"), decisions


def run_goals(
    searchers: Mapping[str, Searcher],
    measurer: GoalsMeasurer,
    on_step: Callable[[Measure, Histories], None] | None = None,
    histories: Histories | None = None,
) -> dict[str, Done | GaveUp]:
    """Search until every goal is done or gave up.

    Args:
        searchers: one per goal, by the goal's name; guided ones with an allowance for the
            trials that the others ask for.
        measurer: carries out and judges one trial.
        on_step: told every trial before it is made.
        histories: trials already finished, the same loads for every goal.
    """
    trials = {name: list((histories or {}).get(name, ())) for name in searchers}
    ended: dict[str, Done | GaveUp] = {}
    while True:
        going = {name: one for name, one in searchers.items() if name not in ended}
        step, decisions = next_trial(going, trials)
        ended |= {n: one for n, one in decisions.items() if isinstance(one, (Done, GaveUp))}
        if step is None:
            return ended
        if on_step is not None:
            on_step(step, trials)
        last = [seen[-1].verdict for seen in trials.values() if seen]
        if Verdict.OVERLOADED in last and isinstance(measurer, Recovers):
            measurer.recover()
        for name, observation in measurer.measure(step.load).items():
            trials[name].append(observation)
