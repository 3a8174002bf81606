"""The commands of docs/deploy/yarn.md, on Hadoop's own daemons: YARN with two nodes, and HDFS."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from jobs.cluster.connect import connect
from jobs.cluster.lock import holder_of
from jobs.setup.jars import delta_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.tables.store import TableStore
from tests.bench.planted import NEAR, points_of
from tests.support.commands import (
    EXPERIMENT,
    ROOT,
    SHORT_LOAD,
    SUITE,
    RunningCommand,
    await_ends,
    document_in,
)
from tests.support.hadoop import FULL_QUEUE, Hadoop, hadoop
from tests.support.processes import becomes
from tests.support.spark_environments import ENVIRONMENTS, NotInstalledError, made
from tests.support.spark_submission import (
    QUICK,
    await_load,
    require_no_topics,
)
from tests.support.wheel import built_wheel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(2_400)]
log = logging.getLogger(__name__)

RELEASES = ("4.1", "3.5")
RUN_S = 900.0
"""Deadline for a whole run on two busy cores [s]."""
SOON_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    with hadoop(tmp_path_factory.mktemp("hadoop")) as running:
        yield running


@pytest.fixture(scope="module")
def brokers() -> Iterator[Testbed]:
    overrides: dict[str, object] = {"produce_handler_ms": 60}
    with start("calibrated", brokers=2, overrides=overrides, name="yarn") as running:
        yield running


@dataclass(frozen=True)
class EdgeNode:
    """A folder with what docs/deploy/yarn.md has an edge node prepare, and nothing else.

    Attributes:
        release: release of Spark.
        python: the interpreter of `SPARK_HOME`.
        folder: the wheel, the packed environment, the jobs and their results.
    """

    release: str
    python: Path
    folder: Path
    hadoop: Hadoop
    brokers: Testbed

    def submit(
        self, *options: str, out: str, mode: str = "client", queue: str = "default"
    ) -> RunningCommand:
        """Submit find-limit as the page does."""
        job = ("--cluster", self.cluster, "--workload", "calibrated", *QUICK, *options)
        return self.submit_job("find_limit", *job, "--yes", out=out, mode=mode, queue=queue)

    def submit_job(
        self, script: str, *options: str, out: str, mode: str = "client", queue: str = "default"
    ) -> RunningCommand:
        """Submit a script of jobs/ with the options of the page."""
        copied = shutil.copy(ROOT / "jobs" / f"{script}.py", self.folder)
        (home,) = self.python.parents[1].glob("lib/python*/site-packages/pyspark")
        spark = ENVIRONMENTS[self.release]
        jars = delta_jars(spark.spark, "2.12" if self.release == "3.5" else "2.13")
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.yarn.jars": f"local:{home}/jars/*",
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
            "spark.yarn.am.memory": "256m",
            # Each node unpacks the archive before its executor starts.
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        }
        if mode == "cluster":
            del settings["spark.driver.host"]
        return RunningCommand(
            *("--master", "yarn", "--deploy-mode", mode, "--queue", queue),
            *("--properties-file", str(ROOT / "conf" / "spark" / "submit.properties")),
            *(part for pair in settings.items() for part in ("--conf", "=".join(pair))),
            *("--archives", "environment.tar.gz#environment"),
            *("--num-executors", "2", "--executor-cores", "2", "--executor-memory", "512m"),
            *("--driver-memory", "512m", "--jars", ",".join(map(str, jars))),
            *("--py-files", next(map(str, self.folder.glob("*.whl"))), str(copied), *options),
            *("--out", str(self.folder / out), "--tables", self.tables(out)),
            folder=self.folder,
            program=[str(self.python.with_name("spark-submit"))],
            environ={
                "HADOOP_CONF_DIR": str(self.hadoop.conf),
                "SPARK_HOME": str(home),
                "PYTHONPATH": "",
                "PYSPARK_DRIVER_PYTHON": "environment/bin/python",
                "PYSPARK_PYTHON": "./environment/bin/python",
            },
        )

    @property
    def cluster(self) -> str:
        return str(cluster_file(self.brokers.folder))

    def tables(self, out: str) -> str:
        return f"{self.hadoop.file_system}/redline/{self.release}/{out}"


@pytest.fixture(scope="module", params=RELEASES)
def edge(
    request: pytest.FixtureRequest,
    cluster: Hadoop,
    brokers: Testbed,
    tmp_path_factory: pytest.TempPathFactory,
) -> EdgeNode:
    folder = tmp_path_factory.mktemp("edge")
    wheel = Path(shutil.copy(built_wheel(tmp_path_factory.mktemp("wheel")), folder))
    try:
        python = made(ENVIRONMENTS[request.param], wheel)
    except NotInstalledError as error:
        pytest.skip(f"Spark {request.param} cannot be installed: {error}")
    pack(folder, python, wheel)
    return EdgeNode(request.param, python, folder, cluster, brokers)


def pack(folder: Path, python: Path, wheel: Path) -> None:
    """The packed environment of the page: what the wheel depends on, without Spark."""
    versions = python.parents[1] / "constraints.txt"
    pip = ["environment/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [str(python), "-m", "venv", "environment"],
        [*pip, "-c", str(versions), "venv-pack==0.2.0", "setuptools==80.9.0", f"{wheel}[charts]"],
        [*pip, "--no-deps", "-c", str(versions), "delta-spark"],
        ["environment/bin/pip", "uninstall", "--quiet", "--yes", "kafka-redline"],
        ["environment/bin/venv-pack", "--quiet", "-p", "environment", "-o", "environment.tar.gz"],
    ):
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=RUN_S
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_planted_limit_is_found_and_the_tables_are_on_hdfs(
    edge: EdgeNode, mode: str, spark: SparkSession
) -> None:
    with edge.submit(out=mode, mode=mode) as command:
        assert command.wait(RUN_S) == 0, command.text
    runs = TableStore(spark, edge.tables(mode)).read("runs").collect()
    assert [each["status"] for each in runs if each["event"] == "finished"] == ["done"]
    (point,) = points_of(document_in(edge.folder, out=mode), "handlers", "60")
    off_by = 100 * point.off_by
    log.warning("Spark %s on YARN, %s: %s: off by %+.1f %%", edge.release, mode, point, off_by)
    assert abs(point.off_by) <= NEAR


def test_a_trial_whose_container_is_killed_is_repeated(edge: EdgeNode) -> None:
    options = ("--set=workload.trial.measure_s=15", "--set=goal.search.budget.trials=3")
    with edge.submit(*options, out="killed") as command:
        command.await_line("trial-started trial=1 ", RUN_S)
        await_load(edge.brokers)
        executor = edge.hadoop.executors()[0]
        executor.kill()
        finished = command.await_line("trial-finished trial=1 ", RUN_S)
        assert "INVALID" in finished and "was lost during the load" in finished
        assert "INVALID" not in command.await_line("trial-finished trial=2 ", RUN_S)
        command.wait(RUN_S)
    require_no_topics(edge.brokers)


def test_a_run_whose_driver_is_killed_is_resumed(edge: EdgeNode, spark: SparkSession) -> None:
    options = (*QUICK, "--set=workload.trial.measure_s=15")
    with edge.submit(*options, out="resumed") as command:
        begun = command.await_line("trial-started trial=1 ", RUN_S)
        finished = command.await_line("trial-finished trial=1 ", RUN_S)
        command.await_line("trial-started trial=2 ", RUN_S)
        await_load(edge.brokers)
        executors = edge.hadoop.executors()
        for process in [*command.family(), psutil.Process(command.pid)]:
            process.kill()
        assert await_ends(executors, SOON_S) == []
    (run,) = (edge.folder / "resumed").glob("2*")
    resumed = ("--resume", run.name, "--cluster", edge.cluster, *options)
    with edge.submit_job("find_limit", *resumed, "--yes", out="resumed") as command:
        assert command.wait(RUN_S) == 0, command.text
        assert "trial-started trial=1 " not in command.text
    trials = TableStore(spark, edge.tables("resumed")).read("trials")
    (first,) = trials.where("trial = 1").collect()
    assert f"producers={first['np']} " in begun and first["verdict"] in finished
    require_no_topics(edge.brokers)


def test_a_sweep_and_two_nights(edge: EdgeNode) -> None:
    (edge.folder / "acks.yaml").write_text(EXPERIMENT.format(cluster=edge.cluster))
    with edge.submit_job("sweep", "acks.yaml", *SHORT_LOAD, out="sweep") as command:
        assert command.wait(RUN_S) == 0, command.text
    (path,) = (edge.folder / "sweep").rglob("sweep.json")
    assert [each["why"] for each in json.loads(path.read_text())["results"]] == ["", ""]
    (edge.folder / "suite.yaml").write_text(SUITE.format(cluster=edge.cluster))
    for night, before in (("a", []), ("b", ["a"])):
        options = ("--suite=suite.yaml", f"--night={night}", *SHORT_LOAD)
        with edge.submit_job("nightly", *options, out="nights") as command:
            assert command.wait(RUN_S) in {0, 4}, command.text
        path = edge.folder / "nights" / f"suite-{night}" / "nightly.json"
        (case,) = json.loads(path.read_text())["cases"]
        assert case.get("nights") == before, (night, case)


def test_yarns_kill_of_the_application_ends_the_load(edge: EdgeNode) -> None:
    with edge.submit("--set=workload.trial.measure_s=60", out="ended") as command:
        command.await_line("trial-started trial=1 ", RUN_S)
        await_load(edge.brokers)
        (app,) = edge.hadoop.applications("RUNNING")
        executors = edge.hadoop.executors()
        workers = [each for executor in executors for each in executor.children(recursive=True)]
        assert workers, "the Python processes that send the load"
        edge.hadoop.yarn("application", "-kill", app)
        assert await_ends([*executors, *workers], SOON_S) == []
        code = command.wait(RUN_S)
        log.warning("Spark %s, killed by YARN: exit code %d\n%s", edge.release, code, command.text)
        assert code == 2, command.text
        assert "error: Spark's driver ended during the run" in command.text
        assert "Traceback" not in command.text
    assert edge.hadoop.final_state(app) == ("KILLED", "KILLED")


def test_a_run_that_waits_in_a_queue_does_not_hold_the_clusters_lock(edge: EdgeNode) -> None:
    with edge.submit(out="full", queue=FULL_QUEUE) as command:
        assert becomes(lambda: bool(edge.hadoop.applications("ACCEPTED")), RUN_S), command.text
        (app,) = edge.hadoop.applications("ACCEPTED")
        with connect(edge.brokers.bootstrap_servers, {}) as admin:
            assert holder_of(admin, edge.brokers.broker_ids) is None
        edge.hadoop.yarn("application", "-kill", app)
        code = command.wait(RUN_S)
        log.warning("Spark %s, full queue: exit code %d\n%s", edge.release, code, command.text)
        assert code == 2 and "Spark did not start" in command.text
    require_no_topics(edge.brokers)
