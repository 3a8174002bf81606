"""The content of a report as plain values, made from rows without Spark; `page` renders it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metrics.reporting.impact import impact_of
from metrics.reporting.kafka_tools import kafka_commands
from metrics.reporting.limit_answer import SizeAnswer, answer_of, headline
from metrics.reporting.older_runs import LIMIT, inferred_measurement
from metrics.reporting.page.binding import Binding, Ceilings, binding_of, ceilings_of
from metrics.reporting.page.facts import (
    FactGroup,
    configuration_of,
    environment_of,
    key_facts,
    seconds_between,
)
from metrics.reporting.page.series import Panels
from metrics.reporting.page.trials import ListedTrial, listed_trials
from metrics.reporting.summary import RunSummary, by_goal
from metrics.tables.boundary import Boundary
from metrics.trial.state import ALL_BROKERS
from metrics.trial.trial import Trial
from metrics.units import format_count, format_duration, format_size


@dataclass(frozen=True)
class Command:
    """The command that reproduces the run.

    Attributes:
        lines: lines of a shell command; the page joins them by a backslash.
        notes: further requirements, a sentence each.
    """

    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class GoalPart:
    """The answers for one goal.

    Attributes:
        goal: name of the goal.
        summary: the run's summary, restricted to this goal.
        headline: all sizes in a sentence; empty if there is only one.
        answers: one answer for each message size.
        bindings: the limiting resource of each size.
        checks: size → lines of a script that checks its limit with Kafka's own tools.
    """

    goal: str
    summary: RunSummary
    headline: str
    answers: tuple[SizeAnswer, ...]
    bindings: tuple[Binding, ...]
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        title: purpose of the run.
        summary: summary of the whole run.
        series: readings of the trials over time, as far as they are known.
        held: verdicts of a run that held fixed loads, in a sentence; empty after a search.
        parts: the answers, a part for each goal.
        impact: what the run did to other clients, a sentence each; empty without others.
        trials: trials in chronological order.
        facts: the most important facts about the run, as (name, value).
        environment, configuration: all facts and all keys, in groups.
        command: command that reproduces the run, or None if its configuration is not known.
    """

    title: str
    summary: RunSummary
    parts: tuple[GoalPart, ...]
    trials: tuple[ListedTrial, ...]
    facts: tuple[tuple[str, str], ...]
    environment: tuple[FactGroup, ...]
    configuration: tuple[FactGroup, ...]
    command: Command | None = None
    held: str = ""
    impact: tuple[str, ...] = ()
    series: Panels = field(default_factory=dict)

    @property
    def has_closed_loop(self) -> bool:
        """True if a trial sent in a closed loop."""
        return any(each.trial.pattern.producer.closed_loop for each in self.trials)

    @property
    def goals(self) -> tuple[str, ...]:
        """The goals by name."""
        return tuple(part.goal for part in self.parts)


def build_report(
    summary: RunSummary,
    trials: Sequence[Trial],
    configuration: Mapping[str, Mapping[str, Any]],
    command: Command | None = None,
    series: Panels | None = None,
) -> Report:
    """Build the report of a run.

    Args:
        trials: all trials of the run.
        configuration: cluster, workload and goal, each key → value, as in the table `runs`;
            empty if not known.
        series: readings over time by trial, if they were read.
    """
    rows = listed_trials(trials, summary.boundaries)
    ceilings = {
        str(keys.get("name", "")): ceilings_of(keys)
        for kind, keys in configuration.items()
        if kind.partition(" ")[0] == "goal"
    }
    held = _held(summary, rows)
    what = "Traffic held on" if held else "Throughput limit of"
    return Report(
        title=f"{what} {summary.cluster} with {summary.workload}",
        summary=summary,
        parts=tuple(_part(part, rows, ceilings) for _, part in by_goal(summary) if part.boundaries),
        trials=rows,
        facts=(*_run_facts(summary, rows), *key_facts(summary, configuration)),
        environment=environment_of(summary.environment),
        configuration=configuration_of(configuration),
        command=command,
        held=held,
        impact=(summary.impact or impact_of(trials)).sentences,
        series=series or {},
    )


def is_held(summary: RunSummary) -> bool:
    """True for a run that held fixed loads, and False for a search."""
    measurement = summary.measurement or inferred_measurement(
        bool(summary.boundaries), summary.trials, summary.status
    )
    return measurement != LIMIT


def _held(summary: RunSummary, trials: Sequence[ListedTrial]) -> str:
    if not is_held(summary) or not trials:
        return ""
    verdicts = [trial.verdict for trial in trials]
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
    return f"Fixed loads were held in {len(trials)} trials: {counts}."


def _part(
    summary: RunSummary, trials: Sequence[ListedTrial], ceilings: Mapping[str, Ceilings]
) -> GoalPart:
    boundaries: tuple[Boundary, ...] = summary.boundaries
    is_whole = boundaries[0].state == ALL_BROKERS
    goal = (boundaries[0].goal if is_whole else "") or summary.goal
    return GoalPart(
        goal=goal,
        summary=summary,
        headline=headline(boundaries, summary.brokers),
        answers=tuple(map(answer_of, boundaries)),
        bindings=tuple(
            binding_of(each, trials, ceilings.get(each.goal or summary.goal, {}))
            for each in boundaries
        ),
        checks={
            format_size(each.message_bytes): lines
            for each in boundaries
            if (lines := kafka_commands(each, summary.brokers))
        },
    )


def _run_facts(summary: RunSummary, trials: Sequence[ListedTrial]) -> tuple[tuple[str, str], ...]:
    lasted_s = seconds_between(summary.started_at, summary.finished_at)
    return (
        ("Run", summary.run_id),
        ("Cluster", summary.cluster),
        ("Workload", summary.workload),
        ("Goal", summary.goal),
        ("Started", summary.started_at),
        ("Took", format_duration(lasted_s)),
        ("Trials", format_count(len(trials))),
    )
