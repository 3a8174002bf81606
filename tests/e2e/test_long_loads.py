"""A load of many windows in which a task dies."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import psutil
import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file
from tests.support.commands import RunningCommand

pytestmark = [pytest.mark.e2e, pytest.mark.long]

log = logging.getLogger(__name__)

ENDED_S = 15.0
"""From the death of a task to the end of the load, on a busy machine [s]."""


def workers(command: RunningCommand) -> list[psutil.Process]:
    """The processes of the command in which Spark runs Python."""
    return [each for each in command.family() if "pyspark.daemon" in each.cmdline()]


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
    assert re.search(r"task \d on .* was lost in the middle of the load", command.text)
    assert "was sustained for 2 min until then" in command.text
