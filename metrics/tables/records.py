"""Rows of the Delta tables as dicts that Arrow takes, from what a run has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timezone
from typing import Any

from metrics.reporting.summary import Boundary
from metrics.sources.sample import BrokerSample
from metrics.tables.cases import CaseRow
from metrics.tables.columns import plain
from metrics.tables.schema import (
    BOUNDARY_SKIP,
    CLIENT_SKIP,
    BoundaryHead,
    RunRow,
    SampleRow,
    Trial,
    TrialHead,
    TrialTail,
    TrialWindow,
    utc,
)
from metrics.windows.use import use_table


def run_record(row: RunRow | CaseRow) -> dict[str, Any]:
    """A row of `runs` or `cases`."""
    record: dict[str, Any] = plain(row)
    return record


def trial_record(trial: Trial) -> dict[str, Any]:
    """A row of `trials`: pattern, client's account and judgement side by side."""
    head = TrialHead(
        trial.run_id, trial.trial, utc(trial.started_at_s), utc(trial.finished_at_s), trial.topic
    )
    tail = TrialTail(
        verdict=trial.judgement.verdict,
        reasons=trial.judgement.reasons,
        limited_by=trial.judgement.limited_by,
        attribution=trial.judgement.attribution,
        utilization=trial.judgement.utilization,
        broker_windows=trial.brokers,
        controller_windows=trial.controllers,
        metrics_source=trial.metrics_source,
        end_offset_growth_records=trial.end_offset_growth_records,
        resources=use_table(trial.brokers),
        recovery_s=trial.recovery_s,
        verdicts=trial.verdicts,
    )
    client = {k: v for k, v in plain(trial.client).items() if k not in CLIENT_SKIP}
    window = TrialWindow(utc(trial.client.start_s), utc(trial.client.end_s))
    return {**plain(head), **plain(trial.pattern), **plain(window), **client, **plain(tail)}


def sample_record(run_id: str, trial: int, sample: BrokerSample) -> dict[str, Any]:
    """A row of `samples`."""
    row = SampleRow(run_id, trial, sample.broker_id, utc(sample.at_s), sample.error, sample.values)
    record: dict[str, Any] = plain(row)
    return record


def boundary_record(
    run_id: str, at_s: float, names: tuple[str, str, str], boundary: Boundary
) -> dict[str, Any]:
    """A row of `boundaries`; `names` are those of cluster, workload and goal."""
    own = {k: v for k, v in plain(boundary).items() if k not in BOUNDARY_SKIP}
    return {**plain(BoundaryHead(run_id, utc(at_s), *names)), **own}


def case_row(row: Mapping[str, Any]) -> CaseRow:
    """A row of `cases` as `Row.asDict(recursive=True)` gives it."""
    known = {item.name: row[item.name] for item in fields(CaseRow)}
    lists = ("trials", "values", "verdicts", "nights")
    filled = {name: tuple(known[name] or ()) for name in lists}
    maps = {name: dict(known[name] or {}) for name in ("environment", "settings")}
    texts = {name: known[name] or "" for name in ("evidence", "text")}
    at = known["at"].astimezone(timezone.utc)
    duration_s = known["duration_s"] or 0.0
    return CaseRow(**{**known, **filled, **maps, **texts, "at": at, "duration_s": duration_s})
