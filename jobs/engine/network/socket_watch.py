"""Readings of the kernel's counters for a sample of a task's TCP sockets. The counters are read at
the start of the measured window, within the window and at its end.

The kernel's counters of a TCP socket come from Linux's `TCP_INFO` and `SO_MEMINFO`. The layout of
`TCP_INFO` is `struct tcp_info` in the kernel's include/uapi/linux/tcp.h. Newer kernels only append
fields, so an older kernel returns fewer bytes. The module reads the counters only on Linux. Other
systems do not have these socket options, or use the same numbers for other options.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from jobs.engine.network.sockets import Channel
from metrics.trial.sockets import KernelBuffers, SocketCounts

_IS_LINUX = sys.platform == "linux"
_TCP_INFO = 11
_SO_MEMINFO = 55

# snd_mss | unacked | rtt | snd_cwnd | total_retrans | bytes_acked, bytes_received | min_rtt
# | busy_time, rwnd_limited, sndbuf_limited | bytes_sent, bytes_retrans
_INFO = struct.Struct("=16xI4xI40xI8xI16xI16xQQ12xI16xQQQ8xQQ")
_LEAST_BYTES = 104  # includes tcpi_total_retrans: since Linux 2.6
_WITH_MIN_RTT_BYTES = 152  # since Linux 4.6
_WITH_LIMITS_BYTES = 192  # since Linux 4.10
# rmem_alloc, rcvbuf, wmem_alloc, sndbuf, fwd_alloc, wmem_queued
_MEMINFO = struct.Struct("=IIIIII")


class TcpInfo(NamedTuple):
    """State of a TCP connection. The counters start when the connection is opened.

    Attributes:
        rtt_us: smoothed round-trip time [µs].
        rtt_min_us: shortest round-trip time [µs]; None if the kernel does not report it.
        cwnd_bytes: congestion window [B].
        in_flight_bytes: bytes sent but not yet acknowledged by TCP [B].
        acked_bytes, sent_bytes, retransmitted_bytes, received_bytes: counters [B].
        busy_us, receiver_limited_us, send_buffer_limited_us: counters [µs]; None if the kernel does
            not report them.
    """

    rtt_us: int
    rtt_min_us: int | None
    cwnd_bytes: int
    in_flight_bytes: int
    acked_bytes: int
    sent_bytes: int
    retransmitted_bytes: int
    received_bytes: int
    busy_us: int | None
    receiver_limited_us: int | None
    send_buffer_limited_us: int | None


class SocketMemory(NamedTuple):
    """The buffers of a socket, like the skmem values of `ss -m` [B].

    Attributes:
        receive_buffer_bytes, send_buffer_bytes: sizes of the buffers, with the kernel's overhead.
        memory_max_bytes: memory that both buffers use at the time of the reading.
    """

    receive_buffer_bytes: int
    send_buffer_bytes: int
    memory_max_bytes: int


def parsed(answer: bytes) -> TcpInfo | None:
    """Parse the kernel's answer to `TCP_INFO`; None if the answer is too short."""
    size = len(answer)
    if size < _LEAST_BYTES:
        return None
    padded = answer if size >= _INFO.size else answer.ljust(_INFO.size, b"\0")
    (
        mss, unacked, rtt_us, cwnd, resent, acked_bytes, received_bytes, rtt_min_us,
        busy_us, receiver_us, buffer_us, sent_bytes, resent_bytes,
    ) = _INFO.unpack_from(padded)  # fmt: skip
    in_flight_bytes = unacked * mss
    if size < _INFO.size:  # Linux before 4.19 counts segments only
        resent_bytes = resent * mss
        sent_bytes = acked_bytes + in_flight_bytes + resent_bytes
    elif unacked:
        # Exact even if the last segment is short. TCP counts the handshake as one acknowledged
        # byte.
        in_flight_bytes = max(0, min(in_flight_bytes, sent_bytes - resent_bytes - acked_bytes + 1))
    limits_us = (busy_us, receiver_us, buffer_us)
    counted = acked_bytes, sent_bytes, resent_bytes, received_bytes
    return TcpInfo(
        rtt_us,
        rtt_min_us if size >= _WITH_MIN_RTT_BYTES else None,
        *(cwnd * mss, in_flight_bytes, *counted),
        *(limits_us if size >= _WITH_LIMITS_BYTES else (None, None, None)),
    )


def tcp_info(sock: socket.socket) -> TcpInfo | None:
    """The kernel's figures of this socket; None if the kernel shows no figures, or the socket is
    closed.
    """
    return parsed(_option(sock, socket.IPPROTO_TCP, _TCP_INFO, _INFO.size))


def _option(sock: socket.socket, level: int, option: int, size: int) -> bytes:
    """The value of a socket option; empty if the socket is closed, or the system is not Linux."""
    try:
        return sock.getsockopt(level, option, size) if _IS_LINUX else b""
    except OSError:
        return b""


def socket_memory(sock: socket.socket) -> SocketMemory | None:
    """The buffers of this socket; None if it is closed, or the system does not show them."""
    answer = _option(sock, socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    if len(answer) < _MEMINFO.size:
        return None
    held, receive, _in_queues, send, _forward, queued = _MEMINFO.unpack(answer)
    return SocketMemory(receive, send, held + queued)


def kernel_buffers(settings: Path = Path("/proc/sys/net")) -> KernelBuffers | None:
    """The kernel's limits for socket buffers on this host; None if the system does not show them.

    Args:
        settings: directory in which the kernel shows the `net.*` settings.
    """

    def numbers(name: str) -> tuple[int, ...]:
        try:
            return tuple(map(int, (settings / name).read_text().split()))
        except (OSError, ValueError):
            return ()

    rmem, wmem = numbers("ipv4/tcp_rmem"), numbers("ipv4/tcp_wmem")
    caps = [next(iter(numbers(name)), None) for name in ("core/rmem_max", "core/wmem_max")]
    if not rmem and not wmem and caps == [None, None]:
        return None
    return KernelBuffers(socket.gethostname(), rmem, wmem, *caps)


WATCHED_MAX = 64
"""Maximum number of watched sockets per task. Reading one socket takes some microseconds."""

MEMORY_EVERY = 4
"""Number of readings of the TCP figures for each reading of the sockets' buffers. The buffers are
read less often, because buffer sizes change slowly. The last reading of a window also includes the
buffers."""

_COUNTERS = (
    "sent_bytes",
    "retransmitted_bytes",
    "received_bytes",
    "busy_us",
    "receiver_limited_us",
    "send_buffer_limited_us",
)
"""Counters of both `TcpInfo` and `SocketCounts`."""


class SocketTally:
    """Sums of one connection's figures in a window, over all sockets of the connection. The
    connection may get a new socket during the window.

    Args:
        counts: counts of the connection's broker. The sums are added to these counts.
        first: figures at the start of the window; None for a socket that is opened later.
    """

    def __init__(self, counts: SocketCounts, first: TcpInfo | None) -> None:
        self._counts = counts
        self._first = self._last = first
        self._acked_bytes = 0
        self._is_counted = False

    def add(self, info: TcpInfo, memory: SocketMemory | None) -> None:
        """Add one reading of the socket's counters."""
        self._last = info
        counts = self._counts
        counts.watched += not self._is_counted
        self._is_counted = True
        counts.looks += 1
        counts.rtt_min_us = _chosen(min, counts.rtt_min_us, info.rtt_min_us)
        counts.rtt_sum_us += info.rtt_us
        counts.cwnd_sum_bytes += info.cwnd_bytes
        counts.in_flight_sum_bytes += info.in_flight_bytes
        counts.in_flight_max_bytes = max(counts.in_flight_max_bytes, info.in_flight_bytes)
        if memory is not None:
            for name, size in memory._asdict().items():
                setattr(counts, name, _chosen(max, getattr(counts, name), size))

    def renew(self) -> None:
        """Add the last known figures of a lost socket, and prepare for the next socket."""
        self._settle()
        self._first = None

    def end(self, duration_s: float) -> None:
        """End the window, which took `duration_s` [s]."""
        self._settle()
        per_s = self._acked_bytes / duration_s
        self._counts.fastest_bytes_per_s = max(self._counts.fastest_bytes_per_s, per_s)

    def _settle(self) -> None:
        first, last, counts = self._first, self._last, self._counts
        if last is None:
            return
        self._acked_bytes += last.acked_bytes - (first.acked_bytes if first else 0)
        for name in _COUNTERS:
            end: int | None = getattr(last, name)
            if end is not None:
                grown = end - (getattr(first, name) or 0 if first else 0)
                setattr(counts, name, (getattr(counts, name) or 0) + grown)
        self._last = None


class _Watched:
    def __init__(self, broker: int, channel: Channel, counts: SocketCounts) -> None:
        self.broker = broker
        self.channel = channel
        self.transport = channel.transport
        first = None if self.transport is None else tcp_info(self.transport.sock)
        self.tally = SocketTally(counts, first)


class SocketWatch:
    """Watches some connections of a task. The selection of connections is fixed, and evenly spread
    over the brokers.

    Args:
        channels: (broker id, connection) of all connections of the task.
        unanswered: returns the number of unanswered requests of a connection, and whether batches
            wait for an answer.
    """

    def __init__(
        self,
        channels: Sequence[tuple[int, Channel]],
        unanswered: Callable[[Channel], tuple[int, bool]] = lambda _: (0, False),
    ) -> None:
        self._unanswered = unanswered
        self._open = Counter(broker for broker, _ in channels)
        by_broker: dict[int, list[tuple[int, Channel]]] = defaultdict(list)
        for each in channels:
            by_broker[each[0]].append(each)
        in_turns = (each for turn in zip_longest(*by_broker.values()) for each in turn if each)
        self._panel = list(islice(in_turns, WATCHED_MAX))
        self._watched: list[_Watched] = []
        self._counts: dict[int, SocketCounts] = {}
        self._looks = 0

    def begin(self) -> None:
        """Begin the window."""
        self._counts = {broker: SocketCounts(count) for broker, count in self._open.items()}
        self._watched = [
            _Watched(broker, channel, self._counts[broker]) for broker, channel in self._panel
        ]
        self._looks = 0

    def look(self) -> None:
        """Read the figures of all watched sockets; does nothing outside of a window."""
        sees_memory = self._looks % MEMORY_EVERY == 0
        self._looks += 1
        for each in self._watched:
            transport = each.channel.transport
            if transport is not each.transport:
                each.tally.renew()
                each.transport = transport
            info = None if transport is None else tcp_info(transport.sock)
            if transport is None or info is None:
                continue
            each.tally.add(info, socket_memory(transport.sock) if sees_memory else None)
            requests, waits = self._unanswered(each.channel)
            counts = self._counts[each.broker]
            counts.waiting_looks += waits
            counts.unanswered_max = max(counts.unanswered_max, requests)

    def end(self, duration_s: float) -> dict[int, SocketCounts]:
        """End the window; return broker id → counts, without brokers that have no figures.

        Args:
            duration_s: length of the window [s].
        """
        self._looks = 0
        self.look()
        for each in self._watched:
            each.tally.end(duration_s)
        self._watched = []
        return {broker: counts for broker, counts in self._counts.items() if counts.looks}


def _chosen(choose: Callable[..., int | None], *values: int | None) -> int | None:
    return choose((each for each in values if each is not None), default=None)
