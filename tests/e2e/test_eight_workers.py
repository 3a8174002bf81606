"""A load on the executors of eight workers, two of which are lost: in a trial, and between two."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.model import SPARK_MASTER_ID
from tests.support.commands import await_ends
from tests.support.processes import becomes
from tests.support.spark_submission import (
    Submitter,
    barrier_stages,
    executors_by_worker,
    records_written,
)

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

WORKERS = 8
LINE_S = 300.0
"""Deadline for the next line on two busy cores [s]."""
SOON_S = 30.0
SMALL = (
    "--np=16",
    "--trials=2",
    "--set=workload.message_bytes=[1000]",
    "--set=workload.producer.rate_bytes_per_s=10000",
    "--set=workload.topic.replication_factor=1",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=15",
    "--set=cluster.warm_up_max_s=0",
)
ONE_SLOT_EACH = {
    "spark.executor.cores": "1",
    "spark.cores.max": str(WORKERS),
    "spark.executor.memory": "512m",
    # Eight JVMs on two cores: the quick compiler, and one thread that collects garbage.
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with start("default", brokers=1, spark_workers=WORKERS, name="workers") as running:
        yield running


def kill_executor(testbed: Testbed, number: int) -> None:
    """Kill the executor of a worker, with the Python processes of its tasks."""
    (executor,) = executors_by_worker(testbed)[number]
    family = executor.children(recursive=True)
    executor.kill()
    assert await_ends(family, SOON_S) == [], "tasks outlive their executor"


@contextmanager
def suspended(testbed: Testbed, number: int) -> Iterator[None]:
    """Suspend a worker, so that it replaces no executor; its master waits for it for a minute."""
    worker = psutil.Process(testbed.pids[SPARK_MASTER_ID + number])
    worker.suspend()
    try:
        yield
    finally:
        worker.resume()


def test_executors_that_are_lost_in_a_trial_and_between_two_are_waited_for(
    testbed: Testbed, wheel: Path, bare_python: Path, tmp_path: Path
) -> None:
    submitter = Submitter(testbed, wheel, bare_python, tmp_path)
    began_s = time.monotonic()
    with submitter.submit("traffic", *SMALL, spark=ONE_SLOT_EACH) as command:
        try:
            command.await_line("trial-started trial=1 ", LINE_S)
            log.warning("trial 1 after %.0f s", time.monotonic() - began_s)
            assert becomes(lambda: records_written(testbed) > 0, LINE_S)
            log.warning("load after %.0f s", time.monotonic() - began_s)
            kill_executor(testbed, 1)
            first = command.await_line("trial-finished trial=1 ", LINE_S)
            log.warning("trial 1 ended after %.0f s", time.monotonic() - began_s)
            with suspended(testbed, 2):
                kill_executor(testbed, 2)
                command.await_line(" of 8 slots, because Spark lost an executor", LINE_S)
            second = command.await_line("trial-finished trial=2 ", LINE_S)
            code = command.wait(LINE_S)
        finally:
            log.warning("after %.0f s:\n%s", time.monotonic() - began_s, command.text)
    assert "INVALID" in first and "was lost during the load" in first
    # A verdict follows from this machine; that all tasks took part does not.
    assert "task" not in second, command.text
    assert code in (0, 3), command.text
    (event_log,) = submitter.events.iterdir()
    stages = barrier_stages(event_log)
    last = stages.executors[max(stages.executors)]
    assert len(last) == WORKERS, "the last load ran on all executors"
    assert len(last - {str(each) for each in range(WORKERS)}) == 2, "two of them are new"
    assert {attempt for _, attempt in stages.attempts} == {0}, "Spark started a load again"
