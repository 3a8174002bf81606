"""Real brokers with a quota of half a core."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from jobs.testbed.cpu_groups import CpuGroups, cpu_groups, group_name
from jobs.testbed.launcher import start
from tests.support.processes import becomes, processes_with

pytestmark = pytest.mark.together

GONE_S = 60.0


def test_a_broker_gets_its_share_and_its_group_is_removed(tmp_path: Path) -> None:
    groups = cpu_groups()
    cpus = 1.0 if groups is None else 0.5
    with start(brokers=1, overrides={"cpus": cpus}, root=tmp_path) as testbed:
        pid = testbed.pids[1]
        controller = testbed.pids[testbed.controller.node_id]
        if groups is None:
            assert len(os.sched_getaffinity(pid)) == 1
            return
        group = groups.folder / group_name(testbed.id, 1)
        assert str(pid) in (group / "cgroup.procs").read_text().split()
        assert str(controller) not in (group / "cgroup.procs").read_text().split()
        throttled = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        assert int(throttled["nr_throttled"]) > 0, "a starting JVM takes more than half of a core"
    assert not group.exists()


@pytest.mark.long
def test_groups_left_by_a_kill_are_removed_from_another_group(tmp_path: Path) -> None:
    """A service that starts a testbed and a shell are in different control groups."""
    groups = cpu_groups()
    if groups is None:
        pytest.skip("CPU-quota cgroups cannot be created here")
    with another_group(groups) as service:
        if cpu_groups() is None:
            pytest.skip("a group of a group has no quota here, as on version 2 without a delegate")
        testbed = start(brokers=1, overrides={"cpus": 1}, root=tmp_path)
    group = service / group_name(testbed.id, 1)
    try:
        assert group.exists()
        os.kill(testbed.supervisor_pid, signal.SIGKILL)
        assert becomes(lambda: not processes_with(testbed.id), GONE_S)
        assert group.exists(), "no process is left to remove it"
    finally:
        testbed.stop()
    assert not group.exists()
    # The kernel needs a moment to remove ended processes from the group.
    assert becomes(lambda: is_removed(service), GONE_S)


def is_removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


@contextmanager
def another_group(groups: CpuGroups) -> Iterator[Path]:
    """Move this process to a new group within this context."""
    service = groups.make(f"service-of-tests-{os.getpid()}", os.cpu_count() or 1)
    (service / "cgroup.procs").write_text(f"{os.getpid()}")
    try:
        yield service
    finally:
        (groups.folder / "cgroup.procs").write_text(f"{os.getpid()}")
        is_removed(service)  # except for a testbed's group within it
