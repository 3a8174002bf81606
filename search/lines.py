"""The measurement of boundary lines for one or several goals, one message size after the other.

In each step, the searchers make a decision and a measurer carries it out. Several goals share all
trials, and each trial is judged by every goal. A search for a single goal uses the same loop, with
a single searcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from search.guided import ALLOWANCE
from search.line import FinishedPoint, Line
from search.model import (
    Decision,
    Done,
    GaveUp,
    Measure,
    Observation,
    Searcher,
)

Histories = Mapping[str, Sequence[Observation]]


class GoalsMeasurer(Protocol):
    """A measurer that makes one trial per call and judges it by every goal."""

    def measure(self, load: int) -> Mapping[str, Observation]:
        """Offer `load` and return the observation of each goal, by the goal's name."""
        ...

    def hold(self, load: int) -> Mapping[str, Observation]:
        """Hold the load for one window and return the observation of each goal, by the goal's
        name.
        """
        ...


def next_trial(
    searchers: Mapping[str, Searcher], histories: Histories
) -> tuple[Measure | None, dict[str, Decision]]:
    """The next trial, and each goal's decision. The trial is None if all searches have ended.

    The next trial is a window of a hold (a long load that confirms a limit) if such a hold has
    begun. If no hold has begun, loads of searches are first, new holds are second, and closing
    trials (repeats of an early load that check a limit) are last. If several trials of the same
    kind are possible, the trial with the lowest load is first.
    """
    decisions = {name: one.decide(histories[name]) for name, one in searchers.items()}
    wishes = [
        (step.load, name, step) for name, step in decisions.items() if isinstance(step, Measure)
    ]
    if not wishes:
        return None, decisions
    held = {seen[-1].load for seen in histories.values() if seen and seen[-1].held}
    _, name, step = min(
        wishes,
        key=lambda wish: (
            not (wish[2].holds and wish[0] in held),
            wish[2].checks,
            wish[2].holds,
            *wish[:2],
        ),
    )
    reason = step.reason if len(searchers) == 1 else f"for goal {name}: {step.reason}"
    return replace(step, reason=reason), decisions


@dataclass(frozen=True)
class SearchEnd:
    """The result of one goal's search, with all its trials, oldest first."""

    result: Done | GaveUp
    history: tuple[Observation, ...]


OnStep = Callable[[Decision, Histories], None]
"""A function that is called before every trial and at the end of every goal. The arguments of the
function are the decision and all trials so far."""


def run_goals(
    searchers: Mapping[str, Searcher],
    measurer: GoalsMeasurer,
    on_step: OnStep | None = None,
    histories: Histories | None = None,
) -> dict[str, SearchEnd]:
    """Search until the search of every goal has ended. Each trial counts for all goals.

    If a trial for another goal contradicts the result of an ended search, this search continues.

    Args:
        searchers: the searcher of each goal, by the goal's name.
        measurer: makes the trials and judges them.
        on_step: function that is called with every decision before the decision is carried out.
        histories: finished trials of each goal, with the same loads for every goal.
    """
    trials = {name: list((histories or {}).get(name, ())) for name in searchers}
    notify: OnStep = on_step or (lambda _decision, _trials: None)
    while True:
        step, decisions = next_trial(searchers, trials)
        if step is None:
            for decision in decisions.values():
                notify(decision, trials)
            return {
                name: SearchEnd(decision, tuple(trials[name]))
                for name, decision in decisions.items()
                if not isinstance(decision, Measure)
            }
        notify(step, trials)
        offer = measurer.hold if step.holds else measurer.measure
        for name, observation in offer(step.load).items():
            trials[name].append(replace(observation, held=step.holds, checks=step.checks))


SHARED_ALLOWANCE = 8
"""In a search of several goals, the number of trials at one size may exceed plain bisection by this
value."""

Finished = Mapping[str, Sequence[FinishedPoint]]
"""Name of a goal → its finished points. The finished points of every goal have the same message
sizes."""


def next_size(lines: Mapping[str, Line], finished: Finished) -> int | None:
    """The size to measure next [B] according to the first goal's line; None if the line is
    complete.
    """
    name, line = next(iter(lines.items()))
    return line.next_message_bytes(finished[name])


def searchers_of(
    lines: Mapping[str, Line], message_bytes: int, finished: Finished
) -> dict[str, Searcher]:
    """Name of a goal → its searcher at one size."""
    allowance = ALLOWANCE if len(lines) == 1 else SHARED_ALLOWANCE
    return {
        name: line.searcher(message_bytes, finished[name], allowance, number == 0)
        for number, (name, line) in enumerate(lines.items())
    }


def next_check(lines: Mapping[str, Line], finished: Finished) -> int | None:
    """The finished size [B] whose limit is checked next for a change; None if no size needs a
    check.

    The size that was measured first is checked first, because its trials are the oldest. If the
    limit of a checked size changed, all other sizes are checked. If no checked limit changed, a
    size is checked only if its trials show a probable change of the limit.
    """
    name, line = next(iter(lines.items()))
    if not line.check_for_change or line.checks_at_once:
        return None
    sizes = [point.message_bytes for point in finished[name] if not point.checked]
    left = [size for size in sizes if _answered(finished, size)]
    if not left:
        return None
    checked = [point for points in finished.values() for point in points if point.checked]
    if not checked or any(point.result.changed for point in checked):
        return left[0]
    suspicious = (
        size
        for size in left
        if any(
            lines[goal].is_suspicious(point, points)
            for goal, points in finished.items()
            for point in points
            if point.message_bytes == size
        )
    )
    return next(suspicious, None)


def checkers_of(
    lines: Mapping[str, Line], message_bytes: int, finished: Finished
) -> dict[str, Searcher]:
    """Name of a goal → its searcher that checks a finished size for a change."""
    allowance = ALLOWANCE if len(lines) == 1 else SHARED_ALLOWANCE
    first, found = _answered(finished, message_bytes)[0], {}
    for name, line in lines.items():
        point = _point(finished[name], message_bytes)
        found[name] = line.checker(point, finished[name], allowance, name == first)
    return found


def histories_at(finished: Finished, message_bytes: int) -> dict[str, tuple[Observation, ...]]:
    """Name of a goal → its trials at a finished size."""
    return {name: _point(points, message_bytes).history for name, points in finished.items()}


def with_checked(points: Sequence[FinishedPoint], checked: FinishedPoint) -> list[FinishedPoint]:
    """A copy of `points` that contains the point `checked`.

    The point `checked` replaces the point of the same size, or is added if there is no such point.
    """
    if all(each.message_bytes != checked.message_bytes for each in points):
        return [*points, checked]
    return [checked if each.message_bytes == checked.message_bytes else each for each in points]


def _answered(finished: Finished, message_bytes: int) -> list[str]:
    """The names of the goals whose search at a size ended with a boundary point."""
    return [
        name
        for name, points in finished.items()
        for point in points
        if point.message_bytes == message_bytes and isinstance(point.result, Done)
    ]


def _point(points: Sequence[FinishedPoint], message_bytes: int) -> FinishedPoint:
    return next(each for each in points if each.message_bytes == message_bytes)


def run_lines(
    lines: Mapping[str, Line],
    measurer_for: Callable[[int], GoalsMeasurer],
    on_step: OnStep | None = None,
    finished: Finished | None = None,
    begun: Histories | None = None,
    on_point: Callable[[str, FinishedPoint], None] | None = None,
) -> dict[str, list[FinishedPoint]]:
    """Measure the line of each goal. All goals share the trials.

    If the budget is used up, the searches of the remaining sizes end without a limit.

    Args:
        lines: the plan of each goal, by the goal's name. The plan of the first goal sets the order
            of the message sizes.
        measurer_for: returns the measurer of a message size [B].
        on_step: as in `run_goals`.
        finished: for a resumed run, the finished points of each goal, in the order of their
            measurement; None for a new run.
        begun: trials that were already made at the next size, or at the size that is being checked.
        on_point: function that is called for each goal with the name of the goal and its finished
            point. The function is called when the searches of all goals at a message size have
            ended. The function is called again if the limits at this size were checked for a
            change.
    """
    points = {name: list((finished or {}).get(name, ())) for name in lines}
    while True:
        message_bytes = next_size(lines, points)
        is_check = message_bytes is None
        if message_bytes is None:
            message_bytes = next_check(lines, points)
        if message_bytes is None:
            return points
        if is_check:
            searchers = checkers_of(lines, message_bytes, points)
            if not any((begun or {}).values()):
                begun = histories_at(points, message_bytes)
        else:
            searchers = searchers_of(lines, message_bytes, points)
        answers = run_goals(searchers, measurer_for(message_bytes), on_step, begun)
        begun = None
        for name, answer in answers.items():
            ended = FinishedPoint(message_bytes, answer.result, answer.history, is_check)
            points[name] = with_checked(points[name], ended)
            if on_point is not None:
                on_point(name, ended)
