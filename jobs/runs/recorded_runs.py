"""What the tables hold of a run that was begun before: its rows, and its own configuration."""

from __future__ import annotations

import json
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
    """A session for the run that is resumed, and the configuration that the run recorded.

    Raises:
        ConfigError: there is no such run, which is said before anything is started or made where
            its folder tells.
    """
    folder = options.out.absolute() / run_id
    if options.tables is None and not folder.is_dir():
        raise ConfigError(
            f"--resume names the run {run_id}, and there is no {folder}; expected one that was "
            "begun with this --out; name it as its folder, or give its --out or --tables"
        )
    log = folder / "spark.log" if folder.is_dir() else None
    session = open_session(stack, options.slots, log)
    store = TableStore(session.spark, options.tables_or_default)
    with explaining_missing_tables(store):
        rows = store.run_rows(run_id)
        if not rows:
            raise unknown_run_error(store, run_id)
    settings: Settings = json.loads(rows[0].config)
    return session, settings


@contextmanager
def explaining_missing_tables(store: TableStore) -> Iterator[None]:
    """Say of tables that cannot be read what is wrong with them.

    Raises:
        ConfigError: there are none, or they are no tables of Delta.
    """
    try:
        yield
    except AnalysisException as error:
        raise ConfigError(
            f"{store.address('runs')} {_why(error)}; expected the tables that redline find-limit "
            "wrote; give their place by --tables"
        ) from error


def unknown_run_error(store: TableStore, run_id: str) -> ConfigError:
    """That the tables do not know a run, and which they know."""
    newest = store.runs().orderBy("at", ascending=False).limit(_LAST_RUNS).collect()
    names = ", ".join(row.run_id for row in newest)
    known = f"a run of these tables, of which the last are {names}" if names else "a run"
    return ConfigError(
        f"the run {run_id} is not in {store.address('runs')}; expected {known}; "
        "name one of them, or give its --tables"
    )


def _why(error: AnalysisException) -> str:
    """What is wrong with a table, without Spark's name of it where it is just not there."""
    text = str(error).partition("\n")[0].rstrip(".")
    is_absent = "PATH_NOT_FOUND" in text or "TABLE_OR_VIEW_NOT_FOUND" in text
    return "is not there" if is_absent else f"cannot be read as a Delta table ({text})"
