"""The start of a search: the load before it, and the first load that follows from its reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from jobs.config import Goal
from jobs.trials.context import RunContext
from jobs.trials.gates import Gates
from jobs.trials.point_topics import PointTopics
from jobs.trials.warm_up import warm_up_pattern
from metrics.trial.warm_up import WarmUp
from search.line import Line


def warmed_lines(
    lines: Mapping[str, Line],
    context: RunContext,
    topics: PointTopics,
    gates: Gates,
    message_bytes: int,
) -> dict[str, Line]:
    """Load the brokers at the size that is measured first; the lines that begin at its reading.

    Args:
        lines: the searched lines, by the goal's name.
        topics: the topics on which the search begins.
    """
    load_max_s = context.config.cluster.warm_up_max_s
    if not load_max_s:
        return dict(lines)
    gates.warm(topics.open(warm_up_pattern(context, message_bytes, load_max_s)))
    return hinted_lines(lines, context.history.warm_up, context.config.goals)


def hinted_lines(
    lines: Mapping[str, Line], warm_up: WarmUp, goals: Iterable[Goal]
) -> dict[str, Line]:
    """The lines whose first load follows from the reading of a warm-up."""
    idle_min = {goal.name: goal.indicators.request_handler_idle_min for goal in goals}
    return {name: replace(line, hint=warm_up.hint(idle_min[name])) for name, line in lines.items()}
