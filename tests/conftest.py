"""Markers by folder, the order of the tests, and the Spark session and the tables of the run."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from jobs.setup.places import cache_dir
from metrics.reporting import kept_script
from tests.support.sharing import ROOT, BySharing, computes, shared_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from metrics.tables.store import TableStore

# Hypothesis draws the same examples in each run, however busy the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

pytest_plugins = ["tests.support.kafka_fixtures"]

kept_script.keep_in(cache_dir() / "charts")

# Collected tests live until the end of the run, and each pass over them takes longer.
gc.disable()

HERE = Path(__file__).parent
FOLDERS = ("unit", "spark", "kafka", "e2e")
SAFE_IN_PARALLEL = ("unit", "spark")
"""Folders whose tests are safe to run in parallel: they neither offer nor judge a load."""
SPARK_SLOTS = 4
NICENESS = 5
# PySpark leaves the socket of each collect() to the garbage collector.
PYSPARK_LEAK = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> BySharing:
    """The scheduler that assigns tests to the processes of pytest-xdist."""
    return BySharing(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test the marker of its folder, and sort the tests.

    Long tests run where the command names nothing else: `pytest tests/e2e/test_spark_fails.py`.

    In one process the cheap folders run first. In several processes the tests that share brokers
    run first, as they keep two processes for long; then come the expensive folders, and the cheap
    ones fill the rest of the time.
    """
    for item in items:
        folder = _folder(item.path)
        item.add_marker(folder)
        if folder in SAFE_IN_PARALLEL:
            item.add_marker(pytest.mark.together)
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(PYSPARK_LEAK)
        if item.get_closest_marker("computes") and not _computes(item.path):
            raise pytest.UsageError(f"{item.path}: tests.support.sharing does not see its marker")
        if "kafka_for_all" in fixtures and _shared(item.path) is None:
            raise pytest.UsageError(f"{item.path}: tests.support.sharing does not see its brokers")
    given = config.invocation_params.args
    names_files = bool(config.args) and all(".py" in each for each in config.args)
    if names_files and "-m" not in given and all(each.get_closest_marker("long") for each in items):
        config.option.markexpr = ""
    is_parallel = "PYTEST_XDIST_WORKER" in os.environ
    items.sort(key=lambda item: FOLDERS.index(_folder(item.path)), reverse=is_parallel)
    if is_parallel:
        items.sort(key=lambda item: _shared(item.path) is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Lower the priority of processes without brokers, as loads on brokers have a schedule."""
    if "PYTEST_XDIST_WORKER" in os.environ and not os.nice(0) and _shared(item.path) is None:
        os.nice(NICENESS)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection.

    They live until the end of the run, and scanning them takes a tenth of the time of the cheap
    tests.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@cache
def _shared(path: Path) -> str | None:
    return shared_by(path.relative_to(ROOT).as_posix())


@cache
def _computes(path: Path) -> bool:
    return computes(path.relative_to(ROOT).as_posix())


@cache
def _folder(path: Path) -> str:
    name = path.relative_to(HERE).parts[0]
    if name not in FOLDERS:
        raise pytest.UsageError(f"{path}: tests live in tests/{{{','.join(FOLDERS)}}}")
    return name


@pytest.fixture(scope="session")
def spark_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with Delta for the whole run, with slots for four barrier tasks."""
    from jobs.spark.session import close_session, local_session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = local_session(SPARK_SLOTS, "kafka-redline tests", log=log)
    yield session
    close_session(session)


@pytest.fixture
def spark(spark_for_all: SparkSession) -> Iterator[SparkSession]:
    """The session of the run; leaked sockets are collected while `PYSPARK_LEAK` applies."""
    yield spark_for_all
    gc.collect()


@pytest.fixture(scope="session")
def new_store(
    spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], TableStore]:
    """A function that returns a store with tables without rows, in a folder that it makes.

    The tables are created once and copied, as their creation takes seconds of CPU time.
    """
    from metrics.tables.store import TableStore

    empty = tmp_path_factory.mktemp("empty") / "tables"
    TableStore(spark_for_all, str(empty)).open().settle()

    def store_in(folder: Path) -> TableStore:
        shutil.copytree(empty, folder)
        return TableStore(spark_for_all, str(folder))

    return store_in


@pytest.fixture
def empty_tables(new_store: Callable[[Path], TableStore], tmp_path: Path) -> None:
    """Tables without rows in `tmp_path`/tables, for a test of a run that need not create them."""
    new_store(tmp_path / "tables")
