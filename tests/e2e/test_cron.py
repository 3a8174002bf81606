"""The ready crontab and the ready DAG, as cron and Airflow run them with their spark-submit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from jobs.features.nightly.suite import configuration_of, load_suite
from jobs.runs.resumption import config_text
from jobs.setup.places import cache_dir
from jobs.testbed.launcher import cluster_file, start
from jobs.testbed.spark import submit_properties
from metrics.tables.schema import RunRow
from metrics.tables.store import TableStore
from tests.bench.ready_files import AIRFLOW, READY, airflow_python
from tests.support.commands import ROOT, RunningCommand
from tests.support.cron import CronInstallation
from tests.support.nights import case_row
from tests.support.wheel import python_without_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

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


def plant(
    spark: SparkSession, installed: CronInstallation, night: str, tonight: float = TONIGHT
) -> None:
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
    row = case_row(9, tonight, run_id=run_id, night=night, limited_by="cpu", **names)
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


@pytest.fixture
def dag(
    installed: CronInstallation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The ready DAG with the places of this machine, and a Spark cluster of one worker."""
    dags = tmp_path / "dags"
    dags.mkdir()
    text = (READY / "airflow_nightly.py").read_text()
    for before, after in (
        ("/opt/redline", str(installed.home)),
        ("/var/lib/redline", str(installed.state)),
        ("s3a://bucket/redline", str(installed.state / "tables")),
        ("kafka_redline-0.1.0-py3-none-any.whl", next(installed.home.glob("*.whl")).name),
    ):
        assert before in text
        text = text.replace(before, after)
    (dags / "nightly.py").write_text(text)
    suite = SUITE.replace("set:\n", "set:\n  - goal.search.budget.trials=1\n")
    (installed.home / "suite.yaml").write_text(suite)
    with start(brokers=1, spark_workers=1, name="airflow") as testbed:
        shutil.copy(cluster_file(testbed.folder), installed.home / "prod.yaml")
        properties = installed.home / "submit.properties"
        shutil.copy(submit_properties(testbed.folder), properties)
        with properties.open("a") as file:
            file.write("spark.driver.host 127.0.0.1\nspark.driver.bindAddress 127.0.0.1\n")
        host, _, port = str(testbed.state.spark_master).rpartition(":")
        connection = {"conn_type": "spark", "host": host, "port": int(port)}
        for name, value in {
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
            "REDLINE_CACHE": str(cache_dir()),
            "PYTHONPATH": "",
        }.items():
            monkeypatch.setenv(name, value)
        subprocess.run([*airflow(), "db", "migrate"], check=True, capture_output=True)
        yield dags / "nightly.py"


def airflow() -> tuple[str, ...]:
    """Airflow's command; the first call installs Airflow, which takes minutes."""
    return str(airflow_python(cache_dir() / AIRFLOW[0])), "-m", "airflow"


@contextmanager
def dag_run(folder: Path, day: int) -> Iterator[RunningCommand]:
    """A run of the DAG, as `airflow dags test` makes it."""
    words = ("dags", "test", "redline_nightly", f"2026-11-{day:02d}")
    with RunningCommand(*words, folder=folder, program=airflow()) as command:
        yield command


def test_airflow_succeeds_fails_or_tries_again_by_the_exit_code(
    installed: CronInstallation, dag: Path, spark: SparkSession
) -> None:
    template = "{{ run_id | replace(':', '-') | replace('+', '-') | replace('~', '-') }}"
    text = dag.read_text()
    for day, tonight, ended in ((1, BEFORE[0], "success"), (2, TONIGHT, "failed")):
        plant(spark, installed, f"planted-{day}", tonight)
        dag.write_text(text.replace(template, f"planted-{day}"))
        with dag_run(dag.parent, day) as command:
            command.await_line(f"new_state={ended} ", NIGHT_S)
        assert (ended == "success") or "Error code is: 4." in command.text
    dag.write_text(text)
    with dag_run(dag.parent, 3) as command:  # one trial closes no bracket
        command.await_line("new_state=failed ", NIGHT_S)
        assert "Error code is: 3." in command.text
    servers = YAML(typ="safe").load(installed.home / "prod.yaml")["bootstrap_servers"]
    holder = [sys.executable, "-m", "tests.support.lock_holder", ",".join(servers), "30"]
    with RunningCommand(program=holder, folder=ROOT) as other:
        other.await_line("held", NIGHT_S)
        with dag_run(dag.parent, 4) as command:
            command.await_line("new_state=up_for_retry ", NIGHT_S)
            assert "Error code is: 75." in command.text
