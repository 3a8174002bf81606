"""Plain bisection: the simple search with which other searches are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from search.guide import Guide
from search.limits import Limits
from search.model import Bracket, Decision, Done, GaveUp, Interval, Measure, Observation, bracket_of


class Bisection:
    """A searcher that halves the interval between the highest sustained and the lowest overloaded
    load.

    The first load is the middle of [0, load_start_max]. If this first load is sustained, the second
    load is load_start_max. If load_start_max is also sustained, each next load is twice the highest
    sustained load, up to load_cap, until a load is overloaded.

    Args:
        limits: bounds, resolution and repeats.
        guide: computes the interval of the limit at the end of the search; None to compute no
            interval. The guide does not choose loads.
    """

    def __init__(self, limits: Limits, guide: Guide | None = None) -> None:
        self.limits = limits
        self._guide = guide

    def decide(self, history: Sequence[Observation]) -> Decision:
        """The next step after `history`, which has all trials of this point, oldest first."""
        settled = self.limits.settle(history)
        if isinstance(settled, (Done, GaveUp)):
            return replace(settled, interval=self.interval(history))
        return settled or self.limits.begin(self._probe(bracket_of(history)), history)

    def interval(self, history: Sequence[Observation]) -> Interval | None:
        """The 90 % interval of the limit; None if there is no guide or no interval."""
        return None if self._guide is None else self._guide.interval(history)

    def trials_left(self, history: Sequence[Observation]) -> int:
        """Number of remaining trials without repeats, if the limit is below the present maximum."""
        settled = self.limits.settle(history)
        if settled is not None and not isinstance(settled, Measure):
            return 0
        bracket, opening = bracket_of(history), 0
        if bracket.overloaded is None:
            bracket, opening = Bracket(bracket.sustained, self.next_load(bracket)), 1
        low, high = bracket.sustained, bracket.overloaded or self.limits.load_cap
        width = max(1.0, self.limits.resolution * (low + high) / 2)
        halvings = math.ceil(math.log2(max(1.0, (high - low) / width)))
        return max(1, opening + max(0, halvings))

    def next_load(self, bracket: Bracket) -> int:
        """The next load for a bracket that is not closed."""
        low, high, start_max = bracket.sustained, bracket.overloaded, self.limits.load_start_max
        if high is not None:
            return min((low + high) // 2, self.limits.load_cap)
        if low < start_max:
            middle = (start_max + 1) // 2
            return middle if low < middle else start_max
        return min(2 * low, self.limits.load_cap)

    def _probe(self, bracket: Bracket) -> Measure:
        low, high, start_max = bracket.sustained, bracket.overloaded, self.limits.load_start_max
        load, amount = self.next_load(bracket), self.limits.words.amount
        if high is not None:
            return Measure(load, f"halving the bracket from {low} to {amount(high)}")
        if low < (start_max + 1) // 2:
            return Measure(load, f"starting at half of the maximum of {amount(start_max)}")
        if low < start_max:
            return Measure(load, f"sustained at {amount(low)}; trying the maximum {load}")
        return Measure(load, f"sustained at {amount(low)}; raising the maximum to {load}")
