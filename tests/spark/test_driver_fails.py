"""A driver of Spark that is killed or has too little memory: one line, and no Java stack trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT

SCRIPT = """
import os, signal, sys
from pathlib import Path

import click
from pyspark import SparkContext

from jobs.entry import run
from jobs.spark.failures import report_spark_failures
from jobs.spark.session import close_session, local_session


@click.command()
@click.argument("how")
def command(how):
    spark = local_session(1, log=Path("spark.log"))
    if how == "started":
        sys.exit("it did")
    try:
        if how == "killed":
            os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
            spark.range(3).collect()
        with report_spark_failures():  # as in a run, while the driver's JVM can report its error
            kept = [spark._jvm.java.util.BitSet(2**30) for _ in range(40)]
    finally:
        close_session(spark)


run(command)
"""
ENDED = "Spark's driver ended during the run"
TOO_LITTLE = "Spark's driver has too little memory; raise spark.driver.memory"


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "memory", "message"),
    [
        pytest.param("killed", "1g", ENDED, id="killed"),
        pytest.param("filled", "1g", TOO_LITTLE, id="heap filled"),
        pytest.param("started", "200m", TOO_LITTLE, id="small heap"),
        pytest.param("started", "20m", "Spark did not start", id="no heap"),
    ],
)
def test_a_driver_that_fails_is_reported_in_one_line(
    tmp_path: Path, how: str, memory: str, message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=False,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_DRIVER_MEMORY": memory,
                           "REDLINE_CACHE": os.environ.get("REDLINE_CACHE", str(ROOT / ".cache"))},
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode == 2, output
    assert message in output
    assert len(output.splitlines()) == 1, output
