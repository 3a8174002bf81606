"""The readings of a host: what Linux counts, under one name whichever way it was read.

What stands behind a colon is the part of the host: `disk_read_bytes:nvme0n1`. Readings are
counters since the host's start, unless the line says "now".
"""

from __future__ import annotations

import re

CPU_S = "cpu_s"
"""Time of all cores by state, such as `cpu_s:iowait` [s]."""
CORES = "cores"
"""Cores, now."""
RUNNING_THREADS = "running_threads"
"""Threads that run or wait for a core, now."""
MEMORY_TOTAL_BYTES = "memory_total_bytes"
"""Memory, now [B]."""
MEMORY_AVAILABLE_BYTES = "memory_available_bytes"
"""What programs could still get without swapping, now [B]."""
PAGE_CACHE_BYTES = "page_cache_bytes"
"""Memory that holds pages of files, now [B]."""
SWAPPED_IN_PAGES = "swapped_in_pages"
"""Pages read back from swap."""
SWAPPED_OUT_PAGES = "swapped_out_pages"
"""Pages written to swap."""
OOM_KILLS = "oom_kills"
"""Processes that the kernel ended for want of memory."""
DISK_READ_BYTES = "disk_read_bytes"
"""Read from a disk [B]."""
DISK_WRITTEN_BYTES = "disk_written_bytes"
"""Written to a disk [B]."""
DISK_READS = "disk_reads"
"""Reads that a disk finished."""
DISK_WRITES = "disk_writes"
"""Writes that a disk finished."""
DISK_BUSY_S = "disk_busy_s"
"""Time in which a disk had work [s]."""
DISK_QUEUED_S = "disk_queued_s"
"""Time that all operations of a disk took together, waiting included [s]."""
NET_RECEIVED_BYTES = "net_received_bytes"
"""Received by an interface [B]."""
NET_SENT_BYTES = "net_sent_bytes"
"""Sent by an interface [B]."""
NET_RECEIVED_PACKETS = "net_received_packets"
"""Packets that an interface received."""
NET_SENT_PACKETS = "net_sent_packets"
"""Packets that an interface sent."""
NET_RECEIVE_DROPS = "net_receive_drops"
"""Packets that an interface dropped on their way in."""
NET_SEND_DROPS = "net_send_drops"
"""Packets that an interface, or its queue where that is known, dropped on their way out."""
NET_RECEIVE_ERRORS = "net_receive_errors"
"""Packets that reached an interface damaged."""
NET_SEND_ERRORS = "net_send_errors"
"""Packets that an interface could not send."""
NET_SPEED_BYTES_PER_S = "net_speed_bytes_per_s"
"""Speed of an interface, one direction, now [B/s]."""
TCP_SENT_SEGMENTS = "tcp_sent_segments"
"""Segments that TCP sent, those sent again not counted."""
TCP_RETRANSMITTED_SEGMENTS = "tcp_retransmitted_segments"
"""Segments that TCP sent again."""
TCP_LISTEN_OVERFLOWS = "tcp_listen_overflows"
"""Connections that were turned away because a listener's queue was full."""
PRESSURE_S = "pressure_s"
"""Time in which some task waited for `cpu`, `io` or `memory` (pressure stall information) [s]."""
RESIDENT_BYTES = "resident_bytes"
"""Memory of a broker's process by its node id, now: heap, stacks, and files that it maps [B]."""

CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The states of `cpu_s`, in the order of /proc/stat."""

_NO_DISK = re.compile(r"(z?ram|loop|fd|(h|s|v|xv)d[a-z]+|nvme\d+n\d+p|mmcblk\d+p)\d+")
_NO_INTERFACE = re.compile(r"(ifb|sit|tunl|gre|gretap|erspan|ip_vti|ip6_vti|ip6tnl|ip6gre)\d*")


def is_disk(device: str) -> bool:
    """False of partitions, whose disk counts the same, and of what is in memory."""
    return _NO_DISK.fullmatch(device) is None


def is_interface(device: str) -> bool:
    """False of the templates of tunnels, which every kernel has and nobody uses."""
    return _NO_INTERFACE.fullmatch(device) is None
