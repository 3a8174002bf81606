"""A run whose results and tables are on a file system that takes whole files only."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.runs.run_lock import FILE
from metrics.tables.store import TableStore
from tests.support.commands import SHORT_LOAD, finished
from tests.support.whole_file_volume import whole_file_volume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RUN_S = 300.0
"""A testbed of one broker and a short trial, on two busy cores [s]."""
OPTIONS = ("traffic", "--workload=1kB", *SHORT_LOAD, "--np=1", "--set=cluster.testbed.brokers=1")


def test_a_run_writes_its_files_and_tables_there(tmp_path: Path, spark: SparkSession) -> None:
    with whole_file_volume(tmp_path / "volume", tmp_path / "source") as volume:
        refused = volume / "refused"
        refused.write_text("whole")
        with pytest.raises(OSError, match=os.strerror(errno.EOPNOTSUPP)), refused.open("a") as file:
            file.write("more")
        out = volume / "out"
        finished(*OPTIONS, "--out", str(out), folder=tmp_path, deadline_s=RUN_S)
        (summary,) = out.glob("*/summary.json")
        document = json.loads(summary.read_text())
        assert document["status"] == "done"
        folder = summary.parent
        names = {path.name for path in folder.iterdir()}
        assert {"summary.json", "report.html", "spark.log"} <= names, names
        assert FILE not in names
        assert not [name for name in names if name.startswith(".probe-") or ".tmp" in name]
        tables = TableStore(spark, str(out / "tables"))
        assert [row.status for row in tables.run_rows(document["run_id"])] == ["done"]
        assert tables.trials(document["run_id"]).count() == 1
