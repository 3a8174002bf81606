"""The recorded part of earlier runs: their rows in the tables, and their configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark.errors import AnalysisException

from jobs.config.loading import Settings
from jobs.runs.context_factory import open_session
from jobs.runs.options import RunOptions
from jobs.trials.context import Session
from metrics.common.errors import ConfigError
from metrics.tables.store import TableStore

_LAST_RUNS = 5


def open_recorded_run(
    options: RunOptions, run_id: str, stack: ExitStack
) -> tuple[Session, Settings]:
    """A session for a resumed run, and the recorded configuration of the run.

    Raises:
        ConfigError: the run does not exist; a missing folder is reported before Spark starts.
    """
    folder = options.out.absolute() / run_id
    if options.tables is None and not folder.is_dir():
        raise ConfigError(
            f"--resume names the run {run_id}, and {folder} does not exist; expected a run of this "
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
    """Turn the failure to read the tables into a message with its cause.

    Raises:
        ConfigError: the tables do not exist, or are not Delta tables.
    """
    try:
        yield
    except AnalysisException as error:
        raise ConfigError(
            f"{store.address('runs')} {_why(error)}; expected the tables of a redline run; "
            "name their place with --tables"
        ) from error


def unknown_run_error(store: TableStore, run_id: str) -> ConfigError:
    """The error for a run that the tables do not contain; it names the newest ones."""
    newest = store.runs().orderBy("at", ascending=False).limit(_LAST_RUNS).collect()
    names = ", ".join(row.run_id for row in newest)
    known = f"a run of these tables (newest: {names})" if names else "tables with runs"
    return ConfigError(
        f"the run {run_id} is not in {store.address('runs')}; expected {known}; "
        "correct the id, or name its tables with --tables"
    )


def _why(error: AnalysisException) -> str:
    """The fault of a table; a missing one is described without Spark's message."""
    text = str(error).partition("\n")[0].rstrip(".")
    is_absent = "PATH_NOT_FOUND" in text or "TABLE_OR_VIEW_NOT_FOUND" in text
    return "does not exist" if is_absent else f"cannot be read as a Delta table ({text})"
