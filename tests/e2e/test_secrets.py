"""A hunt for the secrets of a secured cluster in all that a run starts and leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from jobs.config.source import parse_map, yaml_text
from jobs.testbed.keys import SecurityFiles
from jobs.testbed.launcher import start
from jobs.testbed.use import cluster_text
from metrics.tables.store import TABLES, TableStore
from tests.support.commands import ROOT, RunningCommand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

VARIABLE = "KAFKA_PASSWORD_OF_A_TEST"
OPTIONS = (
    "--workload", "1kB", "--np", "2", "--trials", "1", "--yes",
    "--set", "workload.topic.replication_factor=1", "--set", "workload.trial.measure_s=15",
    "--set", "cluster.warm_up_max_s=0",
)  # fmt: skip


def test_no_secret_is_in_what_a_run_starts_or_leaves(tmp_path: Path, spark: SparkSession) -> None:
    with start("secured", brokers=1, name="hunted") as testbed:
        secret = SecurityFiles(testbed.folder).password.read_text().strip()
        cluster = parse_map(cluster_text(testbed.folder, testbed.state), "cluster").data
        for section in ("security", "jmx"):
            cluster[section]["password_from"] = f"env:{VARIABLE}"
        (tmp_path / "brokers.yaml").write_text(yaml_text(cluster))
        environ = {"PYTHONPATH": str(ROOT), VARIABLE: secret}
        arguments = ("traffic", "--cluster", "brokers.yaml", *OPTIONS)
        with RunningCommand(*arguments, folder=tmp_path, environ=environ) as command:
            command.await_line("trial-started trial=1 ", 200.0)
            seen = dict(seen_of(command))
            assert command.wait(200.0) == 0, command.text
    assert any("java" in words for words in seen), "Spark was looked at"
    assert len(seen) >= 2
    assert [words for words, told in seen.items() if secret in told] == []
    assert all("PATH=" in told or "'PATH'" in told for told in seen.values()), "all of it was seen"
    assert secret not in command.text
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"run.log", "spark.log", "summary.json"} & {path.name for path in left}
    assert [path for path in left if secret.encode() in path.read_bytes()] == []
    tables = TableStore(spark, str(tmp_path / "out" / "tables"))
    rows = {table: str(tables.read(table).collect()) for table in TABLES}
    assert rows["runs"].count("Row(") == 2
    assert f"env:{VARIABLE}" in rows["runs"], "the reference is kept, and no secret"
    assert [table for table, text in rows.items() if secret in text] == []


def seen_of(command: RunningCommand) -> Iterator[tuple[str, str]]:
    """Command line of each process that the command started → that line and its environment."""
    for process in command.family():
        try:
            words = " ".join([f"{process.pid}", *process.cmdline()])
            yield words, f"{words} {process.environ()}"
        except psutil.NoSuchProcess:  # gone in the meantime
            continue
