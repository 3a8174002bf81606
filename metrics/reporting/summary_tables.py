"""The answer of a run, read back from the tables: what summary.json holds, on any Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from metrics.reporting.summary import Boundary, RunSummary
from metrics.tables.store import TableStore
from metrics.tables.views import newest_points
from metrics.units import iso_utc
from search.errors import ConfigError

RUNS_NAMED = 5
"""How many runs an error message names."""


def read_summary(tables: TableStore, run_id: str = "") -> RunSummary:
    """The summary of a run from its rows.

    Args:
        tables: where the run left its rows.
        run_id: the run; empty for the newest that has a boundary point.

    Raises:
        ConfigError: there is no such run, or no run with a boundary point.
    """
    run = _run(tables, run_id)
    own = tables.read("boundaries", run["run_id"])
    points = [row.asDict(recursive=True) for row in newest_points(own).orderBy("bpm").collect()]
    replicas, groups = _pattern(tables, run["run_id"])
    return RunSummary(
        run_id=run["run_id"],
        started_at=iso_utc(run["started_s"]),
        finished_at=iso_utc(run["at_s"]),
        cluster=run["cluster"],
        workload=run["workload"],
        goal=run["goal"],
        boundaries=tuple(_boundary(point) for point in _in_order(points, run["goal"])),
        brokers=run["brokers"] or 0,
        status=run["status"],
        exit_code=run["exit_code"] or 0,
        error=run["error"],
        caveat=run["caveat"] or "",
        environment=run["environment"] or {},
        replication_factor=replicas,
        consumer_groups=groups,
    )


def _run(tables: TableStore, run_id: str) -> dict[str, Any]:
    """The run's last row, its end if there is one, with `started_s` and `at_s` [s]."""
    from pyspark.sql import functions as sql

    if not run_id:
        newest = tables.read("boundaries").select(sql.max_by("run_id", "at")).collect()
        run_id = newest[0][0] or ""
    at_s = (sql.unix_micros("at") / 1e6).alias("at_s")
    found = tables.read("runs", run_id).select("*", at_s).collect()
    if not found:
        raise ConfigError(_no_run(tables, run_id))
    # A resumed run has several rows of each event.
    last = max(found, key=lambda row: (row["event"] == "finished", row["at_s"]))
    return last.asDict(recursive=True) | {"started_s": min(row["at_s"] for row in found)}


def _no_run(tables: TableStore, run_id: str) -> str:
    from pyspark.sql import functions as sql

    newest = tables.read("runs").groupBy("run_id").agg(sql.max("at").alias("at"))
    last = [row[0] for row in newest.orderBy(sql.col("at").desc()).limit(RUNS_NAMED).collect()]
    return (
        f"there is no {f'run {run_id}' if run_id else 'run with a boundary point'} in "
        f"{tables.address('runs')}; expected the id of a run, such as one of the last: "
        f"{', '.join(last) or 'none'}; correct it, or find a limit with redline find-limit"
    )


def _pattern(tables: TableStore, run_id: str) -> tuple[int, int]:
    """Replicas and consumer groups that the run's trials had; 0 replicas when unknown."""
    names = ("replication_factor", "consumer_groups")
    told = tables.read("trials", run_id).select(*names).limit(1).collect()
    return (told[0][0] or 0, told[0][1] or 0) if told else (0, 0)


def _in_order(points: list[dict[str, Any]], goals: str) -> list[dict[str, Any]]:
    """By goal as the run named them, then by size."""
    order = [name.strip() for name in goals.split(",")]
    return sorted(points, key=lambda p: order.index(p["goal"]) if p["goal"] in order else -1)


def _boundary(row: Mapping[str, Any]) -> Boundary:
    """A boundary of its row; what a version did not know yet has its default."""
    known = {each.name: row.get(each.name) for each in fields(Boundary)}
    lists = {name: tuple(known[name] or ()) for name in ("overload_reasons", "notes")}
    texts = {"evidence": known["evidence"] or "", "axis": known["axis"] or "np"}
    return Boundary(**(known | lists | texts))
