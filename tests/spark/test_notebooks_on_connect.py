"""The notebooks in a Jupyter kernel on Spark Connect, on the tables of a run of version 0.1.0.

tests/e2e/test_notebooks.py uses the tables of a run of this version, with a Spark session each.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metrics.reporting.summary import RunSummary
from metrics.reporting.summary_tables import read_summary
from metrics.tables.store import TableStore
from tests.support.notebook_checks import NAMES, add_sweep, check, parameters
from tests.support.notebook_kernel import Executed, execute
from tests.support.older_tables import LIMIT, OLDER
from tests.support.spark_connect import connect_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def where(spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables of a search of version 0.1.0, and of a sweep of this version."""
    folder: Path = tmp_path_factory.mktemp("older") / "tables"
    shutil.copytree(OLDER, folder)
    TableStore(spark_for_all, str(folder)).open().close()
    add_sweep(spark_for_all, str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def summary(where: str, spark_for_all: SparkSession) -> RunSummary:
    return read_summary(TableStore(spark_for_all, where), LIMIT)


@pytest.fixture(scope="module")
def shown(
    where: str, spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Executed]:
    """The outputs of all notebooks in one kernel with Spark Connect, without Java."""
    scratch = tmp_path_factory.mktemp("kernel")
    with connect_server(spark_for_all) as address:
        remote = {"SPARK_REMOTE": address, "JAVA_HOME": str(scratch / "no-java")}
        return execute(NAMES, parameters(where, LIMIT), scratch, **remote)


@pytest.mark.parametrize("name", NAMES)
def test_each_notebook_runs(name: str, shown: dict[str, Executed], summary: RunSummary) -> None:
    check(name, shown[name], summary)
