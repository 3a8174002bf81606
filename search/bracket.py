"""The bracket that a history of trials supports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from search.model import Bracket, Observation, Verdict


def bracket_of(history: Iterable[Observation]) -> Bracket:
    """The bracket that the valid trials support, whatever their order.

    Results that contradict each other are normal. The upper bound is the lowest
    overload, and the lower bound is the highest sustained load strictly below it, so a
    sustained trial above an overload never raises the answer.
    """
    sustained: set[int] = set()
    overloaded: set[int] = set()
    for seen in history:
        if seen.verdict is Verdict.SUSTAINED:
            sustained.add(seen.load)
        elif seen.verdict is Verdict.OVERLOADED:
            overloaded.add(seen.load)
    upper = min(overloaded, default=None)
    below = (load for load in sustained if upper is None or load < upper)
    return Bracket(sustained=max(below, default=0), overloaded=upper)


def invalid_in_a_row(history: Sequence[Observation]) -> int:
    """The number of INVALID trials of one load that end the history."""
    count = 0
    for seen in reversed(history):
        if seen.verdict is not Verdict.INVALID or seen.load != history[-1].load:
            break
        count += 1
    return count
