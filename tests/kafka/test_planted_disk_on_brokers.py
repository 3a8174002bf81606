"""Real brokers on disks with a stated write rate, which leave no device, mount or rate behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from jobs.config.link import PlantedDisk
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.places import NodeFiles, log_dirs
from jobs.testbed.planted_devices import RATE_FILE, devices_below, planted_disk_problem
from tests.support.processes import becomes, processes_with

RATE = "1MB/s"
LACKING = planted_disk_problem(PlantedDisk(RATE))
GONE_S = 60.0
WAITING_BYTES = 60_000_000
"""Bytes that wait in memory at the end, which the disk would take a minute to write."""

pytestmark = [
    pytest.mark.together,
    pytest.mark.long,
    pytest.mark.skipif(LACKING is not None, reason=LACKING or ""),
]


def started(root: Path) -> tuple[Testbed, Path, list[str]]:
    """A testbed of one broker, its data folder, and the numbers of its devices."""
    overrides: dict[str, object] = {"disk.write_rate": RATE, "disk.dirty_bytes": 0, "log_dirs": 2}
    testbed = start("planted-disk", brokers=1, overrides=overrides, root=root)
    data = NodeFiles(testbed.brokers[1]).data
    devices = devices_below(testbed.folder)
    assert len(devices) == 2 and data.is_mount()
    for folder in log_dirs(data, 2):
        assert (folder / "meta.properties").exists()
    assert f"{devices[0].number} 1000000\n" in RATE_FILE.read_text()
    assert testbed.environment["disk.write_rate"] == RATE
    (data / "waiting").write_bytes(bytes(WAITING_BYTES))
    return testbed, data, [each.number for each in devices]


def require_nothing_left(testbed: Testbed, data: Path, numbers: list[str]) -> None:
    assert devices_below(testbed.folder) == []
    assert str(data) not in Path("/proc/self/mounts").read_text()
    limited = [line.split()[0] for line in RATE_FILE.read_text().splitlines()]
    assert not set(limited) & set(numbers)


def test_a_stop_removes_the_disks_and_does_not_wait_for_them(tmp_path: Path) -> None:
    testbed, data, numbers = started(tmp_path)
    began_s = time.monotonic()
    testbed.stop()
    assert time.monotonic() - began_s < 0.8 * WAITING_BYTES / 1e6
    require_nothing_left(testbed, data, numbers)
    assert not testbed.folder.exists()


def test_disks_left_by_a_killed_supervisor_are_removed(tmp_path: Path) -> None:
    testbed, data, numbers = started(tmp_path)
    os.kill(testbed.supervisor_pid, signal.SIGKILL)
    assert becomes(lambda: not processes_with(testbed.id), GONE_S)
    assert len(devices_below(testbed.folder)) == 2, "no process is left to remove them"
    testbed.stop()
    require_nothing_left(testbed, data, numbers)
