"""The session of the tests and of the jobs: quiet, on loopback, with Delta."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from jobs.spark.session import (
    apply_small_table_settings,
    local_session,
    session_archive,
    short_lived_jvm_options,
)

ROOT = Path(__file__).parents[2]


def test_the_session_runs_barrier_stages_on_loopback_and_is_reused_without_a_file(
    spark: SparkSession,
) -> None:
    slots = spark.sparkContext.defaultParallelism
    rows = spark.sparkContext.parallelize(range(slots), slots).barrier()
    assert sorted(rows.mapPartitions(_where).collect()) == [sys.executable] * slots

    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None

    taken = local_session(slots=2)
    assert taken.sparkContext.applicationId == spark.sparkContext.applicationId
    litter = [Path(name) for name in ("spark-warehouse", "metastore_db", "derby.log")]
    assert not [path for path in litter if path.exists()]


def _where(_: object) -> list[str]:
    return [sys.executable]


def test_the_session_has_one_collector_unless_the_environment_names_another(
    spark: SparkSession,
) -> None:
    java: Any = spark.sparkContext._jvm
    beans = java.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    is_chosen = "GC" in os.environ.get("JAVA_TOOL_OPTIONS", "")
    assert is_chosen or {each.getName() for each in beans} == {"Copy", "MarkSweepCompact"}
    usual = short_lived_jvm_options({"JAVA_TOOL_OPTIONS": "-Xmx1g -XX:+UseStringDeduplication"})
    assert "-XX:+UseSerialGC" in usual
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        of_users = short_lived_jvm_options({name: "-Xmx1g -XX:+UseParallelGC"})
        assert of_users == tuple(each for each in usual if "GC" not in each)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="shows no maps of memory")
def test_the_session_starts_from_the_archive_of_set_up(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    home = Path(java.java.lang.System.getProperty("java.home"))
    if not (home / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java has no archive of its own to build on, so set-up left none")
    process = java.java.lang.ProcessHandle.current().pid()
    # A JVM does not keep an archive of another class path in memory.
    assert str(session_archive()) in Path(f"/proc/{process}/maps").read_text()


def test_an_interrupt_in_a_job_is_raised_once_and_closing_leaves_nothing(tmp_path: Path) -> None:
    """One session of its own for both, as each takes five seconds of CPU time."""
    done = _run_in_process(INTERRUPT, tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "interrupted, ended\n")
    assert not list(tmp_path.glob("redline-spark-*"))


INTERRUPT = """
import logging, os, signal, threading, time
from jobs.spark.session import close_session, local_session, run_interruptibly
from pyspark import SparkContext
logging.getLogger().addHandler(logging.NullHandler())  # Py4J logs the interrupt there
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell began us with &

def interrupt_when_it_runs():
    while not session.sparkContext.statusTracker().getActiveStageIds():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

session = local_session(slots=2)
process = SparkContext._gateway.proc
threading.Thread(target=interrupt_when_it_runs, daemon=True).start()
try:
    job = session.sparkContext.parallelize([1], 1)
    run_interruptibly(session, "sleep", lambda: job.foreach(lambda _: time.sleep(300)))
except KeyboardInterrupt:
    print("interrupted, ", end="")
assert session.sparkContext.parallelize([1], 1).count() == 1
assert process.poll() is None
close_session(session)
assert process.poll() is not None
print("ended")
"""


HUNG_S = 110
"""Time after which a process prints the stacks of its threads [s]."""


def _run_in_process(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in another process, as this one has the session of all tests."""
    script = f"import faulthandler\nfaulthandler.dump_traceback_later({HUNG_S}, exit=True)\n{code}"
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_numbers_of_tasks_in_the_configuration_are_kept() -> None:
    chosen = SparkConf(loadDefaults=False).set("spark.sql.shuffle.partitions", "64")
    assert dict(apply_small_table_settings(chosen).getAll()) == {
        "spark.sql.shuffle.partitions": "64",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.files.minPartitionNum": "1",
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
    }
