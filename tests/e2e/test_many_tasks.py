"""A load of many tasks: 70 in one process of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from tests.support.commands import RunningCommand, document_in

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LINE_S = 300.0
"""Deadline for the next line on two busy cores [s]."""
SMALL = (
    "--set=workload.message_bytes=[1000]",
    "--set=workload.producer.rate_bytes_per_s=10000",
    "--set=workload.topic.replication_factor=1",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=5",
    "--set=cluster.warm_up_max_s=5",
)


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with start("default", brokers=1, name="executors") as running:
        yield running


def test_seventy_tasks_of_one_machine_share_a_load(testbed: Testbed, tmp_path: Path) -> None:
    arguments = ("traffic", "--np=140", "--slots=70", "--out=out", "--workload=demo", "--yes")
    cluster = f"--cluster={cluster_file(testbed.folder)}"
    with RunningCommand(*arguments, cluster, *SMALL, folder=tmp_path) as command:
        finished = command.await_line("trial-finished trial=1 ", LINE_S)
        command.wait(LINE_S)
    # A verdict follows from this machine; that all tasks took part does not.
    assert "task" not in finished, finished
    assert 'achieved="?' not in finished
    assert document_in(tmp_path)["environment"]["spark.slots"] == "70"
