"""The load that closes the bracket soonest if the estimate is right."""

from __future__ import annotations

import math
from dataclasses import dataclass

from search.estimate import Estimate
from search.model import Bracket

CLIMB_MAX = 4.0
"""Highest load of a step without neighbors, over the highest sustained load [ratio]."""
CAUTION = 0.4
"""Distance of the lower bound below the estimate [standard deviations]."""
SURE = 0.5
"""Least distance of a closing load from the estimate, on its own side [standard deviations]."""

FAR = 0.2
"""Distance above the estimate beyond which an overload is hardly a bound [ln]."""
LIGHT = 0.06
"""Least distance below the estimate at which a load is expected to be sustained [ln]."""
ASSURED = 1.2
"""Distance from the estimate at which a verdict is almost certain [standard deviations]."""


@dataclass(frozen=True)
class Aim:
    """A load with its purpose, such as "close from below"."""

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
    """The best load strictly inside of an open bracket.

    The light side comes first: a lower bound a little below the estimate, then the
    highest load that closes the bracket from above.

    Args:
        bracket: a bracket that is not closed.
        estimate: the probable limit; it is cut to the bracket here.
        resolution: relative width that closes the bracket [ratio].
        cap: highest load that may be offered.
        climb_max: highest load over the highest sustained load [ratio].
    """
    low, high = bracket.sustained, bracket.overloaded
    ceiling = cap if high is None else min(cap, high - 1)
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
        # Such a short step is better later, once an upper bound exists to close the bracket with.
        above = math.ceil(max(highest_closing(load, resolution), limit * math.exp(margin)))
        return Aim(min(above, ceiling), "bound it from above")
    if load > low:
        return Aim(load, "set the lower bound")
    if low > 0:
        return Aim(max(low + 1, min(highest_closing(low, resolution), ceiling)), "close from above")
    return Aim(1, "set the lower bound")


def is_open_above(bracket: Bracket, estimate: Estimate) -> bool:
    """True without an overload near the estimate."""
    if bracket.overloaded is None:
        return True
    return bracket.overloaded > estimate.load * math.exp(FAR)


def _closing(bracket: Bracket, limit: float, resolution: float) -> tuple[Aim, float] | None:
    """The load most likely to close the bracket, and its distance from the estimate on the side
    that closes it [ln].
    """
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

    An overload is then worth more than a narrow bracket, so the load is one that probably is one.
    """
    load = min(ceiling, math.ceil(estimate.load * math.exp(ASSURED * min(estimate.spread, 0.1))))
    return wish if load <= wish.load else Aim(load, "bound it from above")


def bound_from_below(wish: Aim, estimate: Estimate) -> Aim:
    """The aim where one more overload would use up the allowance, with nothing sustained yet."""
    back = max(LIGHT, ASSURED * min(estimate.spread, 0.5))
    load = math.floor(estimate.load * math.exp(-back))
    return Aim(load, "bound it from below") if 0 < load < wish.load else wish
