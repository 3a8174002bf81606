"""The wheel with spark-submit on a Spark cluster of separate processes, like from a scheduler."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from jobs.cluster.connect import connect
from jobs.cluster.lock import SESSION_S, holder_of
from jobs.engine.network.options import NAME_PREFIX as PREFIX
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.model import SPARK_MASTER_ID
from metrics.tables.store import TableStore
from tests.support.commands import await_ends, document_in
from tests.support.processes import becomes
from tests.support.spark_submission import (
    Submitter,
    await_load,
    barrier_stages,
    executors_by_worker,
    records_written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = (
    "--set=workload.message_bytes=[1000]",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=4",
    "--set=workload.trial.early_end_error_rate=0",
    "--set=cluster.warm_up_max_s=10",
    "--set=goal.search.resolution=0.5",
)
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RUN_S = 300.0
"""Deadline for a whole run on two busy cores [s]."""
LOAD_S = 300.0
"""Deadline for the next trial on two busy cores [s]."""
SOON_S = 15.0
"""Deadline for noticing a loss on two busy cores [s]."""
STOPPED_S = 2.0
"""Longest time until a load stops after the request [s]."""
STILL_S = 3.0
"""Time without growth of the end offsets after which the load has stopped [s]."""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with start(brokers=3, spark_workers=2, name="standalone") as running:
        yield running


@pytest.fixture
def submitter(testbed: Testbed, wheel: Path, bare_python: Path, tmp_path: Path) -> Submitter:
    testbed.check()
    # The lock of a driver killed by an earlier test lasts until its session ends.
    with connect(testbed.bootstrap_servers, {}) as admin:
        assert becomes(lambda: holder_of(admin, testbed.broker_ids) is None, 2 * SESSION_S)
    return Submitter(testbed, wheel, bare_python, tmp_path)


def test_the_wheel_finds_the_limit_on_executors_without_the_project(
    submitter: Submitter, spark: SparkSession
) -> None:
    for module in ("jobs", "metrics", "search", "conf"):
        has_it = subprocess.run([submitter.python, "-c", f"import {module}"], capture_output=True,
                                cwd=submitter.folder, env={}, check=False)  # fmt: skip
        assert b"ModuleNotFoundError" in has_it.stderr
    with submitter.submit("find_limit", *QUICK) as command:
        assert command.wait(RUN_S) == 0, command.text
        assert "Traceback" not in command.text
    summary = document_in(submitter.folder)
    (point,) = summary["boundaries"]
    assert point["np_sustained"] > 0 and point["gave_up"] is None
    trials = TableStore(spark, str(submitter.folder / "out" / "tables")).trials(summary["run_id"])
    assert trials.count() == point["trials"]
    # The tasks of each load ran on executors of both workers, once per stage.
    (event_log,) = submitter.events.iterdir()
    stages = barrier_stages(event_log)
    workers = [executor_ids(submitter.testbed, number, event_log.name) for number in (1, 2)]
    used = max(stages.executors.values(), key=len)
    assert all(used & ids for ids in workers), (used, workers)
    assert {attempt for _, attempt in stages.attempts} == {0}


def test_a_driver_downloads_missing_jars_itself(submitter: Submitter) -> None:
    """With spark-submit, pyspark is an archive without jars, so Ivy comes from SPARK_HOME."""
    cache = submitter.folder / "cache"
    options = (*QUICK, "--set=goal.search.budget.trials=1")
    with submitter.submit("find_limit", *options, cache=cache) as command:
        command.await_line("trial-finished trial=1 ", LOAD_S)
        assert command.wait(RUN_S) == 3, command.text
    assert list(cache.glob("jars/*/delta-spark*.jar"))


def test_a_trial_that_loses_an_executor_is_invalid_and_repeated_and_the_run_succeeds(
    submitter: Submitter,
) -> None:
    with submitter.submit("find_limit", *QUICK, "--set=workload.trial.measure_s=10") as command:
        started = command.await_line("trial-started trial=1 ", LOAD_S)
        await_load(submitter.testbed)
        executor, producers = an_executor_with_producers(submitter.testbed)
        executor.kill()
        assert await_ends(producers, SOON_S) == []
        finished = command.await_line("trial-finished trial=1 ", LOAD_S)
        assert "INVALID" in finished
        assert "was lost during the load" in finished
        again = command.await_line("trial-started trial=2 ", LOAD_S)
        assert producers_of(again) == producers_of(started)
        assert command.wait(RUN_S) == 0, command.text
    (event_log,) = submitter.events.iterdir()
    stages = barrier_stages(event_log)
    begun_again = [key for key in stages.executors if key[1] > 0]
    assert begun_again == [], "Spark started a load again"


def test_executors_stop_sending_within_seconds_of_a_kill_of_the_driver(
    submitter: Submitter,
) -> None:
    with submitter.submit("find_limit", *QUICK, "--set=workload.trial.measure_s=60") as command:
        command.await_line("trial-started trial=1 ", LOAD_S)
        await_load(submitter.testbed)
        executors = [each for of in executors_by_worker(submitter.testbed).values() for each in of]
        workers = [child for each in executors for child in each.children(recursive=True)]
        assert len(executors) == 2 and workers
        for process in [*command.family(), psutil.Process(command.pid)]:
            process.kill()
        killed_s = time.monotonic()
        last_grown_s = last_growth_s(submitter.testbed)
        assert last_grown_s - killed_s < SOON_S
        assert await_ends([*executors, *workers], SOON_S) == []
    submitter.testbed.check()


CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Command whose child is process 1 of its namespace, as in a container."""


@pytest.mark.parametrize("within", [(), CONTAINER], ids=["process", "process 1"])
def test_sigterm_to_the_jvm_of_spark_submit_ends_the_run_in_order(
    submitter: Submitter, spark: SparkSession, within: tuple[str, ...]
) -> None:
    """A scheduler and a container's runtime send this signal to the first process."""
    if within and subprocess.run([*within, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process may be the first of its own here")
    options = (*QUICK, "--set=workload.trial.measure_s=30")
    with submitter.submit("find_limit", *options, within=within) as command:
        command.await_line("trial-finished trial=1 ", 2 * LOAD_S)
        command.await_line("trial-started trial=2 ", LOAD_S)
        await_load(submitter.testbed)
        submitted = psutil.Process(command.pid)
        if within:
            (submitted,) = submitted.children()
        assert submitted.name() == "java"
        submitted.terminate()
        sent_s = time.monotonic()
        assert last_growth_s(submitter.testbed) - sent_s < STOPPED_S
        assert command.wait(RUN_S) == 143, command.text
        assert "error: terminated; " in command.text
        assert "Traceback" not in command.text
    summary = document_in(submitter.folder)
    assert (summary["status"], summary["exit_code"]) == ("terminated", 143)
    tables = TableStore(spark, str(submitter.folder / "out" / "tables"))
    assert [each.trial for each in tables.trials(summary["run_id"]).collect()] == [1]
    with connect(submitter.testbed.bootstrap_servers, {}) as admin:
        own = f"{PREFIX}{summary['run_id']}-"  # a driver killed by an earlier test left its own
        assert [name for name in admin.topic_names() if name.startswith(own)] == []


def last_growth_s(testbed: Testbed) -> float:
    """Time of the last arrival of records, known after `STILL_S` without one [s]."""
    began_s = last_grown_s = time.monotonic()
    written = records_written(testbed)
    while (looked_s := time.monotonic()) - last_grown_s < STILL_S:
        now_written = records_written(testbed)
        if now_written > written:
            written, last_grown_s = now_written, looked_s
        assert looked_s - began_s < 60, "executors still send"
    return last_grown_s


def executor_ids(testbed: Testbed, worker: int, application: str) -> set[str]:
    """Ids of an application's executors on a worker, from the names of their work folders."""
    work = testbed.folder / f"spark-worker-{SPARK_MASTER_ID + worker}" / "work"
    return {folder.name for folder in (work / application).iterdir() if folder.name.isdecimal()}


def an_executor_with_producers(testbed: Testbed) -> tuple[psutil.Process, list[psutil.Process]]:
    for executors in executors_by_worker(testbed).values():
        for executor in executors:
            # A daemon forks a process for each task that runs Python.
            family = executor.children(recursive=True)
            if len(family) > 1:
                return executor, family
    raise AssertionError("no executor runs Python")


def producers_of(line: str) -> str:
    return next(word for word in line.split() if word.startswith("producers="))
