"""Disks that fill up during a run: the brokers' disks, before and after the last byte, and that of
its files.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from metrics.tables.store import TableStore
from tests.support.commands import RunningCommand, document_in
from tests.support.processes import becomes, beside
from tests.support.small_disks import small_disk
from tests.support.spark_submission import records_written, require_no_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DISK_KB = 3_500_000
KEPT_BYTES = 1_000_000_000
PIECE_BYTES, PIECE_EVERY_S = 30_000_000, 0.5
"""Bytes of one write of another process: 60 MB/s in all, less on a busy machine."""
LEFT_BYTES = 700_000_000
"""Space that the other process leaves, as a testbed ends with less than 500 MB free [B]."""
FREE_AT_LEAST_BYTES = 800_000_000
"""Smallest free space at the end of the run [B]."""


def traffic(testbed: Testbed, folder: Path, *options: str) -> RunningCommand:
    return RunningCommand(
        "traffic", f"--cluster={cluster_file(testbed.folder)}", "--workload=1kB", "--yes",
        "--set=workload.topic.replication_factor=1", "--set=cluster.warm_up_max_s=0", *options,
        folder=folder,
    )  # fmt: skip


def test_a_run_stops_before_another_process_has_filled_the_brokers_disk(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", DISK_KB) as disk,
        start("default", brokers=1, root=disk, name="filling") as testbed,
        traffic(
            testbed, tmp_path, "--np=1", "--trials=1", "--set=workload.trial.measure_s=120",
            f"--set=goal.guards.disk_free_bytes_min={KEPT_BYTES}",
            "--set=goal.guards.disk_used_share_max=1",
        ) as command,
    ):  # fmt: skip
        command.await_line("trial-started trial=1 ", 120.0)
        with filled_by_another_process(disk):
            assert command.wait(200.0) == 5, command.text
        assert shutil.disk_usage(disk).free > FREE_AT_LEAST_BYTES
        assert "stopped by a guard: the volume of" in command.text
        assert "per second and would reach its limit in" in command.text, (
            "the guard reports it in advance"
        )
        assert "Traceback" not in command.text
        require_no_topics(testbed)


LOG_DIR_KB = 700_000
UNWATCHED = (
    "--set=goal.guards.disk_free_bytes_min=0",
    "--set=goal.guards.disk_used_share_max=null",
)


def test_a_log_dir_that_is_full_to_the_last_byte_ends_in_a_sentence(
    tmp_path: Path, spark: SparkSession
) -> None:
    """One of two log dirs of a broker goes offline during a trial, and stays offline."""
    options = ("--np=2", "--trials=2", "--set=workload.trial.measure_s=60", *UNWATCHED)
    with (
        small_disk(tmp_path / "disk", LOG_DIR_KB) as disk,
        start("default", brokers=1, root=tmp_path / "brokers", name="full",
              overrides={"log_dirs": 2}) as testbed,
    ):  # fmt: skip
        move_log_dir(testbed, disk)
        with traffic(testbed, tmp_path, *options) as command:
            command.await_line("trial-started trial=1 ", 120.0)
            assert becomes(lambda: records_written(testbed) > 0, 60.0)
            fill(disk / "of-another-process")
            assert becomes(lambda: offline(testbed), 120.0), "the broker takes the log dir offline"
            code = command.wait(300.0)
        assert "Traceback" not in command.text
        assert code == 5, command.text
        assert "stopped by a guard: " in command.text
        sentence = "data/2 of broker 1 is offline: its disk is full or fails"
        assert sentence in command.text
        testbed.check()
    run_id = document_in(tmp_path)["run_id"]
    (trial, *_) = TableStore(spark, str(tmp_path / "out" / "tables")).trials(run_id).collect()
    assert trial.verdict == "INVALID", trial.reasons


OUT_KB = 20_000


def test_a_full_disk_under_out_keeps_the_trials_and_is_reported_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    with (
        small_disk(tmp_path / "disk", OUT_KB) as disk,
        start("default", brokers=1, root=tmp_path / "brokers", name="out") as testbed,
    ):
        load = ("--set=workload.trial.warmup_s=1", "--set=workload.trial.measure_s=6")
        options = ("--np=2", "--trials=3", f"--out={disk / 'out'}", *load)
        with traffic(testbed, tmp_path, *options) as command:
            command.await_line("trial-started trial=2 ", 300.0)  # the first trial is durable then
            fill(disk / "of-another-process")
            assert command.wait(300.0) == 2, command.text
        assert "Traceback" not in command.text
        reports = [line for line in command.lines if "No space left on device" in line]
        assert any("cannot be written" in line and "make room" in line for line in reports)
        assert any("not written: " in line and "summary.json" in line for line in reports)
        store = TableStore(spark, str(disk / "out" / "tables"))
        (run_id,) = {row.run_id for row in store.read("runs").collect()}
        assert [row.trial for row in store.trials(run_id).collect()] == [1]
        require_no_topics(testbed)


def fill(file: Path) -> None:
    """Write until the disk has no free byte."""
    with suppress(OSError), file.open("wb", buffering=0) as raw:
        while raw.write(bytes(10_000)):
            continue
    assert shutil.disk_usage(file.parent).free == 0


def move_log_dir(testbed: Testbed, disk: Path) -> None:
    """Move the second log dir of the stopped broker to another disk."""
    testbed.kill_broker(1)
    own = testbed.folder / "broker-1" / "data" / "2"
    shutil.copytree(own, disk / "logs")
    shutil.rmtree(own)
    own.symlink_to(disk / "logs")
    testbed.restart_broker(1)


def offline(testbed: Testbed) -> bool:
    """True if the broker reports a failed log dir."""
    log = testbed.folder / "broker-1" / "server.log"
    return "Stopping serving logs in dir" in log.read_text(errors="replace")


def filled_by_another_process(disk: Path) -> AbstractContextManager[None]:
    over = threading.Event()

    def fill() -> None:
        with (disk / "of-another-process").open("wb") as file:
            while not over.is_set() and shutil.disk_usage(disk).free > LEFT_BYTES + PIECE_BYTES:
                began_s = time.monotonic()
                file.write(bytes(PIECE_BYTES))
                file.flush()
                over.wait(max(0.0, PIECE_EVERY_S - (time.monotonic() - began_s)))

    return beside(fill, over)
