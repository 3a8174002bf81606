"""The nearness of each resource to its limit: the USE table, each row over its limit.

The limits are those of the attribution, so that the attribution and the table cannot contradict
each other.
"""

from __future__ import annotations

import math

from metrics.judging.thresholds import Thresholds
from metrics.windows.resource import Resource
from metrics.windows.use import ResourceUse

NETWORK_IDLE_LOW = 0.20
"""Idle fraction of a network thread below which it is a bottleneck [ratio]."""

CPU_SATURATED = 0.90
"""Busy share of the machine above which threads wait for a core [ratio]."""

THROTTLED_SHARE_HIGH = 0.5
"""Share of the periods of a broker's CPU quota in which it is used up above which the broker lacks
CPU time, although the machine may have idle cores [ratio]."""

GC_SHARE_HIGH = 0.25
"""Share of time in garbage collection above which the heap is the limiting resource [ratio]."""

HEAP_FULL = 0.95
"""Lowest used share of the heap above which collections leave no room [ratio]."""

DISK_BUSY_HIGH = 0.90
"""Share of time in flushes above which the disk is busy, whichever threads wait for it [ratio]."""

LINK_SHARE_HIGH = 0.90
"""Utilization of the network interface by Kafka's own bytes above which it is full [ratio]. Headers
of TCP, IP and Ethernet take 4 to 6 % of it."""

DISK_QUEUE_HIGH = 1.0
"""Mean number of operations in a busy disk's queue above which some of them wait [operations]."""

DISK_BUSY_UNDER_PRESSURE = 0.70
"""Share of time in which a disk with a queue has work above which it is full although it rests at
times, where tasks wait for I/O. The kernel lets writers wait for up to 0.2 s once its share of
memory for a disk is full, and the disk may rest meanwhile [ratio]."""

PRESSURE_IO_HIGH = 0.5
"""Share of the time in which a task of the host waited for I/O from which writers wait for a disk.
Write-back alone stays below 0.25 on disks that are busy for 0.70 of the time [ratio]."""

DROPPED_SHARE_HIGH = 0.001
"""Share of a host's packets that it drops above which TCP slows down [ratio]."""

RETRANSMITTED_SHARE_HIGH = 0.01
"""Share of TCP's segments that are retransmitted above which loss limits a connection [ratio].
Reno's throughput falls with the root of the loss (Mathis et al., 1997)."""

SWAPPED_PAGES_HIGH = 256.0
"""Pages moved to and from swap above which a host lacks memory: 1 MiB/s in pages of 4 KiB [1/s]."""

_UTILIZATION_MAX = {
    Resource.NETWORK_THREADS: 1.0 - NETWORK_IDLE_LOW,
    Resource.CPU: CPU_SATURATED,
    Resource.HEAP: HEAP_FULL,
    Resource.DISK: DISK_BUSY_HIGH,
    Resource.NETWORK: LINK_SHARE_HIGH,
}


def nearness(row: ResourceUse, thresholds: Thresholds) -> float | None:
    """The nearness of a resource to its limit: 0 unused, 1 at it, above 1 beyond; None: unknown."""
    limits = thresholds.indicators
    used = row.utilization
    if row.resource is Resource.QUOTA:
        most_ms = 0.0 if limits.throttled_is_overload else thresholds.validity.throttle_ms_max
        return _over(row.saturation, most_ms)
    if row.resource is Resource.REPLICATION:
        # A limit of 1 can never be exceeded, but a share of 1 is too much nevertheless.
        return 1.0 if used == 1.0 else _over(used, limits.isr_changed_share_max)
    if row.resource is Resource.REQUEST_HANDLERS:
        return _over(used, 1.0 - limits.request_handler_idle_min)
    near = None if used is None else used / _UTILIZATION_MAX[row.resource]
    if row.resource is Resource.HEAP and row.saturation is not None:
        return max(near or 0.0, row.saturation / GC_SHARE_HIGH)
    return near


def is_at_limit(row: ResourceUse, thresholds: Thresholds) -> bool:
    """True when the resource is used up."""
    near = nearness(row, thresholds)
    return near is not None and near >= 1.0


def _over(used: float | None, most: float) -> float | None:
    """The nearness to a limit that has to be exceeded: 1 just beyond it, below 1 at it."""
    if used is None:
        return None
    if used > most:
        return max(1.0, used / most) if most > 0 else math.inf
    return min(used / most, math.nextafter(1.0, 0.0)) if most > 0 else 0.0
