"""Brokers whose disk fills up while a run loads them: it stops before the disk is full."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.cluster.connect import connect
from jobs.cluster.topic_plan import PREFIX
from jobs.testbed.launcher import start
from jobs.testbed.use import cluster_file
from tests.support.commands import RunningCommand
from tests.support.small_disks import small_disk

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DISK_KB = 3_500_000
KEPT_BYTES = 1_000_000_000
PIECE_BYTES, PIECE_EVERY_S = 30_000_000, 0.5
"""What somebody else writes: 60 MB/s, less where the machine is busy."""
LEFT_BYTES = 700_000_000
"""Somebody else leaves that much, as the testbed ends where less than 500 MB are free."""
FREE_AT_LEAST_BYTES = 800_000_000
"""So much is left when the run has ended."""


def test_a_run_stops_before_somebody_else_has_filled_the_brokers_disk(tmp_path: Path) -> None:
    options = (
        "--workload", "1kB", "--np", "1", "--trials", "1", "--yes",
        "--set", "workload.topic.replication_factor=1",
        "--set", "workload.trial.measure_s=120",
        "--set", f"goal.guards.disk_free_bytes_min={KEPT_BYTES}",
        "--set", "goal.guards.disk_used_share_max=1",
        "--set", "cluster.warm_up_max_s=0",
    )  # fmt: skip
    with (
        small_disk(tmp_path / "disk", DISK_KB) as disk,
        start("default", brokers=1, root=disk, name="filling") as testbed,
        RunningCommand("traffic", "--cluster", str(cluster_file(testbed.folder)), *options,
                       folder=tmp_path) as command,
    ):  # fmt: skip
        command.await_line("trial-started trial=1 ", 120.0)
        with filled_by_somebody_else(disk):
            assert command.wait(200.0) == 5, command.text
        assert shutil.disk_usage(disk).free > FREE_AT_LEAST_BYTES
        assert "stopped by a guard: the volume of" in command.text
        assert "a second and has room for" in command.text, "seen coming"
        assert "Traceback" not in command.text
        testbed.check()
        with connect(testbed.bootstrap_servers, {}) as admin:
            assert [name for name in admin.topic_names() if name.startswith(PREFIX)] == []


@contextmanager
def filled_by_somebody_else(disk: Path) -> Iterator[None]:
    over = threading.Event()

    def fill() -> None:
        with (disk / "of-somebody-else").open("wb") as file:
            while not over.is_set() and shutil.disk_usage(disk).free > LEFT_BYTES + PIECE_BYTES:
                began_s = time.monotonic()
                file.write(bytes(PIECE_BYTES))
                file.flush()
                over.wait(max(0.0, PIECE_EVERY_S - (time.monotonic() - began_s)))

    writer = threading.Thread(target=fill)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
