"""The one small loop: it asks a searcher, and has a measurer do what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from search.model import Decision, Done, GaveUp, Measurer, Observation, Recovers, Searcher, Verdict

OnStep = Callable[[Decision, Sequence[Observation]], None]


def run_search(
    searcher: Searcher,
    measurer: Measurer,
    on_step: OnStep | None = None,
    history: Sequence[Observation] = (),
) -> Done | GaveUp:
    """Search until the searcher is done or gives up.

    Args:
        searcher: decides, from the history alone.
        measurer: carries out one trial at a load; when it can `recover()`, it is told to
            between an overload and the next trial.
        on_step: told every decision before it is acted on, together with the trials that
            it rests on; the last call brings the decision that is returned.
        history: trials already finished, oldest first, when a search is resumed.
    """
    trials = list(history)
    while True:
        decision = searcher.decide(tuple(trials))
        if on_step is not None:
            on_step(decision, tuple(trials))
        if isinstance(decision, (Done, GaveUp)):
            return decision
        if trials and trials[-1].verdict is Verdict.OVERLOADED and isinstance(measurer, Recovers):
            measurer.recover()
        trials.append(measurer.measure(decision.load))
