"""The steady limit: the load that disks write, below a burst limit that memory may carry.

One load is held at a time, the burst limit first, until the hold proves that disks write it or
shows how much of it they do. The next load is what they wrote. It decides from the holds alone, so
that a resumed run decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HOLDS_MAX = 3
"""Number of loads that are held at most."""
REPEATS_MAX = 1
"""Number of repeats of an INVALID hold."""
MARGIN = 0.97
"""The next load over what disks wrote [ratio], as a disk that is full cannot catch up."""
STEP_DOWN = 0.8
"""The next load over one that was overloaded although disks wrote it [ratio]."""
LEAST = 0.05
"""The next load over the last one at least [ratio]."""


@dataclass(frozen=True)
class SteadyHold:
    """One hold.

    Attributes:
        load: the load that was held.
        is_valid: False where it was INVALID, and says nothing.
        is_proven: True where disks wrote the load.
        written_share: share of the load that disks wrote; None where that is not the reason why the
            load is not steady [ratio].
    """

    load: int
    is_valid: bool
    is_proven: bool = False
    written_share: float | None = None


def next_hold(burst: int, holds: Sequence[SteadyHold]) -> int | None:
    """The load to hold next, or None at the end of the search.

    Args:
        burst: the burst limit.
        holds: the holds so far, oldest first.
    """
    if not holds:
        return burst if burst >= 1 else None
    last = holds[-1]
    invalid = sum(1 for each in holds if not each.is_valid)
    if not last.is_valid:
        return last.load if invalid <= REPEATS_MAX else None
    if last.is_proven or len(holds) - invalid >= HOLDS_MAX:
        return None
    share = STEP_DOWN if last.written_share is None else MARGIN * last.written_share
    below = min(last.load - 1, int(last.load * max(LEAST, min(share, 1.0))))
    return below if below >= 1 else None
