"""The answer of a sweep, from the rows of its runs in the Delta tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.campaigns.campaign import measurement_named
from jobs.features.sweep.cases import CONCLUDED, results_of
from metrics.common.errors import ConfigError
from metrics.comparing.figures import Result, values_of
from metrics.features.sweep.answer import SweepAnswer
from metrics.reporting.summary import RunSummary, inferred_measurement, trial_document
from metrics.reporting.summary_tables import summary_of
from metrics.tables.rows import trial_from
from metrics.tables.store import TableStore
from metrics.traffic.axes import NP

Row = Mapping[str, Any]


def read_sweep(tables: TableStore, sweep_id: str = "") -> SweepAnswer:
    """Read the answer of a sweep from its tables. `description` and `published` are empty, because
    no table contains them.

    Args:
        tables: the tables with the rows of the sweep's runs.
        sweep_id: the id of the sweep; empty for the newest sweep.

    Raises:
        ConfigError: the tables contain no such sweep.
    """
    rows = _rows(tables, sweep_id)
    runs = sorted({row["run_id"] for row in rows})
    points = _rows_of_runs(tables, "boundaries", runs)
    with_points = {row["run_id"] for row in points}
    held = _rows_of_runs(tables, "trials", [each for each in runs if each not in with_points])
    return answer_from(rows, points, held)


def _rows(tables: TableStore, sweep_id: str) -> list[Row]:
    from pyspark.sql import functions as sql

    frame = tables.read("runs")
    has_any = "sweep_id" in frame.columns  # tables of older versions lack the column
    if has_any and not sweep_id:
        newest = frame.where("sweep_id is not null").select(sql.max_by("sweep_id", "at"))
        sweep_id = newest.collect()[0][0] or ""
    found = frame.where(sql.col("sweep_id") == sweep_id).collect() if has_any and sweep_id else []
    if not found:
        raise ConfigError(
            f"{tables.address('runs')} has no {f'sweep {sweep_id}' if sweep_id else 'sweep'}; "
            "expected the id of a sweep that redline sweep wrote to these tables; correct the id"
        )
    return [row.asDict(recursive=True) for row in found]


def _rows_of_runs(tables: TableStore, table: str, run_ids: Sequence[str]) -> list[Row]:
    if not run_ids:
        return []
    frame = tables.read(table)
    return [
        row.asDict(recursive=True) for row in frame.where(frame.run_id.isin(*run_ids)).collect()
    ]


def answer_from(runs: Sequence[Row], points: Sequence[Row], trials: Sequence[Row]) -> SweepAnswer:
    """Combine the table rows of a sweep's runs into the answer of the sweep.

    Args:
        runs: rows of the table `runs` for all runs of one sweep.
        points: rows of the table `boundaries` for these runs.
        trials: rows of the table `trials` for the runs that have no row in `boundaries`.
    """
    recorded = [row["measurement"] for row in runs if row.get("measurement")]
    asks = recorded[0] if recorded else inferred_measurement(bool(points), trials, "done")
    measurement = measurement_named(asks)
    found: list[Result] = []
    seen: set[tuple[str, int]] = set()
    for row, summary in _summaries(runs, points, trials):
        turn = (row["case"], row["repeat"])
        if summary.status in CONCLUDED and turn not in seen:
            seen.add(turn)
            found.extend(results_of(measurement, row["settings"], row["repeat"], summary))
    first, last = min(runs, key=lambda r: r["at"]), max(runs, key=lambda r: r["at"])
    summary, axes = summary_of([last], []), {row["axis"] for row in points}
    return SweepAnswer(
        first["sweep_id"],
        summary_of([first], []).started_at,
        summary.finished_at or summary.started_at,
        "done" if found else "no conclusion",
        0 if found else 3,
        None if found else "none of the sweep's runs came to a conclusion",
        summary.caveat,
        first["experiment"],
        "",
        "",
        asks,
        measurement.unit_on(axes.pop() if len(axes) == 1 else NP.name),
        measurement.figure,
        values_of([row["settings"] for row in sorted(runs, key=lambda row: row["run_id"])]),
        max(row["repeat"] for row in runs),
        tuple(found),
    )


def _summaries(
    runs: Sequence[Row], points: Sequence[Row], trials: Sequence[Row]
) -> Iterator[tuple[Row, RunSummary]]:
    for run_id in sorted({row["run_id"] for row in runs}):
        own = [row for row in runs if row["run_id"] == run_id]
        summary = summary_of(own, [row for row in points if row["run_id"] == run_id])
        held = sorted((row for row in trials if row["run_id"] == run_id), key=lambda r: r["trial"])
        documents = tuple(trial_document(trial_from(dict(row))) for row in held)
        yield own[0], replace(summary, trials=documents)
