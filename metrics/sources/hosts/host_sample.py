"""The sample of one host, the protocol of a source of such samples, and the names of the readings.

All sources of host samples use the same names of readings. If such a name contains a colon, the
text after the colon is a part of the host, such as the disk `nvme0n1` in `disk_read_bytes:nvme0n1`.
A reading is a counter since the start of the host, unless its description begins with "Current".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from metrics.columns import Column, Moment


@dataclass(frozen=True)
class HostSample:
    """One sample of one host.

    Attributes:
        host: name of the host.
        at_s: wall-clock time of the middle of the sample [s since the epoch].
        values: name of a reading in `metrics.sources.hosts.host_sample` → its value. The map is
            empty if the sample failed or the system shows no readings.
        error: reason why the sample failed, or None.
    """

    host: str
    at_s: Annotated[float, Moment(), Column("at")]
    values: Annotated[Mapping[str, float], Column("readings")] = field(default_factory=dict)
    error: str | None = None


class HostSource(Protocol):
    """Reads the metrics of the brokers' hosts. Only one thread may use a source at a time."""

    @property
    def brokers(self) -> Mapping[str, tuple[int, ...]]:
        """Host → ids of the brokers on the host."""
        ...

    @property
    def machines(self) -> frozenset[str]:
        """The host names that processes on these hosts report."""
        ...

    def sample_all(self) -> Sequence[HostSample]:
        """One sample of each host. A failed sample has an error."""
        ...

    def close(self) -> None:
        """Close all connections. Further calls have no effect."""
        ...


class NoHosts:
    """A source without hosts, for clusters whose hosts are unknown."""

    def __init__(self) -> None:
        self.brokers: Mapping[str, tuple[int, ...]] = {}
        self.machines: frozenset[str] = frozenset()

    def sample_all(self) -> Sequence[HostSample]:
        """An empty sequence."""
        return ()

    def close(self) -> None:
        """Do nothing, because this source has no connections."""


CPU_S = "cpu_s"
"""Sum of the times of all cores in one state, such as `cpu_s:iowait` [s]."""
CORES = "cores"
"""Current number of cores."""
RUNNING_THREADS = "running_threads"
"""Current number of threads that run or wait for a core."""
MEMORY_TOTAL_BYTES = "memory_total_bytes"
"""Current size of the memory [B]."""
MEMORY_AVAILABLE_BYTES = "memory_available_bytes"
"""Current memory that programs can get without swapping [B]."""
PAGE_CACHE_BYTES = "page_cache_bytes"
"""Current size of the page cache [B]."""
DIRTY_BYTES = "dirty_bytes"
"""Current size of the dirty pages, which are pages of files that are not written to a disk yet
[B]."""
WRITEBACK_BYTES = "writeback_bytes"
"""Current size of the pages of files that are being written to disks [B]."""
DIRTY_EXPIRE_S = "dirty_expire_s"
"""Current age at which the kernel writes a dirty page (`vm.dirty_expire_centisecs`) [s]."""
DIRTY_RATIO = "dirty_ratio"
"""Current limit of the dirty pages as a share of the available memory (`vm.dirty_ratio`) [ratio].
Near this limit, writers wait for disks."""
DIRTY_BACKGROUND_RATIO = "dirty_background_ratio"
"""Current background limit of the dirty pages as a share of the available memory
(`vm.dirty_background_ratio`) [ratio]. Beyond this limit, the kernel writes pages of any age."""
DIRTY_LIMIT_BYTES = "dirty_limit_bytes"
"""Current limit of the dirty pages if the system sets the limit in bytes (`vm.dirty_bytes`) [B]."""
DIRTY_BACKGROUND_BYTES = "dirty_background_bytes"
"""Current background limit of the dirty pages if the system sets this limit in bytes
(`vm.dirty_background_bytes`) [B]."""
LOG_DISK = "log_disk"
"""Current mark of a disk with a log dir of a broker: always 1. No disk has this reading if the
disks of log dirs are not known."""
SWAPPED_IN_PAGES = "swapped_in_pages"
"""Pages read back from swap."""
SWAPPED_OUT_PAGES = "swapped_out_pages"
"""Pages written to swap."""
OOM_KILLS = "oom_kills"
"""Processes that the kernel killed because memory was exhausted."""
DISK_READ_BYTES = "disk_read_bytes"
"""Bytes read from a disk [B]."""
DISK_WRITTEN_BYTES = "disk_written_bytes"
"""Bytes written to a disk [B]."""
DISK_READS = "disk_reads"
"""Reads that a disk completed."""
DISK_WRITES = "disk_writes"
"""Writes that a disk completed."""
DISK_BUSY_S = "disk_busy_s"
"""Time in which a disk was busy [s]."""
DISK_QUEUED_S = "disk_queued_s"
"""Sum of the times of all operations of a disk, including the waits of the operations [s]."""
NET_RECEIVED_BYTES = "net_received_bytes"
"""Bytes that an interface received [B]."""
NET_SENT_BYTES = "net_sent_bytes"
"""Bytes that an interface sent [B]."""
NET_RECEIVED_PACKETS = "net_received_packets"
"""Packets that an interface received."""
NET_SENT_PACKETS = "net_sent_packets"
"""Packets that an interface sent."""
NET_RECEIVE_DROPS = "net_receive_drops"
"""Incoming packets that an interface dropped."""
NET_SEND_DROPS = "net_send_drops"
"""Outgoing packets that an interface or its queue dropped."""
NET_RECEIVE_ERRORS = "net_receive_errors"
"""Damaged packets that an interface received."""
NET_SEND_ERRORS = "net_send_errors"
"""Packets that an interface could not send."""
NET_SPEED_BYTES_PER_S = "net_speed_bytes_per_s"
"""Current speed of an interface in one direction [B/s]."""
TCP_SENT_SEGMENTS = "tcp_sent_segments"
"""Segments that TCP sent, retransmissions excluded."""
TCP_RETRANSMITTED_SEGMENTS = "tcp_retransmitted_segments"
"""Segments that TCP retransmitted."""
TCP_LISTEN_OVERFLOWS = "tcp_listen_overflows"
"""Connections that were refused because a listener's queue was full."""
PRESSURE_S = "pressure_s"
"""Time in which at least one task waited for `cpu`, `io` or `memory` (pressure stall information)
[s]."""
RESIDENT_BYTES = "resident_bytes"
"""Current memory of a broker's process: heap, stacks and mapped files [B]. In the reading
`resident_bytes:3`, the number 3 is the broker's node id."""

QUOTA_PERIODS = "quota_periods"
"""Periods in which the control group of the generator's tasks ran under a CPU quota."""
THROTTLED_PERIODS = "throttled_periods"
"""Periods in which the CPU quota of the generator's tasks was used up, so that their control group
was stopped."""
THROTTLED_S = "throttled_s"
"""Time for which the control group of the generator's tasks was stopped, summed over the group's
cores [s]."""

BROKER_QUOTA_PERIODS = "broker_quota_periods"
"""Periods in which a broker's control group ran under a CPU quota. In the reading
`broker_quota_periods:3`, the number 3 is the broker's node id."""
BROKER_THROTTLED_PERIODS = "broker_throttled_periods"
"""Periods in which the CPU quota of a broker was used up, so that the broker was stopped."""

CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The states in the reading `cpu_s`, in the order of /proc/stat."""

_NO_DISK = re.compile(r"(z?ram|loop|fd|(h|s|v|xv)d[a-z]+|nvme\d+n\d+p|mmcblk\d+p)\d+")
_NO_INTERFACE = re.compile(r"(ifb|sit|tunl|gre|gretap|erspan|ip_vti|ip6_vti|ip6tnl|ip6gre)\d*")


def is_disk(device: str) -> bool:
    """Whether a block device is a disk. Partitions do not count as disks, and neither do devices
    in memory.
    """
    return _NO_DISK.fullmatch(device) is None


def is_interface(device: str) -> bool:
    """Whether an interface can carry traffic. The kernel's templates for tunnels cannot carry
    traffic.
    """
    return _NO_INTERFACE.fullmatch(device) is None
