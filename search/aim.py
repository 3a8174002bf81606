"""Which load would close the bracket soonest, were the estimate right."""

from __future__ import annotations

import math
from dataclasses import dataclass

from search.estimate import Estimate
from search.model import Bracket

CLIMB_MAX = 4.0
"""How many times the highest sustained load a step without neighbours may offer."""
CAUTION = 0.4
"""How many standard deviations below the estimate the lower bound is placed."""
SURE = 0.5
"""How many standard deviations on its side of the estimate a closing load has to be."""

FAR = 0.2
"""Distance above the estimate from which an overload is hardly a bound [ln]."""
LIGHT = 0.06
"""Distance below the estimate at which a load is taken for sustained [ln]."""
ASSURED = 1.2
"""How many standard deviations above the estimate an overload is taken for granted."""


@dataclass(frozen=True)
class Aim:
    """A load, and what it is for ("close from below")."""

    load: int
    purpose: str


def lowest_closing(overloaded: int, resolution: float) -> int:
    """The lowest load that closes the bracket from below when sustained."""
    load = max(1, min(overloaded - 1, math.floor(overloaded * (1.0 - resolution))))
    while not Bracket(load, overloaded).is_closed(resolution):
        load += 1
    return load


def highest_closing(sustained: int, resolution: float) -> int:
    """The highest load that closes the bracket from above when overloaded."""
    load = max(sustained + 1, math.ceil(sustained / (1.0 - resolution)))
    while not Bracket(sustained, load).is_closed(resolution):
        load -= 1
    return load


def aim(bracket: Bracket, estimate: Estimate, resolution: float, cap: int, climb_max: float) -> Aim:
    """The best load strictly inside of an undecided bracket.

    The light side comes first: a lower bound a little below the estimate, then the
    highest load that closes the bracket from above.

    Args:
        bracket: not closed.
        estimate: where the limit probably is; cut to the bracket here.
        resolution: relative width that closes the bracket [ratio].
        cap: no load above this.
        climb_max: how many times the highest sustained load may be offered.
    """
    low, high = bracket.sustained, bracket.overloaded
    ceiling = cap if high is None else high - 1
    if low > 0:
        ceiling = min(ceiling, max(low + 1, int(low * climb_max)))
    limit = max(float(low), min(estimate.load, float("inf") if high is None else float(high)))
    margin = SURE * min(estimate.spread, 0.1)
    closing = _closing(bracket, limit, resolution)
    enough = margin if high is None else 0.0
    if closing is not None and closing[1] >= enough and closing[0].load <= ceiling:
        return closing[0]
    step_back = max(resolution / 2.0, CAUTION * min(estimate.spread, 0.7))
    load = min(round(limit * math.exp(-step_back)), ceiling)
    if is_open_above(bracket, estimate) and low < load <= low * (1.0 + resolution):
        # A step this short is better made later, once there is an upper bound to close with.
        above = math.ceil(max(highest_closing(load, resolution), limit * math.exp(margin)))
        return Aim(min(above, ceiling), "bound it from above")
    if load > low:
        return Aim(load, "set the lower bound")
    if low > 0:
        return Aim(max(low + 1, min(highest_closing(low, resolution), ceiling)), "close from above")
    return Aim(1, "set the lower bound")


def is_open_above(bracket: Bracket, estimate: Estimate) -> bool:
    """True when there is no overload, or none near the estimate."""
    if bracket.overloaded is None:
        return True
    return bracket.overloaded > estimate.load * math.exp(FAR)


def _closing(bracket: Bracket, limit: float, resolution: float) -> tuple[Aim, float] | None:
    """The load most likely to close the bracket, and how far on its right side it is [ln]."""
    found: list[tuple[float, Aim]] = []
    if bracket.overloaded is not None:
        below = lowest_closing(bracket.overloaded, resolution)
        if below > bracket.sustained:
            found.append((math.log(limit / below), Aim(below, "close from below")))
    if bracket.sustained > 0:
        above = highest_closing(bracket.sustained, resolution)
        if bracket.overloaded is None or above < bracket.overloaded:
            found.append((math.log(above / limit), Aim(above, "close from above")))
    if not found:
        return None
    gap, best = max(found, key=lambda one: one[0])
    return best, gap


def bound_from_above(wish: Aim, estimate: Estimate, ceiling: int) -> Aim:
    """The aim where one more sustained trial would use up the allowance.

    An overload is worth more than a narrow bracket then, so it is made probable.
    """
    load = min(ceiling, math.ceil(estimate.load * math.exp(ASSURED * min(estimate.spread, 0.1))))
    return wish if load <= wish.load else Aim(load, "bound it from above")


def bound_from_below(wish: Aim, estimate: Estimate) -> Aim:
    """The aim where one more overload would use up the allowance, with nothing sustained yet."""
    back = max(LIGHT, ASSURED * min(estimate.spread, 0.5))
    load = math.floor(estimate.load * math.exp(-back))
    return Aim(load, "bound it from below") if 0 < load < wish.load else wish
