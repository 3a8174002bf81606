"""The protocol of a source of host samples.

The sample of one host, which every host source returns.

The readings of a host: counters of Linux, with the same names for every source.

The part after a colon names a part of the host: `disk_read_bytes:nvme0n1`. Readings are counters
since the host's start, unless their description says "now".
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
        at_s: wall-clock time of the sample's middle [s since the epoch].
        values: readings by the names of `metrics.sources.hosts.source`; empty when the sample
            failed, or where the system shows none.
        error: why the sample failed, or None.
    """

    host: str
    at_s: Annotated[float, Moment(), Column("at")]
    values: Annotated[Mapping[str, float], Column("readings")] = field(default_factory=dict)
    error: str | None = None


class HostSource(Protocol):
    """Reads the brokers' hosts, all at once; only one thread at a time may use it."""

    @property
    def brokers(self) -> Mapping[str, tuple[int, ...]]:
        """Host → ids of the brokers that run on it."""
        ...

    @property
    def machines(self) -> frozenset[str]:
        """Names of these hosts as processes on them know them."""
        ...

    def sample_all(self) -> Sequence[HostSample]:
        """One sample of each host; a failed one has its error."""
        ...

    def close(self) -> None:
        """Close the connections; further calls are harmless."""
        ...


class NoHosts:
    """The source where the brokers' hosts are unknown: it has no hosts."""

    def __init__(self) -> None:
        self.brokers: Mapping[str, tuple[int, ...]] = {}
        self.machines: frozenset[str] = frozenset()

    def sample_all(self) -> Sequence[HostSample]:
        """An empty sequence."""
        return ()

    def close(self) -> None:
        """See `HostSource.close`."""


CPU_S = "cpu_s"
"""Time of all cores by state, such as `cpu_s:iowait` [s]."""
CORES = "cores"
"""Number of cores, now."""
RUNNING_THREADS = "running_threads"
"""Threads that run or wait for a core, now."""
MEMORY_TOTAL_BYTES = "memory_total_bytes"
"""Size of the memory, now [B]."""
MEMORY_AVAILABLE_BYTES = "memory_available_bytes"
"""Memory that programs can still get without swapping, now [B]."""
PAGE_CACHE_BYTES = "page_cache_bytes"
"""Memory that holds pages of files, now [B]."""
DIRTY_BYTES = "dirty_bytes"
"""Written pages of files that only memory holds, now [B]."""
WRITEBACK_BYTES = "writeback_bytes"
"""Pages of files that are being written to disks, now [B]."""
DIRTY_EXPIRE_S = "dirty_expire_s"
"""Age at which the kernel writes a dirty page (`vm.dirty_expire_centisecs`), now [s]."""
DIRTY_RATIO = "dirty_ratio"
"""Share of the available memory that dirty pages fill before writers wait for disks
(`vm.dirty_ratio`), now [ratio]."""
DIRTY_BACKGROUND_RATIO = "dirty_background_ratio"
"""Share of the available memory from which the kernel writes dirty pages of any age
(`vm.dirty_background_ratio`), now [ratio]."""
DIRTY_LIMIT_BYTES = "dirty_limit_bytes"
"""The same limit where it is set in bytes (`vm.dirty_bytes`), now [B]."""
DIRTY_BACKGROUND_BYTES = "dirty_background_bytes"
"""The same limit where it is set in bytes (`vm.dirty_background_bytes`), now [B]."""
LOG_DISK = "log_disk"
"""1 for a disk that has a log dir of a broker, where that is known, now."""
SWAPPED_IN_PAGES = "swapped_in_pages"
"""Pages read back from swap."""
SWAPPED_OUT_PAGES = "swapped_out_pages"
"""Pages written to swap."""
OOM_KILLS = "oom_kills"
"""Processes that the kernel killed for lack of memory."""
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
"""Sum of the times of all operations of a disk, their waits included [s]."""
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
"""Outgoing packets that an interface dropped, and its queue where that is known."""
NET_RECEIVE_ERRORS = "net_receive_errors"
"""Damaged packets that an interface received."""
NET_SEND_ERRORS = "net_send_errors"
"""Packets that an interface could not send."""
NET_SPEED_BYTES_PER_S = "net_speed_bytes_per_s"
"""Speed of an interface, one direction, now [B/s]."""
TCP_SENT_SEGMENTS = "tcp_sent_segments"
"""Segments that TCP sent, retransmissions excluded."""
TCP_RETRANSMITTED_SEGMENTS = "tcp_retransmitted_segments"
"""Segments that TCP retransmitted."""
TCP_LISTEN_OVERFLOWS = "tcp_listen_overflows"
"""Connections that were refused because a listener's queue was full."""
PRESSURE_S = "pressure_s"
"""Time in which some task waited for `cpu`, `io` or `memory` (pressure stall information) [s]."""
RESIDENT_BYTES = "resident_bytes"
"""Memory of a broker's process, by its node id, now: heap, stacks, and mapped files [B]."""

QUOTA_PERIODS = "quota_periods"
"""Periods in which the control group of the generator's tasks ran under a CPU quota."""
THROTTLED_PERIODS = "throttled_periods"
"""Periods in which that quota was used up, so that the group stopped."""
THROTTLED_S = "throttled_s"
"""Time for which the group stopped, summed over its cores [s]."""

BROKER_QUOTA_PERIODS = "broker_quota_periods"
"""Periods in which the control group of a broker, by its node id, ran under a CPU quota."""
BROKER_THROTTLED_PERIODS = "broker_throttled_periods"
"""Periods in which that quota was used up, so that the broker stopped."""

CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The states of `cpu_s`, in the order of /proc/stat."""

_NO_DISK = re.compile(r"(z?ram|loop|fd|(h|s|v|xv)d[a-z]+|nvme\d+n\d+p|mmcblk\d+p)\d+")
_NO_INTERFACE = re.compile(r"(ifb|sit|tunl|gre|gretap|erspan|ip_vti|ip6_vti|ip6tnl|ip6gre)\d*")


def is_disk(device: str) -> bool:
    """Whether a block device counts: partitions (part of a disk) and devices in memory do not."""
    return _NO_DISK.fullmatch(device) is None


def is_interface(device: str) -> bool:
    """Whether an interface counts: the templates of tunnels, which carry no traffic, do not."""
    return _NO_INTERFACE.fullmatch(device) is None
