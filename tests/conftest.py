"""Marks tests by folder, runs the cheap ones first, and holds the one Spark session."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.sharing import ROOT, BySharing, shared_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No chance in a test: the same examples each time, however busy the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

pytest_plugins = ["tests.support.kafka_fixtures"]

HERE = Path(__file__).parent
FOLDERS = ("unit", "spark", "kafka", "e2e")
BEAR_COMPANY = ("unit", "spark")
"""Folders of tests that load nothing and judge no load."""
SPARK_SLOTS = 4
NICENESS = 5
# PySpark leaves the socket of each collect() to the garbage collector.
PYSPARK_LEAK = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> BySharing:
    """Which test runs in which process, where there are several."""
    return BySharing(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test has the marker of its folder; folders run in order of their cost.

    Where several processes run them, it is the other way round, after what keeps one of them to
    the end: the cheap ones fill what is left.
    """
    for item in items:
        item.add_marker(_folder(item))
        if _folder(item) in BEAR_COMPANY:
            item.add_marker(pytest.mark.together)
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(PYSPARK_LEAK)
        if "kafka_for_all" in fixtures and _shared(item) is None:
            raise pytest.UsageError(f"{item.path}: tests.support.sharing does not see its brokers")
    has_company = "PYTEST_XDIST_WORKER" in os.environ
    items.sort(key=lambda item: FOLDERS.index(_folder(item)), reverse=has_company)
    if has_company:
        items.sort(key=lambda item: _shared(item) is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Whoever has the brokers is needed to the end: the others leave it the CPU."""
    if "PYTEST_XDIST_WORKER" in os.environ and not os.nice(0) and _shared(item) is None:
        os.nice(NICENESS)


def pytest_collection_finish() -> None:
    """What collecting leaves is there to the end: Python need not look through it again and
    again for garbage, which takes a tenth of the time of the cheap tests.
    """
    gc.collect()
    gc.freeze()


def _shared(item: pytest.Item) -> str | None:
    return shared_by(item.path.relative_to(ROOT).as_posix())


def _folder(item: pytest.Item) -> str:
    name = item.path.relative_to(HERE).parts[0]
    if name not in FOLDERS:
        raise pytest.UsageError(f"{item.path}: tests live in tests/{{{','.join(FOLDERS)}}}")
    return name


@pytest.fixture(scope="session")
def spark_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session with Delta for the whole run, with room for four barrier tasks."""
    from jobs.spark.session import close_session, local_session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = local_session(SPARK_SLOTS, "kafka-redline tests", log=log)
    yield session
    close_session(session)


@pytest.fixture
def spark(spark_for_all: SparkSession) -> Iterator[SparkSession]:
    """The session of the run; what PySpark leaks goes while its warning is still excused."""
    yield spark_for_all
    gc.collect()
