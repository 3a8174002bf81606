"""Metrics of this machine from Linux's /proc and /sys. The manual page proc(5) and Linux's
Documentation/admin-guide/iostats.rst describe these files. The files are read directly, because the
package psutil shows neither pressure, nor retransmits, nor the queues of disks. The network
counters of another network namespace are in the directory that /proc has for a process in that
namespace.

A CPU quota (`cpu.max`, `cpu.cfs_quota_us`) is an amount of CPU time per period, usually per 100 ms.
A control group that has used up its quota stops until the next period, even if the machine has idle
cores. A process also stops if a parent group has used up its quota. The counters are in `cpu.stat`
(Documentation/admin-guide/cgroup-v2 and scheduler/sched-bwc). Both versions of control groups are
supported.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.hosts.queues import Queues

_PERIODS, _THROTTLED = "nr_periods", "nr_throttled"
_TIMES_S = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
"""Name of a counter → unit of this counter [s]. The counter shows how long a group was stopped. The
name of the counter is `throttled_usec` in version 2 of control groups, and `throttled_time` in
version 1."""


def throttling(stat_files: Sequence[Path]) -> dict[str, float]:
    """The readings of a CPU quota, combined from several control groups. The result is empty if no
    group shows the counters of a quota.

    Args:
        stat_files: the file `cpu.stat` of each group. See `own_stat_files`.
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
    """The files `cpu.stat` of a process's control groups and of their parents.

    Args:
        proc, sys: directories of the kernel's files.
        process: id of the process, by default this process.
    """
    found = {path.resolve() for path in _possible_files(proc, sys, process)}
    return tuple(sorted(path for path in found if path.is_file()))


def _possible_files(proc: Path, sys: Path, process: str) -> Iterator[Path]:
    mounts = sys / "fs/cgroup"
    for line in _proc_read(proc / process / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if "cpu" in controllers.split(","):
            roots = [mounts / controllers, mounts / "cpu"]
        elif number == "0" and not controllers:
            roots = [mounts, mounts / "unified"]
        else:
            continue
        for root in roots:
            # In a container, the path may be the host's path, but the root is the container's.
            own = [root / Path(*Path(place).parts[1:end]) for end in range(1, place.count("/") + 2)]
            yield from (folder / "cpu.stat" for folder in (root, *own))


def _read(path: Path) -> dict[str, int]:
    words = _proc_read(path).split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return {name: int(number) for name, number in pairs if number.isdecimal()}


_PROC = Path("/proc")
_SYS = Path("/sys")
_SECTOR_BYTES = 512
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

_OF_MEMORY = {
    "MemTotal:": readings.MEMORY_TOTAL_BYTES,
    "MemAvailable:": readings.MEMORY_AVAILABLE_BYTES,
    "Cached:": readings.PAGE_CACHE_BYTES,
    "Dirty:": readings.DIRTY_BYTES,
    "Writeback:": readings.WRITEBACK_BYTES,
}
# File in /proc/sys/vm → (reading, size of one unit). A limit of 0 bytes means that it is not set.
_OF_WRITE_BACK = {
    "dirty_expire_centisecs": (readings.DIRTY_EXPIRE_S, 0.01),
    "dirty_ratio": (readings.DIRTY_RATIO, 0.01),
    "dirty_background_ratio": (readings.DIRTY_BACKGROUND_RATIO, 0.01),
    "dirty_bytes": (readings.DIRTY_LIMIT_BYTES, 1.0),
    "dirty_background_bytes": (readings.DIRTY_BACKGROUND_BYTES, 1.0),
}
_OF_VMSTAT = {
    "pswpin": readings.SWAPPED_IN_PAGES,
    "pswpout": readings.SWAPPED_OUT_PAGES,
    "oom_kill": readings.OOM_KILLS,
}
# Column in /proc/diskstats after the device's name → (reading, size of one unit).
_OF_DISKS = {
    0: (readings.DISK_READS, 1.0),
    2: (readings.DISK_READ_BYTES, _SECTOR_BYTES),
    4: (readings.DISK_WRITES, 1.0),
    6: (readings.DISK_WRITTEN_BYTES, _SECTOR_BYTES),
    9: (readings.DISK_BUSY_S, 1e-3),
    10: (readings.DISK_QUEUED_S, 1e-3),
}
# Column in /proc/net/dev after the colon → reading.
_OF_INTERFACES = {
    0: readings.NET_RECEIVED_BYTES,
    1: readings.NET_RECEIVED_PACKETS,
    2: readings.NET_RECEIVE_ERRORS,
    3: readings.NET_RECEIVE_DROPS,
    8: readings.NET_SENT_BYTES,
    9: readings.NET_SENT_PACKETS,
    10: readings.NET_SEND_ERRORS,
    11: readings.NET_SEND_DROPS,
}


_OF_QUOTAS = {
    readings.QUOTA_PERIODS: readings.BROKER_QUOTA_PERIODS,
    readings.THROTTLED_PERIODS: readings.BROKER_THROTTLED_PERIODS,
}


class LocalHost:
    """Takes samples of this machine. A sample lacks the readings that the system does not show.

    On macOS a sample has no readings.

    Args:
        name: name of the host, by default the machine's host name.
        network_of: returns the id of the process whose network namespace is read, or None to read
            the namespace of this process.
        speeds: interface → its speed [B/s], which replaces the speed that the system reports.
        queues: queues of the interfaces in this namespace, or None if the queues are not read. The
            queues' drops are added to the interfaces' drops.
        clock: wall clock [s since the epoch].
        proc, sys: directories of the kernel's files.
        generates: True if this process makes the load, so that its own CPU quota is also read.
    """

    def __init__(
        self,
        name: str | None = None,
        network_of: Callable[[], int | None] = lambda: None,
        speeds: Mapping[str, float] | None = None,
        queues: Queues | None = None,
        clock: Callable[[], float] = time.time,
        proc: Path = _PROC,
        sys: Path = _SYS,
        *,
        generates: bool = False,
    ) -> None:
        self.name = name or socket.gethostname()
        self._network_of = network_of
        self._speeds = dict(speeds or {})
        self._queues = queues
        self._clock = clock
        self._proc = proc
        self._sys = sys
        self._stat_files = own_stat_files(proc, sys) if generates else ()
        self._groups: dict[int, tuple[Path, ...]] = {}
        self._log_disks: frozenset[str] = frozenset()
        self._write_back = self._settings()

    def with_log_dirs(self, log_dirs: Iterable[Path]) -> LocalHost:
        """Add the disks of some log dirs to the later samples, and return this host. A disk with a
        log dir is counted even if `is_disk` is false for it.
        """
        self._log_disks = log_disks(log_dirs, self._sys)
        return self

    def sample(self, processes: Mapping[int, int] | None = None) -> HostSample:
        """Take a sample of the machine.

        Args:
            processes: broker id → id of the broker's process. The memory and the CPU quota of each
                process are also read.
        """
        at_s = self._clock()
        other_pid = self._network_of()
        net = self._proc / ("self" if other_pid is None else str(other_pid)) / "net"
        values = {
            **self._cpu(),
            **_named(self._lines("meminfo"), _OF_MEMORY, 1024.0),
            **_named(self._lines("vmstat"), _OF_VMSTAT),
            **self._disks(),
            **self._interfaces(net, is_own=other_pid is None),
            **_tcp(_proc_read(net / "snmp"), _proc_read(net / "netstat")),
            **self._pressure(),
            **self._resident(processes or {}),
            **self._throttling(processes or {}),
            **throttling(self._stat_files),
            **self._write_back,
        }
        return HostSample(self.name, at_s, values)

    def _lines(self, name: str) -> list[str]:
        return _proc_read(self._proc / name).splitlines()

    def _cpu(self) -> dict[str, float]:
        found: dict[str, float] = {}
        cores = 0
        for line in self._lines("stat"):
            key, *numbers = line.split()
            if key == "cpu":
                for state, ticks in zip(readings.CPU_STATES, numbers, strict=False):
                    found[f"{readings.CPU_S}:{state}"] = int(ticks) / _TICKS_PER_S
            elif key.startswith("cpu"):
                cores += 1
            elif key == "procs_running":
                found[readings.RUNNING_THREADS] = float(numbers[0])
        return {**found, readings.CORES: float(cores)} if cores else found

    def _disks(self) -> dict[str, float]:
        found = {}
        for line in self._lines("diskstats"):
            _, _, device, *numbers = line.split()
            is_counted = readings.is_disk(device) or device in self._log_disks
            if is_counted and any(number != "0" for number in numbers):
                for column, (reading, unit) in _OF_DISKS.items():
                    found[f"{reading}:{device}"] = int(numbers[column]) * unit
        return {**found, **{f"{readings.LOG_DISK}:{each}": 1.0 for each in self._log_disks}}

    def _settings(self) -> dict[str, float]:
        """The kernel's settings of write-back, which are read once for each `LocalHost`."""
        found = {}
        for name, (reading, unit) in _OF_WRITE_BACK.items():
            text = _proc_read(self._proc / "sys/vm" / name).strip()
            if text.isdecimal() and (int(text) or not name.endswith("_bytes")):
                found[reading] = int(text) * unit
        return found

    def _interfaces(self, net: Path, *, is_own: bool) -> dict[str, float]:
        found = {}
        queued = {} if self._queues is None else self._queues.dropped()
        for line in _proc_read(net / "dev").splitlines()[2:]:
            name, _, rest = line.partition(":")
            device, numbers = name.strip(), rest.split()
            if not readings.is_interface(device):
                continue
            for column, reading in _OF_INTERFACES.items():
                found[f"{reading}:{device}"] = float(numbers[column])
            found[f"{readings.NET_SEND_DROPS}:{device}"] += queued.get(device, 0)
            speed = self._speeds.get(device) or (self._speed(device) if is_own else None)
            if speed is not None:
                found[f"{readings.NET_SPEED_BYTES_PER_S}:{device}"] = speed
        return found

    def _speed(self, device: str) -> float | None:
        """The speed of a network card [B/s] according to the card's driver, or None for a virtual
        interface. Virtual interfaces report no speed or a wrong speed.
        """
        if not (self._sys / "class/net" / device / "device").exists():
            return None
        text = _proc_read(self._sys / "class/net" / device / "speed").strip()
        return int(text) * 125_000.0 if text.isdecimal() else None  # Mbit/s

    def _pressure(self) -> dict[str, float]:
        found = {}
        for resource in ("cpu", "io", "memory"):
            for line in self._lines(f"pressure/{resource}"):
                kind, *parts = line.split()
                figures = dict(part.split("=") for part in parts)
                if kind == "some":
                    found[f"{readings.PRESSURE_S}:{resource}"] = int(figures["total"]) / 1e6
        return found

    def _resident(self, processes: Mapping[int, int]) -> dict[str, float]:
        found: dict[str, float] = {}
        for broker, pid in processes.items():
            reading = f"{readings.RESIDENT_BYTES}:{broker}"
            found |= _named(self._lines(f"{pid}/status"), {"VmRSS:": reading}, 1024.0)
        return found

    def _throttling(self, processes: Mapping[int, int]) -> dict[str, float]:
        """The readings of each broker's CPU quota. The control groups of a process are searched
        once.
        """
        found = {}
        for broker, pid in processes.items():
            if pid not in self._groups:
                self._groups[pid] = own_stat_files(self._proc, self._sys, str(pid))
            own = throttling(self._groups[pid])
            for name, reading in _OF_QUOTAS.items():
                if name in own:
                    found[f"{reading}:{broker}"] = own[name]
        return found


def log_disks(log_dirs: Iterable[Path], sys: Path = _SYS) -> frozenset[str]:
    """The names of the disks that contain the given directories. The names are as in
    /proc/diskstats.

    The result has no disk for a directory that this user cannot read or that is not on a block
    device. If a directory is on a partition, the result has the disk of the partition.
    """
    found = set()
    for each in log_dirs:
        try:
            number = each.stat().st_dev
        except OSError:
            continue
        device = sys / f"dev/block/{os.major(number)}:{os.minor(number)}"
        if device.exists():
            own = device.resolve()
            found.add(own.parent.name if (own / "partition").exists() else own.name)
    return frozenset(found)


class LocalHosts:
    """The host source for a cluster whose brokers all run on this machine.

    Args:
        host: takes the samples of the machine.
        brokers: ids of all brokers.
        processes: returns broker id → id of the broker's current process. The map lacks brokers
            whose process is not known.
    """

    def __init__(
        self,
        host: LocalHost,
        brokers: Sequence[int],
        processes: Callable[[], Mapping[int, int]] = dict,
    ) -> None:
        self._host = host
        self._processes = processes
        self.brokers: Mapping[str, tuple[int, ...]] = {host.name: tuple(brokers)}
        self.machines = frozenset({socket.gethostname()})

    def sample_all(self) -> Sequence[HostSample]:
        """One sample of each host, as `HostSource.sample_all` describes."""
        (own,) = self.brokers.values()
        pids = {broker: pid for broker, pid in self._processes().items() if broker in own}
        return [self._host.sample(pids)]

    def close(self) -> None:
        """Do nothing, because this source has no connections."""


def _proc_read(path: Path) -> str:
    """The text of a file of the kernel, or an empty text if the file does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _named(lines: Sequence[str], names: Mapping[str, str], unit: float = 1.0) -> dict[str, float]:
    """Reading → its number, from lines of the form `name number …`."""
    found = {}
    for line in lines:
        key, *rest = line.split()
        if key in names and rest:
            found[names[key]] = float(rest[0]) * unit
    return found


def _tcp(*texts: str) -> dict[str, float]:
    """The TCP counters in /proc/net/snmp and netstat.

    In these files, a line of names precedes each line of numbers.
    """
    found = {}
    wanted = {
        ("Tcp:", "OutSegs"): readings.TCP_SENT_SEGMENTS,
        ("Tcp:", "RetransSegs"): readings.TCP_RETRANSMITTED_SEGMENTS,
        ("TcpExt:", "ListenOverflows"): readings.TCP_LISTEN_OVERFLOWS,
    }
    lines = [line.split() for text in texts for line in text.splitlines()]
    for (protocol, *names), (_, *numbers) in zip(lines[::2], lines[1::2], strict=False):
        for name, number in zip(names, numbers, strict=False):
            if (protocol, name) in wanted:
                found[wanted[protocol, name]] = float(number)
    return found
