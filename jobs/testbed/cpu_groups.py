"""Control groups that limit a broker's CPU time, if this process may create control groups.

Kernel documentation: admin-guide/cgroup-v2 (`cpu.max`) and scheduler/sched-bwc (version 1,
`cpu.cfs_quota_us`). A JVM derives its number of processors from the quota.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PERIOD_US = 100_000
PREFIX = "redline-"
ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")

_TRIES, _PAUSE_S = 40, 0.05


@dataclass(frozen=True)
class CpuGroups:
    """The folder in which control groups can be created, and the version of their files.

    Attributes:
        folder: folder of this process's control group.
        version: version of control groups, 1 or 2.
    """

    folder: Path
    version: int

    def make(self, name: str, cpus: float) -> Path:
        """Create a group that limits the CPU time of its processes; return the group's folder.

        Args:
            cpus: upper limit of the CPU time [s per s] that all processes of the group use
                together.
        """
        group = self.folder / name
        group.mkdir(exist_ok=True)
        quota = f"{max(1_000, round(cpus * PERIOD_US))}"
        if self.version == 1:
            (group / "cpu.cfs_period_us").write_text(f"{PERIOD_US}")
            (group / "cpu.cfs_quota_us").write_text(quota)
        else:
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        return group


def cpu_groups(root: Path = ROOT, own: Path = OWN) -> CpuGroups | None:
    """The folder for groups with a CPU quota; None if this process may not create them.

    Args:
        root: mount point of the control groups.
        own: file that lists the control groups of this process.
    """
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:  # not Linux
        return None
    for _number, names, path in lines:
        if "cpu" in names.split(","):
            folder = root / names / path.lstrip("/")
            return _usable(folder, folder / "cpu.cfs_quota_us", folder.parent == root, 1)
    for _number, names, path in lines:
        folder = root / path.lstrip("/")
        control = folder / "cgroup.subtree_control"
        if not names and control.exists() and "cpu" in control.read_text().split():
            return _usable(folder, folder / "cpu.max", folder == root, 2)
    return None


def _usable(folder: Path, quota: Path, is_root: bool, version: int) -> CpuGroups | None:
    """`CpuGroups` of this folder if it can contain groups with a quota; None otherwise."""
    if not is_root and not quota.exists():
        return None
    # Only an attempt shows the permission; the folder's mode does not.
    probe = folder / f"{PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return None
    return CpuGroups(folder, version)


def remove_groups(testbed_id: str, root: Path = ROOT) -> None:
    """Remove all groups of a testbed whose processes have ended.

    The function searches the whole tree, because the creator of the groups may have run in another
    group.
    """
    for folder, names, _files in os.walk(root):
        for name in [each for each in names if each.startswith(f"{PREFIX}{testbed_id}-")]:
            names.remove(name)
            _remove(Path(folder, name))


def _remove(group: Path) -> None:
    for _ in range(_TRIES):  # a reaped process stays in its group for a moment
        with suppress(OSError):
            group.rmdir()
        if not group.exists():
            return
        time.sleep(_PAUSE_S)


def group_name(testbed_id: str, node_id: int) -> str:
    """The name of a broker's control group."""
    return f"{PREFIX}{testbed_id}-{node_id}"
