"""What a run leaves beside its trials: boundaries, summary.json, chart, and where they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobs.config import Configuration, describe
from jobs.runs.estimate import TESTBED_CAVEAT
from jobs.runs.reproduce import command_of
from jobs.trials.history import TrialRecord
from metrics.reporting.boundary_chart import write_chart
from metrics.reporting.page.model import build_report, is_held
from metrics.reporting.page.page import report_page
from metrics.reporting.summary import (
    Boundary,
    RunSummary,
    by_goal,
    make_boundary,
    write_atomic,
    write_summary,
)
from metrics.tables.schema import RunRow, utc
from search.errors import GuardStopError, NoConclusionError
from search.line import FinishedPoint
from search.model import GaveUp, Verdict

INTERRUPTED_CODE = 130
NO_CONCLUSION = "no conclusion"
REPORT = "report.html"


@dataclass(frozen=True)
class Ending:
    """How a run ended: `status` and `exit_code` as in summary.json."""

    status: str
    exit_code: int
    error: str | None = None


def ending_of(error: BaseException | None, boundaries: Sequence[Boundary]) -> Ending:
    """How a run ended that raised this, or nothing."""
    if error is None:
        open_points = [b for b in boundaries if b.gave_up is not None]
        if not open_points:
            return Ending("done", 0)
        several = len({b.goal for b in boundaries}) > 1
        told = "; ".join(
            f"{f'{b.goal} at ' if several else ''}{b.bpm} B: {b.gave_up}" for b in open_points
        )
        return Ending(NO_CONCLUSION, NoConclusionError.exit_code, f"no conclusion for {told}")
    if _was_interrupted(error):
        return Ending("interrupted", INTERRUPTED_CODE, "interrupted")
    code = getattr(error, "exit_code", 1)
    if isinstance(error, NoConclusionError):
        return Ending(NO_CONCLUSION, code, str(error))
    status = "stopped by a guard" if isinstance(error, GuardStopError) else "failed"
    return Ending(status, code, f"{error}" or type(error).__name__)


def _was_interrupted(error: BaseException) -> bool:
    """True for an interrupt, and for what broke while one was on its way."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, KeyboardInterrupt):
            return True
        at = at.__cause__ or at.__context__
    return False


def boundary_of(
    point: FinishedPoint,
    records: Iterable[TrialRecord],
    config: Configuration,
    goal: str,
    brokers: int,
) -> Boundary:
    """The boundary of one search, with the reasons of the trial at its overloaded side.

    Args:
        records: all trials of the run, oldest first.
        goal: the goal that was searched for.
    """
    workload, bracket = config.workload, point.result.bracket
    own = [record for record in records if record.bpm == point.bpm]
    judged = [each.judgements[goal] for each in own if each.load == bracket.overloaded]
    overloads = [each for each in judged if each.verdict is Verdict.OVERLOADED]
    last = overloads[-1] if overloads else None
    boundary = make_boundary(
        bracket,
        bpm=point.bpm,
        rate_records_per_s=workload.producer.records_per_s(point.bpm),
        brokers=brokers,
        trials=len(own),
        reasons=last.reasons if last else (),
        limited_by=last.limited_by if last else None,
        gave_up=point.result.reason if isinstance(point.result, GaveUp) else None,
        axis=config.goal.search.axis,
        np=workload.np or 0,
    )
    boundary = replace(boundary, goal=goal, evidence=last.attribution if last else "")
    if isinstance(point.result, GaveUp):
        return boundary
    confidence, notes = point.result.confidence, point.result.notes
    return replace(boundary, confidence=confidence, notes=notes)


def run_row(
    run_id: str,
    event: str,
    at_s: float,
    config: Configuration,
    brokers: int,
    environment: dict[str, str],
    ending: Ending | None = None,
) -> RunRow:
    """A row of the table `runs`; `ending` None while it runs."""
    return RunRow(
        run_id=run_id,
        event=event,
        at=utc(at_s),
        cluster=config.cluster.name,
        workload=config.workload.name,
        goal=config.goal_names,
        brokers=brokers,
        status=ending.status if ending else "running",
        exit_code=ending.exit_code if ending else None,
        error=ending.error if ending else None,
        config=config_text(config),
        environment=environment,
        caveat=caveat_of(config),
    )


def config_text(config: Configuration) -> str:
    """The whole configuration as JSON; it holds references to secrets and no secrets."""
    settings = {kind: describe(getattr(config, kind)) for kind in ("cluster", "workload", "goal")}
    settings |= {f"goal {goal.name}": describe(goal) for goal in config.goals[1:]}
    return json.dumps(settings, default=str, sort_keys=True)


def caveat_of(config: Configuration, shortcomings: Sequence[str] = ()) -> str:
    """What a reader of the figures must know about the cluster and its metrics."""
    own = [TESTBED_CAVEAT] if config.cluster.testbed else []
    return "; ".join([*own, *shortcomings])


def write_results(
    summary: RunSummary,
    folder: Path,
    tables: str,
    trials: Sequence[Mapping[str, Any]] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[tuple[str, str], ...]:
    """Write summary.json, the chart and the report; returns what was left, as (what, where).

    Args:
        trials, settings: as `write_report` takes them; without trials there is no report.
    """
    path = folder / "summary.json"
    write_summary(summary, path)
    drawn = [
        file
        for goal, part in by_goal(summary)
        for file in write_chart(
            part,
            folder / f"boundary{f'-{goal}' if goal else ''}.html",
            folder / f"boundary{f'-{goal}' if goal else ''}.png",
        )
    ]
    files = [("summary", str(path)), *(("chart", str(each)) for each in drawn)]
    if trials is not None:
        write_report(folder / REPORT, summary, trials, settings or {})
        files.insert(0, ("report", str(folder / REPORT)))
    return (*files, ("tables", tables))


def write_report(
    page: Path,
    summary: RunSummary,
    trials: Iterable[Mapping[str, Any]],
    settings: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write the report of a run.

    Args:
        trials: its rows of the table `trials`, as `Row.asDict(recursive=True)` gives them.
        settings: its configuration, as `jobs.runs.results.config_text` records it.
    """
    rows = list(trials)
    held = [(row["bpm"], row["load"] or row["np"]) for row in rows] if is_held(summary) else []
    command = command_of(settings, held)
    write_atomic(page, report_page(build_report(summary, rows, settings, command)))
