"""Tables on S3, written by a whole run to a server of S3 on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.spark.compatibility import SINGLE_DRIVER
from jobs.testbed.launcher import cluster_file, start
from tests.support.commands import ROOT, SHORT_LOAD, ended
from tests.support.s3_server import BUCKET, S3Server, s3_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

RUN_S = 400.0
"""Spark with another 650 MB of jars, and a short trial, on two busy cores [s]."""
OPTIONS = ("traffic", "--workload=1kB", *SHORT_LOAD, "--np=1", f"--tables=s3a://{BUCKET}/redline")


def test_a_run_is_refused_or_writes_its_tables_there(tmp_path: Path) -> None:
    with s3_server(tmp_path / "moto.log") as server, start(brokers=1, name="s3") as testbed:
        cluster = f"--cluster={cluster_file(testbed.folder)}"
        code, text = run(tmp_path / "refused", server, {}, cluster)
        assert code == 2, text
        assert "S3SingleDriverLogStore can lose commits" in text
        assert "trial-started" not in text
        assert objects(server, "runs") == []

        code, text = run(tmp_path / "written", server, {SINGLE_DRIVER: "true"}, cluster)
        assert code == 0, text
        events = sorted(row["event"] for row in objects(server, "runs"))
        assert events == ["finished", "started"]
        (trial,) = objects(server, "trials")
        assert trial["acked_total"] > 0


def run(folder: Path, server: S3Server, settings: dict[str, str], cluster: str) -> tuple[int, str]:
    """Exit code and output of a run whose Spark has these settings beside those of the server."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    lines = (f"{name} {value}\n" for name, value in (server.settings | settings).items())
    (conf / "spark-defaults.conf").write_text("".join(lines))
    environment = {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(conf),
    }
    return ended(*OPTIONS, cluster, folder=folder, deadline_s=RUN_S, environ=environment)


def objects(server: S3Server, table: str) -> list[dict[str, Any]]:
    """The rows of a table, read without Spark; none where the table does not exist."""
    place, options = f"s3://{BUCKET}/redline/{table}", server.storage_options
    if not DeltaTable.is_deltatable(place, options):
        return []
    rows: list[dict[str, Any]] = (
        DeltaTable(place, storage_options=options).to_pyarrow_table().to_pylist()
    )
    return rows
