"""The one small loop: it asks a searcher, and has a measurer do what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from search.model import Decision, Done, GaveUp, Measurer, Observation, Searcher

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
        measurer: carries out one trial at a load.
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
        trials.append(measurer.measure(decision.load))
