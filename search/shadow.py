"""The guarantee of the worst case, by comparison with a copy of plain bisection.

ITP (Oliveira and Takahashi, "An Enhancement of the Bisection Method Average Performance
Preserving Minmax Optimality", ACM TOMS 47(1), 2020) interpolates, truncates and then
projects its estimate onto the loads that still allow bisection's worst case. Here, the same
idea applies to every single limit instead of the worst one, and to a maximum that may still
have to be raised:

Let B(l) be the loads that plain bisection tries when the limit is l. Trials of bisection outside
of the present bracket (low, high) are unnecessary, since their verdicts are implied. So a search
that continues like bisection from here needs only the trials of B(l) inside of the bracket.
After `used` trials the total is at most

    used + inside(l)  =  |B(l)| + used - outside(l),

and `excess` is the largest `used - outside(l)` of all limits that are still possible. A
step may be taken when, whatever its verdict, the excess stays within the allowance. Such a step
always exists: the first trial of B inside of the bracket is the same for all remaining limits,
and after it, it lies outside, so the excess does not grow.
"""

from __future__ import annotations

import math

from search.bisect import Bisection
from search.model import Bracket


class Shadow:
    """A counter of the trials by which any continuation may exceed plain bisection.

    Args:
        bisection: the method to compare with.
        hint_load: a warm-up load that left no idle time; the limit is assumed to be below it until
            a trial holds there, which can cost one more trial. None without one.
    """

    def __init__(self, bisection: Bisection, hint_load: int | None = None) -> None:
        self._bisection = bisection
        self._hint_load = hint_load
        self._limits = bisection.limits
        # Bracket → its `_fewest`, which several of the loads that a search considers need.
        self._known: dict[Bracket, int] = {}

    def next_load(self, bracket: Bracket) -> int:
        """The next load of bisection, which knows only its own trials."""
        low, high = bracket.sustained, _upper(bracket)
        shadow = Bracket(0, None)
        while True:
            load = self._bisection.next_load(shadow)
            if low < load < high:
                return load
            shadow = _after(shadow, load, load <= low)

    def excess(self, used: int, bracket: Bracket) -> int:
        """Trials above plain bisection, in the worst case, of a search that continues like it.

        Args:
            used: valid trials so far.
            bracket: the bracket that they support.
        """
        hint = self._hint_load
        if hint is not None and bracket.overloaded is None and bracket.sustained < hint:
            bracket = Bracket(bracket.sustained, hint)
        if bracket not in self._known:
            is_settled = self._limits.settle_bracket(bracket) is not None
            self._known[bracket] = self._fewest(Bracket(0, None), bracket, is_settled)
        return used - self._known[bracket]

    def excess_after(self, used: int, bracket: Bracket, load: int) -> int:
        """The excess after one more trial at `load`, whatever its verdict."""
        return max(
            self.excess(used + 1, Bracket(load, bracket.overloaded)),
            self.excess(used + 1, Bracket(bracket.sustained, load)),
        )

    def _fewest(self, shadow: Bracket, bracket: Bracket, count_inside: bool) -> int:
        """The lowest number of bisection's trials over the limits in `bracket`.

        It counts all of them, or only those outside of the bracket, whose verdicts are implied.
        """
        low, high = bracket.sustained, _upper(bracket)
        if not count_inside and shadow.sustained >= low and _upper(shadow) <= high:
            return 0
        if self._limits.settle_bracket(shadow) is not None:
            return 0
        load = self._bisection.next_load(shadow)
        above = _after(shadow, load, sustained=True)
        below = _after(shadow, load, sustained=False)
        if load <= low:
            return 1 + self._fewest(above, bracket, count_inside)
        if load >= high:
            return 1 + self._fewest(below, bracket, count_inside)
        return int(count_inside) + min(
            self._fewest(below, bracket, count_inside), self._fewest(above, bracket, count_inside)
        )


def _upper(bracket: Bracket) -> float:
    return math.inf if bracket.overloaded is None else bracket.overloaded


def _after(shadow: Bracket, load: int, sustained: bool) -> Bracket:
    return Bracket(load, shadow.overloaded) if sustained else Bracket(shadow.sustained, load)
