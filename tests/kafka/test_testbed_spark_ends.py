"""Each end of a testbed with Spark also ends its executors and their Python workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.testbed.cleanup import inheriting_processes
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from tests.support.processes import becomes, processes_with

pytestmark = pytest.mark.long

GONE_S = 20.0
APPLICATION = """
import sys, time
from pyspark import SparkContext
context = SparkContext(sys.argv[1], "sleeper")
context.parallelize([1], 1).foreach(lambda _: time.sleep(600))
"""


@contextmanager
def application(testbed: Testbed) -> Iterator[None]:
    """A Spark application whose task sleeps in Python on an executor."""
    command = [sys.executable, "-c", APPLICATION, str(testbed.state.spark_master)]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    ) as driver:
        try:
            # A master, a worker, an executor, its Python daemon and the daemon's child.
            assert becomes(lambda: len(inheriting_processes(testbed.id)) >= 5, 150)
            yield
        finally:
            os.killpg(driver.pid, signal.SIGKILL)


@pytest.mark.parametrize("ending", ["stop", "kill -9 of the supervisor"])
def test_executors_end_with_the_testbed(tmp_path: Path, ending: str) -> None:
    testbed = start(brokers=1, spark_workers=1, root=tmp_path)
    try:
        with application(testbed):
            if ending == "stop":
                testbed.stop()
                assert inheriting_processes(testbed.id) == []
            else:
                os.kill(testbed.supervisor_pid, signal.SIGKILL)
                assert becomes(lambda: not inheriting_processes(testbed.id), GONE_S)
            assert becomes(lambda: not processes_with(testbed.id), GONE_S)
    finally:
        testbed.stop()
    assert not testbed.folder.exists()
    if ending != "stop":
        (kept,) = (tmp_path / "failed").iterdir()
        assert list(kept.glob("spark-worker-201/work/app-*/0/stderr"))
