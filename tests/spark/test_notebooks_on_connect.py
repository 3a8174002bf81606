"""The notebooks in a Jupyter kernel on Spark Connect, on the tables of a run of version 0.1.0.

tests/e2e/test_report.py uses the tables of a run of this version, with a Spark session each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.testbed.places import free_ports
from metrics.reporting.summary import RunSummary
from metrics.reporting.summary_tables import read_summary
from metrics.tables.store import TableStore
from tests.support.frames import LIMIT, OLDER
from tests.support.notebook_checks import NAMES, add_sweep, check, parameters
from tests.support.notebook_kernel import Executed, execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark")]


HOST = "127.0.0.1"


@contextmanager
def connect_server(spark: SparkSession) -> Iterator[str]:
    """Serve Spark Connect within this context, and yield the address for SPARK_REMOTE.

    It is the service of `start-connect-server.sh`, from the jar in the pip package. Clients get
    their own sessions with the server's jars and SQL extensions, including Delta's.
    """
    context: Any = spark.sparkContext
    jvm = context._jvm
    (port,) = free_ports(1)
    settings = jvm.org.apache.spark.SparkEnv.get().conf()
    settings.set("spark.connect.grpc.binding.address", HOST)
    settings.set("spark.connect.grpc.binding.port", f"{port}")
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(context._jsc.sc())
    try:
        yield f"sc://{HOST}:{port}"
    finally:
        nothing = jvm.scala.Option.empty()
        service.stop(nothing, nothing)


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
