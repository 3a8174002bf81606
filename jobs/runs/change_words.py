"""Changes of a limit while it was measured, in words, and the trials that count since then."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.config import Configuration, Goal
from metrics.trial.trial import Trial
from metrics.units import format_ratio, iso_utc
from search.interval import LEVEL, Interval
from search.line import FinishedPoint
from search.model import Change, GaveUp


def present_trials(point: FinishedPoint, trials: Sequence[Trial]) -> list[Trial]:
    """The trials of a point that count for its present limit.

    Args:
        trials: all trials of the point, oldest first; those that hold a limit to prove it on disk
            count in any case.
    """
    searched = [each for each in trials if not each.steady]
    changed = point.result.changed
    counted = searched[changed[-1].since :] if changed else searched
    return [*counted, *(each for each in trials if each.steady)]


def change_words(
    point: FinishedPoint, trials: Sequence[Trial], config: Configuration
) -> tuple[str, ...]:
    """The changes of a point, a sentence each: size, time and the trials that count no more.

    Args:
        trials: all trials of the point, oldest first.
    """
    searched = [each for each in trials if not each.steady]
    changes = point.result.changed
    words = []
    for number, change in enumerate(changes):
        is_last = number == len(changes) - 1
        after = (point.result.interval if is_last else None) or change.after
        words.append(_sentence(change, after, searched, config))
    return tuple(words)


def _sentence(
    change: Change, after: Interval | None, trials: Sequence[Trial], config: Configuration
) -> str:
    last, first = trials[change.last_before], trials[change.since]
    size = f"from {_amount(change.before)} to {_amount(after)} {config.axis.words}"
    when = (
        f"between trial {last.number} ({iso_utc(last.started_at_s)}) and trial {first.number} "
        f"({iso_utc(first.started_at_s)})"
    )
    share = "" if change.verb == "changed" else f" ({format_ratio(change.probability)})"
    return f"the limit {change.verb} {size}{share}, {when}; earlier trials count no more"


def _amount(interval: Interval | None) -> str:
    """`387 (376 to 398 at 90 %)`."""
    if interval is None:
        return "an unknown number"
    middle = interval.high if interval.median is None else interval.median
    span = f"{interval.low:,.4g} to {interval.high:,.4g} at {100 * LEVEL:.0f} %"
    return f"{middle:,.4g} ({span})"


def not_checked(point: FinishedPoint, goal: Goal) -> tuple[str, ...]:
    """A note on an answer that no trial checked for a change, as the goal leaves that out."""
    if goal.search.check_for_change or isinstance(point.result, GaveUp):
        return ()
    note = "not checked for a change of the limit, as search.check_for_change is false"
    return (note,)
