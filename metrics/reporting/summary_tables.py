"""The summary of a run, read from the Delta tables with any Spark session."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from metrics.columns import restored
from metrics.common.errors import ConfigError
from metrics.reporting.summary import RunSummary
from metrics.tables.boundary import Boundary
from metrics.tables.store import TableStore
from metrics.trial.trial import place_of
from metrics.units import iso_utc

RUNS_NAMED = 5
"""Maximum number of runs that an error message lists."""


def read_summary(tables: TableStore, run_id: str = "") -> RunSummary:
    """Read the summary of a run.

    Args:
        tables: the tables with the run's rows.
        run_id: id of the run; empty to read the newest run that has a boundary point.

    Raises:
        ConfigError: the run does not exist, or no run has a boundary point.
    """
    runs = _runs(tables, run_id)
    points = tables.read("boundaries", runs[0]["run_id"]).collect()
    return summary_of(runs, [row.asDict(recursive=True) for row in points])


def summary_of(
    runs: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]]
) -> RunSummary:
    """Combine the rows of a run into its summary.

    Args:
        runs: the run's rows of the table `runs`, at least one, as `Row.asDict(recursive=True)`
            returns them. A killed run has no row for its end. A resumed run has several rows for
            its starts and ends.
        points: the run's rows of the table `boundaries`. For each message size and goal, only the
            newest row is used.
    """
    ordered = sorted(runs, key=lambda row: row["at"])
    ends = [row for row in ordered if row["event"] == "finished"]
    last = ends[-1] if ends else ordered[-1]
    workload = configuration_of_row(last).get("workload", {})
    goals = [name.strip() for name in last["goal"].split(",")]
    newest = {
        (row["goal"], row.get("state"), row["bpm"]): row
        for row in sorted(points, key=lambda row: row["at"])
    }
    boundaries = sorted(
        (restored(Boundary, row) for row in newest.values()),
        key=lambda each: (_place(each.goal, goals), place_of(each.state), each.message_bytes),
    )
    own = {"replication_factor": workload.get("topic.replication_factor", 0)}
    if boundaries and not boundaries[0].parts:  # existing topics may have other options
        own |= boundaries[0].pattern
    of_run = {
        **last,
        "started_at": iso_utc(ordered[0]["at"].timestamp()),
        "finished_at": iso_utc(ends[-1]["at"].timestamp()) if ends else "",
        "replication_factor": own.get("replication_factor"),
        "consumer_groups": workload.get("consumers.groups"),
    }
    return replace(restored(RunSummary, of_run), boundaries=tuple(boundaries))


def configuration_of_row(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The configuration in a row of `runs`; empty if the row has no configuration."""
    kept: dict[str, dict[str, Any]] = json.loads(row["config"] or "{}")
    return kept


def _place(goal: str, goals: Sequence[str]) -> int:
    return goals.index(goal) if goal in goals else len(goals)


def _runs(tables: TableStore, run_id: str) -> list[dict[str, Any]]:
    """The rows of the table `runs` for this run, or for the newest run with a boundary point."""
    from pyspark.sql import functions as sql

    if not run_id:
        newest = tables.read("boundaries").select(sql.max_by("run_id", "at")).collect()
        run_id = newest[0][0] or ""
    found = tables.read("runs", run_id).collect()
    if not found:
        raise ConfigError(_no_run(tables, run_id))
    return [row.asDict(recursive=True) for row in found]


def _no_run(tables: TableStore, run_id: str) -> str:
    from pyspark.sql import functions as sql

    newest = tables.read("runs").groupBy("run_id").agg(sql.max("at").alias("at"))
    last = [row[0] for row in newest.orderBy(sql.col("at").desc()).limit(RUNS_NAMED).collect()]
    return (
        f"there is no {f'run {run_id}' if run_id else 'run with a boundary point'} in "
        f"{tables.address('runs')}; expected the id of a run; the newest runs are "
        f"{', '.join(last) or 'none'}; correct it, or find a limit with redline find-limit"
    )
