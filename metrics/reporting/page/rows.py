"""A run's summary from the tables alone, for whoever has no summary.json at hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from metrics.reporting.summary import Boundary, RunSummary
from metrics.units import iso_utc


def summary_of(
    runs: Sequence[Mapping[str, Any]], boundaries: Iterable[Mapping[str, Any]]
) -> RunSummary:
    """The summary of a run.

    Args:
        runs: its rows of the table `runs`, at least one, as `Row.asDict(recursive=True)`
            gives them.
        boundaries: its rows of the table `boundaries`; of one size and goal the newest counts.
    """
    ordered = sorted(runs, key=lambda row: row["at"])
    ends = [row for row in ordered if row["event"] == "finished"]
    last = ends[-1] if ends else ordered[-1]
    topic = configuration_of_row(last).get("workload", {})
    newest = {
        (row["goal"], row["bpm"]): row for row in sorted(boundaries, key=lambda row: row["at"])
    }
    goals = last["goal"].split(",")
    order = sorted(newest.values(), key=lambda row: (_place(row["goal"], goals), row["bpm"]))
    return RunSummary(
        run_id=last["run_id"],
        started_at=iso_utc(ordered[0]["at"].timestamp()),
        finished_at=iso_utc(ends[-1]["at"].timestamp()) if ends else "",
        cluster=last["cluster"],
        workload=last["workload"],
        goal=last["goal"],
        boundaries=tuple(_boundary(row) for row in order),
        brokers=last["brokers"] or 0,
        status=last["status"],
        exit_code=last["exit_code"] or 0,
        error=last["error"],
        caveat=last["caveat"] or "",
        environment=dict(last["environment"] or {}),
        replication_factor=int(topic.get("topic.replication_factor", 0)),
        consumer_groups=int(topic.get("consumers.groups", 0)),
    )


def configuration_of_row(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The configuration that a row of `runs` keeps; empty where it keeps none."""
    kept: dict[str, dict[str, Any]] = json.loads(row["config"] or "{}")
    return kept


def _place(goal: str, goals: Sequence[str]) -> int:
    return goals.index(goal) if goal in goals else len(goals)


def _boundary(row: Mapping[str, Any]) -> Boundary:
    known = {each.name: row[each.name] for each in fields(Boundary) if each.name in row}
    lists = {name: tuple(row.get(name) or ()) for name in ("overload_reasons", "notes")}
    # Columns that an older version did not write are null, and the defaults are what it meant.
    meant = {name: value for name, value in known.items() if value is not None or name in _NULLS}
    return Boundary(**(meant | lists))


_NULLS = {"np_overloaded", "limited_by"}
