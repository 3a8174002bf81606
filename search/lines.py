"""The measurement of boundary lines: size by size, for one goal or for several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from search.guided import ALLOWANCE
from search.line import FinishedPoint, Line
from search.loop import (
    GoalsMeasurer,
    Histories,
    OnStep,
    SingleGoalMeasurer,
    last_overloaded,
    run_goals,
)
from search.model import Decision, Measurer, Observation, RecoveringMeasurer, Searcher

SHARED_ALLOWANCE = 8
"""Highest number of trials above plain bisection at one size where several goals request them."""

Finished = Mapping[str, Sequence[FinishedPoint]]
"""The finished points of each goal; all goals have finished the same sizes."""


def next_size(lines: Mapping[str, Line], finished: Finished) -> int | None:
    """The size to measure next [B], by the first goal's line; None when it is complete."""
    name, line = next(iter(lines.items()))
    return line.next_message_bytes(finished[name])


def searchers_of(
    lines: Mapping[str, Line], message_bytes: int, finished: Finished
) -> dict[str, Searcher]:
    """The searchers of one size, by the goal's name."""
    allowance = ALLOWANCE if len(lines) == 1 else SHARED_ALLOWANCE
    return {
        name: line.searcher(message_bytes, finished[name], allowance)
        for name, line in lines.items()
    }


def run_lines(
    lines: Mapping[str, Line],
    measurer_for: Callable[[int], GoalsMeasurer],
    on_step: OnStep | None = None,
    finished: Finished | None = None,
    begun: Histories | None = None,
    on_point: Callable[[str, FinishedPoint], None] | None = None,
) -> dict[str, list[FinishedPoint]]:
    """Measure a line for each goal from one set of trials.

    The remaining sizes give up when the budget is used up.

    Args:
        lines: the plan of each goal, by its name; the first one orders the sizes.
        measurer_for: returns the measurer of a message size [B].
        on_step: as in `search.loop.run_goals`.
        finished: points already measured, in their order, when a run is resumed.
        begun: trials already made at the next size.
        on_point: called with every point of every goal once all goals have finished its size.
    """
    points = {name: list((finished or {}).get(name, ())) for name in lines}
    while (message_bytes := next_size(lines, points)) is not None:
        measurer = measurer_for(message_bytes)
        answers = run_goals(searchers_of(lines, message_bytes, points), measurer, on_step, begun)
        begun = None
        histories = {name: answer.history for name, answer in answers.items()}
        if last_overloaded(histories) and isinstance(measurer, RecoveringMeasurer):
            measurer.recover()
        for name, answer in answers.items():
            points[name].append(FinishedPoint(message_bytes, answer.result, answer.history))
            if on_point is not None:
                on_point(name, points[name][-1])
    return points


def run_line(
    line: Line,
    measurer_for: Callable[[int], Measurer],
    on_step: Callable[[Decision, Sequence[Observation]], None] | None = None,
    finished: Sequence[FinishedPoint] = (),
    begun: Sequence[Observation] = (),
    on_point: Callable[[FinishedPoint], None] | None = None,
) -> list[FinishedPoint]:
    """Run `run_lines` for a single goal, as simulations need it."""
    name = "goal"

    def step(decision: Decision, histories: Histories) -> None:
        if on_step is not None:
            on_step(decision, tuple(histories[name]))

    def point(_name: str, ended: FinishedPoint) -> None:
        if on_point is not None:
            on_point(ended)

    points = run_lines(
        {name: line},
        lambda message_bytes: SingleGoalMeasurer(name, measurer_for(message_bytes)),
        step,
        {name: finished},
        {name: begun},
        point,
    )
    return points[name]
