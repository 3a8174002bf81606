"""What a run leaves beside its trials: boundaries, summary.json, chart, and where they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jobs.config import Configuration, Goal
from jobs.runs.artifacts import ArtifactWriter
from jobs.runs.estimate import confirmation_of
from jobs.runs.lifecycle import RunState
from jobs.runs.outcome import RunOutcome
from jobs.runs.reproduce import command_of
from metrics.judging.attribution_votes import (
    VOTING_LOAD_RATIO_MAX,
    AttributionVote,
    combine_votes,
    contradiction,
)
from metrics.reporting.boundary_chart import write_chart
from metrics.reporting.files import write_atomic
from metrics.reporting.limit_words import doubt_words
from metrics.reporting.page.model import build_report, is_held
from metrics.reporting.page.page import report_page
from metrics.reporting.page.series import Panels
from metrics.reporting.summary import RunSummary, by_goal, trial_document, write_summary
from metrics.tables.boundary import Boundary, make_boundary
from metrics.tables.store import TableStore
from metrics.trial.histogram import Quantiles
from metrics.trial.series import RunSeries
from metrics.trial.state import ALL_BROKERS
from metrics.trial.trial import Trial
from metrics.units import format_duration
from search.confirming import describe_failure, split_history
from search.line import FinishedPoint
from search.model import Bracket, Done, GaveUp, Verdict

REPORT = "report.html"


def boundary_of(
    point: FinishedPoint,
    trials: Iterable[Trial],
    config: Configuration,
    goal: str,
    brokers: int,
    state: str = ALL_BROKERS,
) -> Boundary:
    """The boundary of one search, with the reasons of the trial at its overloaded side.

    What bound the brokers all overloads near the limit say.

    Args:
        trials: all of the run, oldest first.
        goal: the goal that was searched for.
        state: of the cluster, in which it was searched.
    """
    bracket = point.result.bracket
    own = [
        each
        for each in trials
        if each.point_message_bytes == point.message_bytes and each.state == state
    ]
    over = _last(own, goal, bracket.overloaded, Verdict.OVERLOADED)
    last = over.judgements[goal] if over else None
    held = _last(own, goal, bracket.sustained, Verdict.SUSTAINED)
    told = _near_limit(own, bracket, config, goal)
    bound = combine_votes(told, "overloads near the limit")
    boundary = make_boundary(
        bracket,
        config.axis,
        config.workload.pattern(point.message_bytes, brokers),
        trials=len(own),
        reasons=last.reasons if last else (),
        limited_by=bound.resource if bound else None,
        gave_up=point.result.reason if isinstance(point.result, GaveUp) else None,
        interval=point.result.interval,
    )
    latency = held.evidence.client.latency if held else Quantiles()
    notes = (
        *_nothing_sustained(point.result, config),
        *_contradiction(told),
        *_held(point, own, config, goal),
        *_beside_others(own),
    )
    boundary = replace(
        boundary,
        goal=goal,
        evidence=bound.text if bound else "",
        notes=notes,
        state=state,
        interval_max=config.goal_named(goal).search.widest_interval,
        latency_p50_ms=_known(latency.p50_ms),
        latency_p99_ms=_known(latency.p99_ms),
        latency_p999_ms=_known(latency.p999_ms),
        broker_resident_bytes=held.evidence.broker_resident_bytes if held else None,
        page_cache_bytes=held.evidence.page_cache_bytes if held else None,
    )
    if isinstance(point.result, GaveUp):
        return boundary
    result = point.result
    return replace(
        boundary,
        confidence=result.confidence,
        notes=(*result.notes, *notes),
        confirmed_s=result.confirmed_s,
    )


def why_no_answer(boundary: Boundary, goal: Goal) -> str:
    """Why a point is no answer to its goal; empty where it is one."""
    if boundary.gave_up is not None:
        return boundary.gave_up
    return doubt_words(boundary) if goal.search.interval_required else ""


def _last(trials: Sequence[Trial], goal: str, load: int | None, verdict: Verdict) -> Trial | None:
    """The last of the trials at a load of which the goal says so."""
    found = [
        each for each in trials if each.load == load and each.judgements[goal].verdict is verdict
    ]
    return found[-1] if found else None


def _known(time_ms: float) -> float | None:
    return time_ms if math.isfinite(time_ms) else None


def _near_limit(
    trials: Iterable[Trial], bracket: Bracket, config: Configuration, goal: str
) -> tuple[AttributionVote, ...]:
    """What the overloads from the bracket's overloaded side on say, the nearer the more."""
    lowest = bracket.overloaded
    if lowest is None:
        return ()
    return tuple(
        AttributionVote(each.judgements[goal], config.axis.amount(each.load), lowest / each.load)
        for each in trials
        if each.judgements[goal].verdict is Verdict.OVERLOADED
        and lowest <= each.load <= lowest * VOTING_LOAD_RATIO_MAX
    )


def _contradiction(told: Sequence[AttributionVote]) -> tuple[str, ...]:
    text = contradiction(told)
    return (text,) if text else ()


def _nothing_sustained(result: Done | GaveUp, config: Configuration) -> tuple[str, ...]:
    """That a limit of 0 says more of the cluster or of the goal than of the load."""
    over = result.bracket.overloaded
    if result.bracket.sustained > 0 or over is None or isinstance(result, GaveUp):
        return ()
    least = config.axis.amount(over)
    text = (
        f"even {least} were too much: this is no capacity but a cluster that is overloaded by "
        "something else, or a goal that it cannot meet; read the reasons"
    )
    return (text,)


def _held(
    point: FinishedPoint, trials: Sequence[Trial], config: Configuration, goal: str
) -> tuple[str, ...]:
    """How long limits of this point were held, and from when on and why one did not last."""
    told = split_history(point.history, confirmation_of(config.workload, config.goal_named(goal)))
    notes = []
    for hold in told.failed:
        over = [
            each.judgements[goal]
            for each in trials
            if each.held
            and each.load == hold.load
            and each.judgements[goal].verdict is Verdict.OVERLOADED
        ]
        why = f": {over[-1].reasons[0].text}" if over and over[-1].reasons else ""
        amount = config.axis.amount(hold.load)
        notes.append(f"{amount} did not last, {describe_failure(hold)}{why}")
    if isinstance(point.result, Done) and point.result.confirmed_s is not None and told.last:
        hold = told.last
        notes.append(
            f"held for {format_duration(hold.held_s)} of load in {len(hold.valid)} windows, "
            f"{len(hold.overloads) or 'none'} of them overloaded"
        )
    return tuple(notes)


def _beside_others(trials: Sequence[Trial]) -> tuple[str, ...]:
    """That the brokers were not ours alone, where they were not."""
    told = [trial.evidence.others for trial in trials if trial.evidence.others is not None]
    loads = [each for each in told if each.is_worth_telling]
    if not loads:
        return ()
    most = max(loads, key=lambda each: each.messages_per_s)
    return (f"measured beside {most.text} of others, who may take more or less at other times",)


def summary_of_run(
    run: RunState,
    config: Configuration,
    outcome: RunOutcome,
    boundaries: Sequence[Boundary] = (),
    trials: Sequence[Trial] = (),
) -> RunSummary:
    """What a run concluded: of a search its boundary points, of fixed loads their trials."""
    started_at, finished_at = run.times
    return RunSummary(
        run_id=run.order.run_id,
        started_at=started_at,
        finished_at=finished_at,
        cluster=config.cluster.name,
        workload=config.workload.name,
        goal=config.goal_names,
        boundaries=tuple(boundaries),
        brokers=run.brokers,
        status=outcome.status,
        exit_code=outcome.exit_code,
        error=outcome.error,
        caveat=run.caveat(config),
        environment=run.environment,
        replication_factor=config.workload.topic.replication_factor,
        consumer_groups=config.workload.consumers.groups,
        trials=tuple(map(trial_document, trials)),
    )


def write_results(
    summary: RunSummary,
    folder: Path,
    tables: str,
    trials: Sequence[Trial] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    series: Panels | None = None,
    json_file: Path | None = None,
) -> ArtifactWriter:
    """Write summary.json, the chart and the report, each whether or not the others could be.

    Args:
        trials, settings, series: as `write_report` takes them; trials None of a run that opened
            no tables, which has no report either.
        json_file: where the summary is written besides; None for nowhere.
    """
    files, path, page = ArtifactWriter(), folder / "summary.json", folder / REPORT
    files.write_answer_file("summary", path, json_file, partial(write_summary, summary))
    for goal, part in by_goal(summary):
        drawn = folder / f"boundary{f'-{goal}' if goal else ''}.html"
        picture = drawn.with_suffix(".png")
        is_left = part.boundaries and files.write(
            "chart", drawn, partial(write_chart, part, drawn, picture)
        )
        if is_left and picture.exists():  # which needs what draws pictures
            files.written.append(("chart", str(picture)))
    if trials is not None:
        files.write(
            "report", page, lambda: write_report(page, summary, trials, settings or {}, series)
        )
        files.written.append(("tables", tables))
    files.written.sort(key=lambda each: each[0] != "report")  # what a reader opens comes first
    return files


def write_report(
    page: Path,
    summary: RunSummary,
    trials: Sequence[Trial],
    settings: Mapping[str, Mapping[str, Any]],
    series: Panels | None = None,
) -> None:
    """Write the report of a run.

    Args:
        trials: all that it made.
        series: their readings over time, see `metrics.reporting.page.series.panels_of_run`.
        settings: its configuration, as `jobs.runs.resumption.config_text` records it.
    """
    held = [(each.pattern.message_bytes, each.load) for each in trials] if is_held(summary) else []
    command = command_of(settings, held)
    write_atomic(page, report_page(build_report(summary, trials, settings, command, series)))


def series_from(tables: TableStore, run_id: str, trials: Sequence[Trial]) -> RunSeries:
    """What the tables have of these trials' readings over time."""
    series = RunSeries()
    samples = tables.samples_of(run_id)
    for trial in trials:
        series.add(trial, samples.get(trial.number, ()))
    return series
