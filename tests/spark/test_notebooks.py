"""The notebooks' input: tables, missing tables, and the summary of a run from tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.notebook import open_tables, rows, rows_of, table
from metrics.columns import row_of
from metrics.common.errors import ConfigError
from metrics.reporting.summary_tables import read_summary
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import SCHEMAS, RunRow
from metrics.tables.store import TableStore
from tests.support import frames
from tests.support.rows import BOUNDARY, trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOALS = "default,tolerant"
CONFIG = json.dumps({"workload": {"topic.replication_factor": 2, "consumers.groups": 0}})


def _run(run_id: str, event: str, at_s: float, status: str) -> RunRow:
    row = RunRow(run_id, event, at_s, "c", "w", GOALS, 3, status, environment={"a": "b"})
    return row if run_id != "r1" else replace(row, config=CONFIG)


@pytest.fixture(scope="module")
def where(spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables of a version without nights and samples, with two runs; the first was resumed."""
    folder: Path = tmp_path_factory.mktemp("tables")
    runs = [
        _run("r1", "started", 10.0, "running"),
        _run("r1", "finished", 20.0, "no conclusion"),
        _run("r1", "started", 30.0, "running"),
        _run("r1", "finished", 40.0, "done"),
        _run("r2", "started", 50.0, "running"),
    ]
    tolerant = replace(BOUNDARY, goal="tolerant")
    points = [
        row_of(BoundaryRow("r1", 19.0, "c", "w", replace(tolerant, gave_up="budget"))),
        row_of(BoundaryRow("r1", 39.0, "c", "w", replace(tolerant, notes=("n",)))),
        row_of(BoundaryRow("r1", 38.0, "c", "w", BOUNDARY)) | {"axis": None},
    ]
    held = {
        "runs": [row_of(row) for row in runs],
        "boundaries": points,
        "trials": [row_of(trial(1, "r1"))],
    }
    for name, records in held.items():
        frame = frames.table(spark_for_all, name, records).coalesce(1)
        frame.write.format("delta").save(f"{folder}/{name}")
    return str(folder)


@pytest.fixture
def tables(where: str, spark: SparkSession) -> TableStore:
    return open_tables(where, spark)


def test_missing_tables_and_runs_are_named_with_a_remedy(
    tmp_path: Path, spark: SparkSession, tables: TableStore
) -> None:
    with pytest.raises(ConfigError, match=r"/runs does not exist; expected the tables of a run"):
        open_tables(f"{tmp_path}/none", spark)
    with pytest.raises(ConfigError, match=r"no_such_schema\.runs does not exist"):
        open_tables("no_such_schema", spark)

    with pytest.raises(ConfigError, match=r"there is no run r9 .*newest runs are r2, r1"):
        read_summary(tables, "r9")


def test_a_missing_table_has_its_columns_and_a_long_one_its_number_of_rows(
    tables: TableStore,
) -> None:
    missing = rows_of(tables, "cases")
    assert missing.columns == SCHEMAS["cases"].names
    assert rows(missing) == []
    assert rows(rows_of(tables, "trials", "r1"))[0]["trial"] == 1
    assert rows_of(tables, "trials", "r2").count() == 0

    runs = rows_of(tables, "runs").select("run_id")
    assert "The first 2 rows." in table(runs, limit=2)._repr_html_()
    assert "The first" not in table(runs)._repr_html_()


def test_summaries_are_read_back_by_default_of_the_newest_run_with_a_point(
    tables: TableStore,
) -> None:
    found = read_summary(tables)
    assert (found.run_id, found.status, found.brokers) == ("r1", "done", 3)
    assert (found.started_at, found.finished_at) == ("1970-01-01T00:00:10Z", "1970-01-01T00:00:40Z")
    assert (found.replication_factor, found.consumer_groups) == (2, 0)
    assert found.environment == {"a": "b"}
    default, tolerant = found.boundaries
    assert default == BOUNDARY
    assert tolerant == replace(BOUNDARY, goal="tolerant", notes=("n",))

    found = read_summary(tables, "r2")
    assert (found.status, found.boundaries, found.replication_factor) == ("running", (), 0)
