"""Control groups that give a broker a share of the CPU time, where this process may make them.

Kernel documentation: admin-guide/cgroup-v2 (`cpu.max`) and scheduler/sched-bwc (version 1,
`cpu.cfs_quota_us`). A JVM sees the quota, and counts its processors by it.
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
    """The folder below which groups can be made, and how their quota is written.

    Attributes:
        folder: that of this process's own group.
        version: of the control groups, 1 or 2.
    """

    folder: Path
    version: int

    def make(self, name: str, cpus: float) -> Path:
        """A group whose processes together get so much CPU time; its folder.

        Args:
            cpus: seconds of CPU time in a second.
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
    """Where this process may make groups with a CPU quota; None where it may not.

    Args:
        root: where control groups are mounted.
        own: says in which groups this process is.
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
    """A group of the root has no quota of its own; any other must have one."""
    has_quota = is_root or quota.exists()
    return CpuGroups(folder, version) if has_quota and _may_make_in(folder) else None


def _may_make_in(folder: Path) -> bool:
    """Whether a group can be made: only trying tells, as the folders' modes deny it to all."""
    probe = folder / f"{PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def remove_groups(testbed_id: str, root: Path = ROOT) -> None:
    """Remove what groups there are of a testbed whose processes have ended.

    Wherever they are: who made them may have been in another group than who tidies up.
    """
    for folder, names, _files in os.walk(root):
        for name in [each for each in names if each.startswith(f"{PREFIX}{testbed_id}-")]:
            names.remove(name)
            _remove(Path(folder, name))


def _remove(group: Path) -> None:
    for _ in range(_TRIES):  # a process that was reaped leaves its group a moment later
        with suppress(OSError):
            group.rmdir()
        if not group.exists():
            return
        time.sleep(_PAUSE_S)


def group_name(testbed_id: str, node_id: int) -> str:
    """That of a broker's group."""
    return f"{PREFIX}{testbed_id}-{node_id}"
