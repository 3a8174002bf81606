"""The kernel's figures of a TCP socket: Linux's `TCP_INFO` and `SO_MEMINFO`.

The layout is that of `struct tcp_info` in the kernel's include/uapi/linux/tcp.h, which has only
grown at its end: an older kernel returns a shorter one. Other systems are not queried, as they lack
these options, or have others under the same numbers.
"""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

from metrics.trial.sockets import KernelBuffers

_IS_LINUX = sys.platform == "linux"
_TCP_INFO = 11
_SO_MEMINFO = 55

# snd_mss | unacked | rtt | snd_cwnd | total_retrans | bytes_acked, bytes_received | min_rtt
# | busy_time, rwnd_limited, sndbuf_limited | bytes_sent, bytes_retrans
_INFO = struct.Struct("=16xI4xI40xI8xI16xI16xQQ12xI16xQQQ8xQQ")
_LEAST_BYTES = 104  # up to tcpi_total_retrans, since Linux 2.6
_WITH_MIN_RTT_BYTES = 152  # Linux 4.6
_WITH_LIMITS_BYTES = 192  # Linux 4.10
_MEMINFO = struct.Struct(
    "=IIIIII"
)  # rmem_alloc, rcvbuf, wmem_alloc, sndbuf, fwd_alloc, wmem_queued


class TcpInfo(NamedTuple):
    """State of a connection; counters begin when it is opened.

    Attributes:
        rtt_us: smoothed round trip [µs].
        rtt_min_us: the shortest one [µs]; None where the kernel does not report it.
        cwnd_bytes: congestion window [B].
        in_flight_bytes: bytes sent and not acknowledged by TCP [B].
        acked_bytes, sent_bytes, retransmitted_bytes, received_bytes: counters [B].
        busy_us, receiver_limited_us, send_buffer_limited_us: counters [µs]; None where the kernel
            does not report them.
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
    """The buffers of a socket, as `ss -m` shows them (skmem) [B].

    Attributes:
        receive_buffer_bytes, send_buffer_bytes: their limits, with the kernel's own overhead.
        memory_max_bytes: memory that both hold.
    """

    receive_buffer_bytes: int
    send_buffer_bytes: int
    memory_max_bytes: int


def parsed(answer: bytes) -> TcpInfo | None:
    """Parse a kernel's answer to `TCP_INFO`; None when it holds too little."""
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
        # Exact to the byte where the last segment is short; the handshake counts as acknowledged.
        in_flight_bytes = max(0, min(in_flight_bytes, sent_bytes - resent_bytes - acked_bytes + 1))
    knows_limits = size >= _WITH_LIMITS_BYTES
    return TcpInfo(
        rtt_us,
        rtt_min_us if size >= _WITH_MIN_RTT_BYTES else None,
        cwnd * mss,
        in_flight_bytes,
        acked_bytes,
        sent_bytes,
        resent_bytes,
        received_bytes,
        busy_us if knows_limits else None,
        receiver_us if knows_limits else None,
        buffer_us if knows_limits else None,
    )


def tcp_info(sock: socket.socket) -> TcpInfo | None:
    """The figures of this socket; None where the system reports none, or it is closed."""
    if not _IS_LINUX:
        return None
    try:
        return parsed(sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size))
    except OSError:
        return None


def socket_memory(sock: socket.socket) -> SocketMemory | None:
    """The buffers of this socket; None before Linux 4.12, on other systems, or if it is closed."""
    if not _IS_LINUX:
        return None
    try:
        answer = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    except OSError:
        return None
    if len(answer) < _MEMINFO.size:
        return None
    held, receive, _in_queues, send, _forward, queued = _MEMINFO.unpack(answer)
    return SocketMemory(receive, send, held + queued)


def kernel_buffers(settings: Path = Path("/proc/sys/net")) -> KernelBuffers | None:
    """The kernel's limits for socket buffers on this host; None where it does not show them.

    Args:
        settings: directory in which the kernel shows `net.*`.
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
