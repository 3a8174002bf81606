"""Trials at a fixed load, with repeats of INVALID ones."""

from __future__ import annotations

from collections.abc import Callable

from metrics.trial.trial import Trial


def hold_until_valid(
    hold: Callable[[int], Trial], count: int, spare: int, into: list[Trial]
) -> None:
    """Make trials until `count` of them are valid, or more than `spare` are INVALID.

    Args:
        hold: makes a trial, given the number of valid trials that are still missing.
        into: receives the trials as they are judged, so that an error keeps them.
    """
    while (missing := count - sum(each.is_valid for each in into)) > 0:
        if len(into) - (count - missing) > spare:
            return
        into.append(hold(missing))
