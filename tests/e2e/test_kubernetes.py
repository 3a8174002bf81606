"""The commands of docs/deploy/kubernetes.md, on a real control plane of Kubernetes."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from jobs.cluster.connect import connect
from jobs.cluster.lock import SESSION_S, holder_of
from jobs.setup.jars import delta_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.tables.store import TableStore
from tests.bench.planted import NEAR, points_of
from tests.support.commands import ROOT, await_ends, document_in
from tests.support.kubernetes import NAMESPACE, Driver, Kubernetes, kubernetes
from tests.support.processes import becomes, processes_in
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

RELEASES = ("4.1",)
RUN_S = 900.0
"""Deadline for a whole run on two busy cores [s]."""
SOON_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture(scope="module")
def brokers() -> Iterator[Testbed]:
    overrides: dict[str, object] = {"produce_handler_ms": 60}
    with start("calibrated", brokers=2, overrides=overrides, name="kubernetes") as running:
        yield running


@dataclass(frozen=True)
class Image:
    """What the image of docs/deploy/kubernetes.md contains, in folders of this machine.

    Attributes:
        release: release of Spark.
        python: the interpreter, with Spark and the wheel.
        wheel: the wheel for `--py-files`.
        folder: the results.
    """

    release: str
    python: Path
    wheel: Path
    folder: Path
    cluster: Kubernetes
    brokers: Testbed

    def submit(
        self, *options: str, out: str, executor_cores: int = 2
    ) -> AbstractContextManager[Driver]:
        """Submit find-limit as the page does, in the pod of a Job."""
        spark = ENVIRONMENTS[self.release]
        jars = delta_jars(spark.spark, "2.12" if self.release == "3.5" else "2.13")
        name = f"redline-spark:{self.release}"
        (home,) = self.python.parents[1].glob("lib/python*/site-packages/pyspark")
        self.cluster.kubelet.images[name] = home
        settings = {
            "spark.kubernetes.namespace": NAMESPACE,
            "spark.kubernetes.container.image": name,
            "spark.kubernetes.driver.pod.name": "$(POD)",
            "spark.kubernetes.authenticate.caCertFile": str(self.cluster.api.certificate),
            "spark.kubernetes.authenticate.oauthTokenFile": str(self.cluster.token),
            "spark.executor.instances": "2",
            "spark.executor.cores": str(executor_cores),
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
        words = [
            str(self.python.with_name("spark-submit")),
            *("--master", f"k8s://{self.cluster.api.url}"),
            *("--properties-file", str(ROOT / "conf" / "spark" / "submit.properties")),
            *(part for pair in settings.items() for part in ("--conf", "=".join(pair))),
            *("--jars", ",".join(map(str, jars)), "--py-files", str(self.wheel)),
            str(ROOT / "jobs" / "find_limit.py"),
            *("--cluster", str(cluster_file(self.brokers.folder)), "--workload", "calibrated"),
            *("--yes", "--out", str(self.folder / out), *QUICK, *options),
        ]
        job = f"redline-{self.release.replace('.', '-')}-{out}"
        return self.cluster.job(job, name, words, {})


@pytest.fixture(scope="module", params=RELEASES)
def image(
    request: pytest.FixtureRequest,
    cluster: Kubernetes,
    brokers: Testbed,
    tmp_path_factory: pytest.TempPathFactory,
) -> Image:
    folder = tmp_path_factory.mktemp("image")
    wheel = Path(shutil.copy(built_wheel(tmp_path_factory.mktemp("wheel")), folder))
    try:
        python = made(ENVIRONMENTS[request.param], wheel)
    except NotInstalledError as error:
        pytest.skip(f"Spark {request.param} cannot be installed: {error}")
    return Image(request.param, python, wheel, folder, cluster, brokers)


def test_the_planted_limit_is_found(image: Image, spark: SparkSession) -> None:
    with image.submit(out="limit") as driver:
        assert driver.wait(RUN_S) == 0, driver.text
        assert "Traceback" not in driver.text and "Exception" not in driver.text
        assert becomes(lambda: image.cluster.api.executor_pods() == [], SOON_S)
    runs = TableStore(spark, str(image.folder / "limit" / "tables")).read("runs").collect()
    assert [each["status"] for each in runs if each["event"] == "finished"] == ["done"]
    (point,) = points_of(document_in(image.folder, out="limit"), "handlers", "60")
    off_by = 100 * point.off_by
    log.warning("Spark %s on Kubernetes: %s: off by %+.1f %%", image.release, point, off_by)
    assert abs(point.off_by) <= NEAR


def test_a_trial_whose_executor_pod_is_deleted_is_repeated(image: Image) -> None:
    options = ("--set=workload.trial.measure_s=15", "--set=goal.search.budget.trials=3")
    with image.submit(*options, out="deleted") as driver:
        driver.await_line("trial-started trial=1 ", RUN_S)
        await_load(image.brokers)
        pod, *_ = image.cluster.api.executor_pods()
        image.cluster.api.delete("pods", pod["metadata"]["name"])
        finished = driver.await_line("trial-finished trial=1 ", RUN_S)
        assert "INVALID" in finished and "was lost during the load" in finished
        assert "INVALID" not in driver.await_line("trial-finished trial=2 ", RUN_S)
        driver.wait(RUN_S)
    require_no_topics(image.brokers)


def test_the_deletion_of_the_job_ends_the_load_and_the_run_in_order(image: Image) -> None:
    with image.submit("--set=workload.trial.measure_s=60", out="terminated") as driver:
        driver.await_line("trial-started trial=1 ", RUN_S)
        await_load(image.brokers)
        workers = executor_processes(image)
        api = image.cluster.api
        api.delete("jobs", driver.name, propagationPolicy="Background")
        assert await_ends(workers, SOON_S) == []
        assert becomes(lambda: driver.has_ended, RUN_S)
        assert driver.container is not None and driver.container.code == 143, driver.text
        assert "error: terminated; " in driver.text
        assert "Traceback" not in driver.text
        assert becomes(lambda: api.pods() == [], SOON_S)
    assert document_in(image.folder, out="terminated")["exit_code"] == 143
    require_no_topics(image.brokers)


def test_a_kill_of_the_driver_ends_the_load(image: Image) -> None:
    with image.submit("--set=workload.trial.measure_s=60", out="killed") as driver:
        driver.await_line("trial-started trial=1 ", RUN_S)
        await_load(image.brokers)
        workers = executor_processes(image)
        assert driver.container is not None
        driver.container.process.kill()
        assert await_ends(workers, SOON_S) == []
        assert driver.wait(SOON_S) == 137
        pods = image.cluster.api.executor_pods()
        log.warning("executors after the kill: %s", [each["status"]["phase"] for each in pods])
    with connect(image.brokers.bootstrap_servers, {}) as admin:
        ids = image.brokers.broker_ids
        assert becomes(lambda: holder_of(admin, ids) is None, 2 * SESSION_S)


def test_executors_without_a_node_end_the_run_with_a_reason(image: Image) -> None:
    with image.submit(out="pending", executor_cores=5) as driver:
        code = driver.wait(RUN_S)
        log.warning("Spark %s, no node: exit code %d\n%s", image.release, code, driver.text)
        assert code == 2 and "no executor has registered" in driver.text


def executor_processes(image: Image) -> list[psutil.Process]:
    """The JVMs of the executors, and the Python processes that send the load."""
    kubelet = image.cluster.kubelet
    pods = [each["metadata"]["name"] for each in image.cluster.api.executor_pods()]
    found = [each for pod in pods for each in processes_in(kubelet.folder_of(pod))]
    assert len(pods) == 2 and len(found) > 2, (pods, found)
    return found
