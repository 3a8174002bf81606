"""The progress of a search: what it does next, and how many trials are left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jobs.trials.measure import SearchProgress
from search.forecast import trials_left
from search.line import FinishedPoint, Line
from search.loop import Histories
from search.model import Decision, Measure


def progress_updater(
    progress: SearchProgress,
    lines: Mapping[str, Line],
    finished: Mapping[str, Sequence[FinishedPoint]],
) -> Callable[[Decision, Histories], None]:
    """A callback that keeps `progress` up to date, for `on_step` of `run_lines` and `run_goals`.

    Args:
        progress: the object that the measurer of the trials reads.
        lines: the searched lines, by the goal's name.
        finished: the finished points of each goal; the caller may append to them.
    """

    def update(decision: Decision, histories: Histories) -> None:
        progress.checks = isinstance(decision, Measure) and decision.checks
        if isinstance(decision, Measure):
            progress.reason = decision.reason
            progress.trials_left = max(
                trials_left(line, finished[goal], histories[goal]) for goal, line in lines.items()
            )

    return update
