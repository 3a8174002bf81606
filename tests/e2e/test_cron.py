"""The ready crontab as cron runs it, with its spark-submit: a quiet night and a regression."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.features.nightly.suite import configuration_of, load_suite
from jobs.runs.resumption import config_text
from jobs.setup.places import cache_dir
from jobs.testbed.launcher import cluster_file, start
from metrics.tables.schema import RunRow
from metrics.tables.store import TableStore
from tests.support.commands import ROOT
from tests.support.cron import CronInstallation
from tests.support.nights import case_row
from tests.support.wheel import python_without_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

NIGHT_S = 300.0
"""A night without a measurement, on two busy cores [s]."""
SUITE = """
cluster: testbed
workload: 1kB
goal: default
set:
  - workload.topic.replication_factor=1
min_effect: 0.1
noise: {cv: 0.05, weight: 8}
cases:
  - {name: limit, limit: 1000}
"""
BEFORE, TONIGHT = (20.0, 20.5, 19.5), 10.0
"""Limits of the earlier nights and of this one [MB/s per broker]."""


@pytest.fixture
def installed(tmp_path: Path, wheel: Path) -> CronInstallation:
    """A machine that the comment of the crontab and docs/deploy/standalone.md describe."""
    installation = CronInstallation(tmp_path)
    python_without_project(installation.home)
    shutil.copy(ROOT / "conf/spark/submit.properties", installation.home)
    shutil.copy(wheel, installation.home)
    (installation.home / "jobs").mkdir()
    shutil.copy(ROOT / "jobs/nightly.py", installation.home / "jobs")
    (installation.home / "suite.yaml").write_text(SUITE)
    return installation


@pytest.fixture
def night(installed: CronInstallation) -> Iterator[list[str]]:
    """The words of the crontab, with a Spark and a cluster of this machine."""
    words = installed.cron.submitted
    for option, value in (("--master", "local[2]"), ("--tables", str(installed.state / "tables"))):
        words[words.index(option) + 1] = value
    at = words.index("--properties-file")
    words[at:at] = ["--conf", "spark.driver.host=127.0.0.1"]
    words[at:at] = ["--conf", "spark.driver.bindAddress=127.0.0.1"]
    with start(brokers=1, name="cron") as testbed:
        shutil.copy(cluster_file(testbed.folder), installed.home / "prod.yaml")
        yield words


def plant(spark: SparkSession, installed: CronInstallation, night: str) -> None:
    """Write earlier nights, and tonight's measurement, which a first part of the night made."""
    suite = load_suite(str(installed.home / "suite.yaml"))
    config = configuration_of(suite, str(installed.home / "prod.yaml"), ())
    names = {
        "suite": suite.name,
        "cluster": config.cluster.name,
        "workload": config.workload.name,
        "goal": config.goal_names,
    }
    store = TableStore(spark, str(installed.state / "tables")).open()
    for day, value in enumerate(BEFORE, 1):
        store.append_case(case_row(day, value, **names))
    run_id = f"{suite.name}-{night}"
    row = case_row(9, TONIGHT, run_id=run_id, night=night, limited_by="cpu", **names)
    store.append_case(row)
    own: dict[str, Any] = {key: value for key, value in names.items() if key != "suite"}
    store.append_run(RunRow(run_id, "started", row.at_s, config=config_text(config), **own))
    store.close()


def test_cron_mails_a_regression_and_no_quiet_night(
    installed: CronInstallation, night: list[str], spark: SparkSession
) -> None:
    environment = {"REDLINE_CACHE": str(cache_dir())}  # no jar is downloaded again
    quiet = installed.run([*night, "--dry-run"], NIGHT_S, **environment)
    (log,) = installed.state.glob("*.log")
    assert quiet.stdout == "", log.read_text()
    assert " plan cluster=" in log.read_text()

    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    plant(spark, installed, date)
    worse = installed.run([date if word == "$night" else word for word in night],
                          NIGHT_S, **environment)  # fmt: skip
    first, *rest = worse.stdout.splitlines()
    assert first.startswith("redline nightly "), worse.stdout
    assert ": exit code 4; the end of " in first, worse.stdout
    mail = "\n".join(rest)
    assert "regression found: limit: " in mail
    assert "nightly.json" in mail
    assert "Traceback" not in mail
    document = json.loads((installed.state / f"suite-{date}" / "nightly.json").read_text())
    assert document["exit_code"] == 4
    (case,) = document["cases"]
    assert case["outcome"] == "regression"
    assert case["effect"]["change"] == pytest.approx(TONIGHT / 20.0 - 1, abs=0.02)
