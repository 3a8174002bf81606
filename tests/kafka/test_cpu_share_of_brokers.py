"""A broker that may use half of a core, on the real thing."""

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


def test_a_broker_gets_its_share_and_nothing_of_it_stays(tmp_path: Path) -> None:
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
def test_what_a_kill_leaves_is_swept_up_from_another_group(tmp_path: Path) -> None:
    """As a service that starts a testbed is in a group of its own, and a shell in another."""
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
    # The kernel takes a moment to let go of who has ended; nothing else is in it.
    assert becomes(lambda: is_removed(service), GONE_S)


def is_removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


@contextmanager
def another_group(groups: CpuGroups) -> Iterator[Path]:
    """This process in a group of its own; back in the one where it was afterwards."""
    service = groups.make(f"service-of-tests-{os.getpid()}", os.cpu_count() or 1)
    (service / "cgroup.procs").write_text(f"{os.getpid()}")
    try:
        yield service
    finally:
        (groups.folder / "cgroup.procs").write_text(f"{os.getpid()}")
        is_removed(service)  # but for a testbed's group that is in it still
