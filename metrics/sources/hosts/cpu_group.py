"""The throttling of a process by the CPU quota of its control group, of either version.

A quota (`cpu.max`, `cpu.cfs_quota_us`) is an amount of CPU time per period, usually 100 ms. A group
that has used it up stops until the next period, although the machine may have idle cores. The
counters are those of `cpu.stat` (Documentation/admin-guide/cgroup-v2 and scheduler/sched-bwc); a
quota of a parent group stops a process as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from metrics.sources.hosts import readings

_PERIODS, _THROTTLED = "nr_periods", "nr_throttled"
_TIMES_S = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
"""Time in which groups stood still, in version 2 and in version 1 → its unit [s]."""


def throttling(stat_files: Sequence[Path]) -> dict[str, float]:
    """The readings of some groups; empty where none has a quota or shows its counters.

    Args:
        stat_files: the `cpu.stat` of each group, see `own_stat_files`.
    """
    groups = [counters for path in stat_files if _PERIODS in (counters := _read(path))]
    if not groups:
        return {}
    stopped_s = sum(
        counters.get(name, 0) * unit for counters in groups for name, unit in _TIMES_S.items()
    )
    return {
        readings.QUOTA_PERIODS: float(max(counters[_PERIODS] for counters in groups)),
        readings.THROTTLED_PERIODS: float(sum(c.get(_THROTTLED, 0) for c in groups)),
        readings.THROTTLED_S: stopped_s,
    }


def own_stat_files(proc: Path, sys: Path, process: str = "self") -> tuple[Path, ...]:
    """The `cpu.stat` of each group of a process and of their parents.

    Args:
        proc, sys: directories of the kernel's files.
        process: id of the process; this one by default.
    """
    found = {path.resolve() for path in _possible_files(proc, sys, process)}
    return tuple(sorted(path for path in found if path.is_file()))


def _possible_files(proc: Path, sys: Path, process: str) -> Iterator[Path]:
    try:
        text = (proc / process / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    mounts = sys / "fs/cgroup"
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if "cpu" in controllers.split(","):
            roots = [mounts / controllers, mounts / "cpu"]
        elif number == "0" and not controllers:
            roots = [mounts, mounts / "unified"]
        else:
            continue
        for root in roots:
            # In a container the path may be that of the host, and the root is the container's.
            own = [root / Path(*Path(place).parts[1:end]) for end in range(1, place.count("/") + 2)]
            yield from (folder / "cpu.stat" for folder in (root, *own))


def _read(path: Path) -> dict[str, int]:
    try:
        words = path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return {}
    pairs = zip(words[::2], words[1::2], strict=False)
    return {name: int(number) for name, number in pairs if number.isdecimal()}
