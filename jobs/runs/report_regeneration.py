"""The regeneration of a run's report from the Delta tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.console.events import Level, Notice, PhaseStarted
from jobs.console.printing import make_reporter
from jobs.runs.recorded_runs import explaining_missing_tables, unknown_run_error
from jobs.runs.results import REPORT, series_from, write_report
from jobs.runs.run_lock import is_locked
from jobs.spark.session import close_session, local_session
from metrics.common.errors import ConfigError
from metrics.reporting.page.series import panels_of_run
from metrics.reporting.summary import load_summary, write_summary
from metrics.reporting.summary_tables import configuration_of_row, summary_of
from metrics.tables.store import TableStore
from metrics.trial.trial import Trial

RUNNING = "running"
KILLED = (
    "the driver was killed; all finished trials are kept, and redline find-limit --resume {} "
    "continues the run"
)

Rows = list[dict[str, Any]]


def regenerate_report(run_id: str, out: Path, tables: str | None, target: Path | None) -> None:
    """Write the report of a run again, and its summary if that is missing.

    Args:
        out: the folder of all runs.
        tables: path or catalog name of the Delta tables; None for a folder in `out`.
        target: the file of the report; None for the one in the run's folder.

    Raises:
        ConfigError: the tables do not exist or do not contain the run, or the report cannot be
            written.
    """
    if tables is None and not (out / "tables").is_dir():  # checked before Spark starts
        raise ConfigError(
            f"{out / 'tables'} does not exist; expected the tables of a redline run; name the "
            "run's --out or --tables"
        )
    folder = out.absolute() / run_id
    page = target.absolute() if target else folder / REPORT
    with make_reporter() as reporter:
        reporter.report(PhaseStarted("reading the Delta tables"))
        spark = local_session()
        try:
            store = TableStore(spark, tables or str(out.absolute() / "tables"))
            runs, boundaries, trials = read_rows(store, run_id)
            series = panels_of_run(series_from(store, run_id, trials), trials)
        finally:
            close_session(spark)
        summary = summary_of(runs, boundaries)
        kept = folder / "summary.json"
        if kept.exists():
            summary = load_summary(kept)
        elif target is None:  # it could not be written at the run's end
            write_summary(summary, kept)
            reporter.report(Notice(Level.NOTE, f"summary: {kept}"))
        if summary.status == RUNNING and folder.is_dir() and not is_locked(folder):
            summary = replace(summary, status="killed", error=KILLED.format(run_id))
        write_report(page, summary, trials, configuration_of_row(runs[-1]), series)
        reporter.report(Notice(Level.NOTE, f"report: {page}"))


def read_rows(store: TableStore, run_id: str) -> tuple[Rows, Rows, list[Trial]]:
    """The rows of a run in the tables `runs` and `boundaries`, and its trials.

    Raises:
        ConfigError: the tables do not exist, or do not contain the run.
    """
    with explaining_missing_tables(store):
        runs = store.read("runs", run_id).orderBy("at").collect()
        if not runs:
            raise unknown_run_error(store, run_id)
        boundaries = store.boundaries(run_id).collect()
        return (
            [row.asDict(recursive=True) for row in runs],
            [row.asDict(recursive=True) for row in boundaries],
            store.trials_of(run_id),
        )
