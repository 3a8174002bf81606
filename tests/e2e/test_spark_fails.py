"""Spark during a run: a killed worker, a killed driver, and too few open files."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.tables.store import TableStore
from tests.support.commands import COMMAND, RunningCommand, document_in, finished
from tests.support.processes import command_line_of
from tests.support.spark_submission import (
    await_load,
    require_no_topics,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

OPTIONS = (
    "traffic", "--workload=1kB", "--yes", "--slots=2",
    "--set=workload.topic.replication_factor=1",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.early_end_error_rate=0",
    "--set=cluster.warm_up_max_s=0",
)  # fmt: skip
PART_S = 400.0
"""Deadline for Spark's start, or for some trials, on two busy cores [s]."""


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    root = tmp_path_factory.mktemp("brokers")
    with start("default", brokers=1, root=root, name="fails") as running:
        yield running


def options(testbed: Testbed, *more: str) -> tuple[str, ...]:
    return (*OPTIONS, f"--cluster={cluster_file(testbed.folder)}", *more)


def child(command: RunningCommand, word: str) -> psutil.Process:
    """The newest descendant of the command with this word in its command line."""
    found = [each for each in command.family() if word in command_line_of(each)]
    return max(found, key=lambda each: each.create_time())


def test_a_worker_that_the_kernel_kills_affects_only_its_trial(
    testbed: Testbed, tmp_path: Path
) -> None:
    """The kernel kills a process without a message when memory is short."""
    arguments = options(testbed, "--np=4", "--trials=2", "--set=workload.trial.measure_s=8")
    with RunningCommand(*arguments, folder=tmp_path) as command:
        command.await_line("trial-started trial=1 ", PART_S)
        await_load(testbed)
        child(command, "pyspark.worker").kill()
        finished = command.await_line("trial-finished trial=1 ", PART_S)
        assert "INVALID" in finished and "was lost during the load" in finished
        assert "INVALID" not in command.await_line("trial-finished trial=2 ", PART_S)
        assert command.wait(PART_S) == 0, command.text
        assert "Traceback" not in command.text
    assert document_in(tmp_path)["status"] == "done"
    require_no_topics(testbed)


def test_a_driver_that_the_kernel_kills_ends_the_run_in_a_sentence(
    testbed: Testbed, tmp_path: Path, spark: SparkSession
) -> None:
    arguments = options(testbed, "--np=2", "--trials=2", "--set=workload.trial.measure_s=8")
    with RunningCommand(*arguments, folder=tmp_path) as command:
        command.await_line("trial-finished trial=1 ", PART_S)
        command.await_line("trial-started trial=2 ", PART_S)
        await_load(testbed)
        child(command, "org.apache.spark.deploy.SparkSubmit").kill()
        assert command.wait(PART_S) == 2, command.text
        assert "Traceback" not in command.text, command.text
        assert "unexpected" not in command.text, command.text
        reports = [line for line in command.lines if "Spark's driver ended during" in line]
        assert reports and "error" in reports[-1], command.text
    summary = document_in(tmp_path)
    assert (summary["status"], summary["exit_code"]) == ("failed", 2)
    assert "Spark's driver ended" in summary["error"]
    tables = TableStore(spark, str(tmp_path / "out" / "tables"))
    assert [each.trial for each in tables.trials(summary["run_id"]).collect()] == [1]
    require_no_topics(testbed)


FEW_FILES = ("sh", "-c", 'ulimit -n 700; exec "$@"', "sh", *COMMAND)
"""The command and its children, with a low limit on open files."""


def test_the_message_of_workers_with_too_few_open_files_has_the_needed_number(
    testbed: Testbed, tmp_path: Path
) -> None:
    arguments = options(testbed, "--np=1200", "--trials=1", "--set=workload.trial.measure_s=4")
    text = finished(*arguments, folder=tmp_path, program=FEW_FILES, deadline_s=PART_S, code=2)
    assert "this host allows 700 open files; expected at least 856 for 600 connections" in text
    require_no_topics(testbed)


log = logging.getLogger(__name__)

ENDED_S = 15.0
"""From the death of a task to the end of the load, on a busy machine [s]."""


def workers(command: RunningCommand) -> list[psutil.Process]:
    """The processes of the command in which Spark runs Python."""
    return [each for each in command.family() if "pyspark.daemon" in each.cmdline()]


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_a_task_that_dies_in_minute_two_ends_the_load(
    kafka_testbed: Testbed, tmp_path: Path
) -> None:
    command = RunningCommand(
        "traffic", "--cluster", str(cluster_file(kafka_testbed.folder)), "--np", "2",
        "--workload", "quick", "--duration", "8m", "--yes", "--out", str(tmp_path / "out"),
        "--set=workload.message_bytes=[1000]", "--set=workload.trial.measure_s=20",
        "--set=goal.indicators.achieved_min=0.8", folder=tmp_path,  # on a busy machine, too
    )  # fmt: skip
    with command:
        command.await_line("trial-started trial=7", 300.0)  # after six windows of 20 s
        max(workers(command), key=lambda each: each.cpu_times().user).kill()
        killed_s = time.monotonic()
        command.await_line("trial-finished trial=7", ENDED_S)
        log.warning("the load ended after %.1f s", time.monotonic() - killed_s)
        code = command.wait(120.0)
    log.warning("the run ended after %.1f s: %s", time.monotonic() - killed_s, command.text)
    assert code == 3
    assert "no conclusion, because trial" in command.text
    assert re.search(r"task \d on .* was lost during the load", command.text)
    assert "was sustained for 2 min until then" in command.text
