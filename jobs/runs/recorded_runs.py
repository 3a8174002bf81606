"""The records of earlier runs in the tables, which a resumed run and a report need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.config.loading import Settings
from jobs.console.events import Level, Notice, PhaseStarted
from jobs.console.printing import make_reporter
from jobs.runs.context_factory import open_session
from jobs.runs.options import RunOptions
from jobs.runs.results import REPORT, series_from, write_report
from jobs.runs.run_lock import is_locked
from jobs.spark.session import close_session, local_session
from jobs.trials.context import Session
from metrics.common.errors import ConfigError
from metrics.reporting.report_page import panels_of_run
from metrics.reporting.summary import load_summary, write_summary
from metrics.reporting.summary_tables import configuration_of_row, summary_of
from metrics.tables.store import TableStore
from metrics.trial.trial import Trial

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException

_LAST_RUNS = 5


def open_recorded_run(
    options: RunOptions, run_id: str, stack: ExitStack
) -> tuple[Session, Settings]:
    """Open a session for a resumed run, and read the recorded configuration of the run.

    Raises:
        ConfigError: the run does not exist. If the folder of the run is missing, Spark is not
            started.
    """
    folder = options.out.absolute() / run_id
    if options.tables is None and not folder.is_dir():
        raise ConfigError(
            f"--resume names the run {run_id}, but {folder} does not exist; expected a run in "
            "--out; correct the id, or name the run's --out or --tables"
        )
    log = folder / "spark.log" if folder.is_dir() else None
    session = open_session(stack, options.slots, log)
    store = TableStore(session.spark, options.tables_or_default)
    with explaining_missing_tables(store):
        rows = store.run_rows(run_id)
        if not rows:
            raise unknown_run_error(store, run_id)
    settings: Settings = rows[0].settings
    return session, settings


@contextmanager
def explaining_missing_tables(store: TableStore) -> Iterator[None]:
    """Turn an error of Spark about missing tables into a message with its cause.

    Raises:
        ConfigError: the tables do not exist, or are not Delta tables.
    """
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        raise ConfigError(
            f"{store.address('runs')} {_why(error)}; expected the tables of a redline run; "
            "name their path or catalog name with --tables"
        ) from error


def unknown_run_error(store: TableStore, run_id: str) -> ConfigError:
    """The error for a run that the tables do not contain; it names the newest runs."""
    newest = store.runs().orderBy("at", ascending=False).limit(_LAST_RUNS).collect()
    names = ", ".join(row.run_id for row in newest)
    known = f"a run of these tables (newest: {names})" if names else "tables with runs"
    return ConfigError(
        f"the run {run_id} is not in {store.address('runs')}; expected {known}; "
        "correct the id, or name its tables with --tables"
    )


def _why(error: AnalysisException) -> str:
    """The problem with a table, as the predicate of a sentence. If the table is missing, the text
    does not contain Spark's message.
    """
    text = str(error).partition("\n")[0].rstrip(".")
    is_absent = "PATH_NOT_FOUND" in text or "TABLE_OR_VIEW_NOT_FOUND" in text
    return "does not exist" if is_absent else f"cannot be read as a Delta table ({text})"


RUNNING = "running"
KILLED = (
    "the driver was killed; all finished trials are kept, and redline find-limit --resume {} "
    "continues the run"
)

Rows = list[dict[str, Any]]


def regenerate_report(run_id: str, out: Path, tables: str | None, target: Path | None) -> None:
    """Write the report of a run again, and also its summary if that file is missing.

    Args:
        run_id: the id of the run.
        out: the folder that contains the folders of all runs.
        tables: path or catalog name of the Delta tables; None for a folder in `out`.
        target: the file of the report; None for the report in the run's folder.

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
        elif target is None:  # the summary could not be written at the end of the run
            write_summary(summary, kept)
            reporter.report(Notice(Level.NOTE, f"summary: {kept}"))
        if summary.status == RUNNING and folder.is_dir() and not is_locked(folder):
            summary = replace(summary, status="killed", error=KILLED.format(run_id))
        write_report(page, summary, trials, configuration_of_row(runs[-1]), series)
        reporter.report(Notice(Level.NOTE, f"report: {page}"))


def read_rows(store: TableStore, run_id: str) -> tuple[Rows, Rows, list[Trial]]:
    """The rows of a run in the tables `runs` and `boundaries`, and the trials of the run.

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
