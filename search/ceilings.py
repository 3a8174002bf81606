"""Loads that could not be measured, as their trials came back INVALID, and the load below them.

An INVALID trial is no answer, so such a load is never a bound of the limit. The search goes on
below it, as what spoils a trial may depend on the load:

* A generator that was too small ends the search upward after one trial, unless a trial with as
  much load was valid. The load that it offered is tried next, and further below it while that is
  too much as well, down to one unit of load, until a trial is valid. A trial that it almost offered
  may have had a busy moment, so it is repeated once.
* Any other cause has to come back in each repeat of the load. A load between it and the highest
  sustained load is tried next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from search.model import Bracket, Observation, Verdict

OFFERED_MAX = 0.9
"""A trial of which the generator offered a higher share is repeated once [ratio]."""
OFFERED_STEPS = (0.9, 0.75, 0.5)
"""Highest next load over a load that the generator could not offer: below the first such load in a
row, the second and any further one [ratio]."""
IN_A_ROW_MAX, IN_A_ROW_FIRST_MAX = 4, 2
"""Number of loads in a row without a valid trial after which the search ends, and the same before
any valid trial where the generator is not the limit."""
STEP_DOWN = 4
"""Step down from such a load before any valid trial [ratio]."""
REPEATS_LATER = 1
"""Highest number of repeats of an INVALID trial once a load could not be measured."""


@dataclass(frozen=True)
class Ceiling:
    """The lowest load that could not be measured.

    Attributes:
        load: that load.
        cause: what made its trials INVALID, in words.
        offered_share: share of the load that the generator offered, where the generator was the
            limit; None where something else was the cause [ratio].
        in_a_row: number of such loads since the last valid trial.
    """

    load: int
    cause: str
    offered_share: float | None
    in_a_row: int

    def next_load(self, sustained: int) -> int:
        """The next load below it, which is at most `sustained` where none is left."""
        if self.offered_share is None and not sustained:
            return max(self.load // STEP_DOWN, min(1, self.load - 1))
        if self.offered_share is None:
            middle = (sustained + self.load) // 2
            return min(middle, max(sustained + 1, math.isqrt(sustained * self.load)))
        most = OFFERED_STEPS[min(self.in_a_row, len(OFFERED_STEPS)) - 1]
        below = max(1, math.floor(self.load * min(self.offered_share, most)))
        return min(below, self.load - 1)

    def is_final(self, sustained: int, resolution: float) -> bool:
        """True where no further load between the highest sustained one and this one is tried."""
        if self.next_load(sustained) <= sustained:
            return True
        if self.offered_share is not None:
            return bool(sustained) and self.in_a_row >= IN_A_ROW_MAX
        in_a_row_max = IN_A_ROW_MAX if sustained else IN_A_ROW_FIRST_MAX
        return self.in_a_row >= in_a_row_max or Bracket(sustained, self.load).is_closed(resolution)


def ceiling_of(history: Sequence[Observation], repeats_max: int) -> Ceiling | None:
    """The lowest load that could not be measured, or None.

    A valid trial at a load, or at a higher one, shows that the load can be measured.

    Args:
        history: the trials of a point, oldest first.
        repeats_max: highest number of repeats of an INVALID trial.
    """
    found: list[Ceiling] = []
    highest_valid = tries = in_a_row = 0
    allowed, last = repeats_max, 0
    for seen in history:
        if seen.verdict is not Verdict.INVALID:
            highest_valid = max(highest_valid, seen.load)
            found = [each for each in found if each.load > seen.load]
            tries = in_a_row = last = 0
            continue
        tries, last = (tries + 1 if seen.load == last else 1), seen.load
        share = seen.offered_share if seen.load > highest_valid else None
        if tries <= (allowed if share is None else _repeats_by_generator(share, repeats_max)):
            continue
        if not found or found[-1].load != seen.load:
            in_a_row += 1
        found = [each for each in found if each.load < seen.load]
        found.append(Ceiling(seen.load, seen.cause, share, in_a_row))
        allowed = min(repeats_max, REPEATS_LATER)
    return min(found, key=lambda each: each.load, default=None)


def _repeats_by_generator(share: float, repeats_max: int) -> int:
    """Repeats of a trial of which the generator offered this share."""
    return 0 if share < OFFERED_MAX else min(1, repeats_max)
