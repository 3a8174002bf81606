"""TCP sockets in a measured window, as the kernel reports them (`TCP_INFO`, `SO_MEMINFO`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from metrics.columns import column
from metrics.trial.adding import LARGEST, SMALLEST
from metrics.windows.broker import over


@dataclass
class SocketCounts:
    """The sockets to one broker in the measured window, of one task or of all tasks.

    Values that the kernel does not report (before Linux 4.10, or on another system) are None.

    Attributes:
        connections: connections that were open.
        watched: connections that were sampled.
        looks: number of samples of all connections.
        waiting_looks: number of samples in which data could not be sent yet, because
            `max_in_flight` requests were unanswered; 0 for consumers.
        unanswered_max: highest number of unanswered requests of one connection in a sample; 0 for
            consumers.
        rtt_min_us: shortest round trip of any connection since it was opened [µs].
        rtt_sum_us: sum of the smoothed round trips over all samples [µs].
        cwnd_sum_bytes: sum of the congestion windows over all samples [B].
        in_flight_sum_bytes: bytes in flight (sent and not acknowledged by TCP), summed over all
            samples [B].
        in_flight_max_bytes: largest number of bytes in flight (sent and not acknowledged by TCP) at
            one socket in a sample [B].
        send_buffer_bytes: largest limit of a send buffer [B]; the kernel reports twice the
            requested size, because it adds its own overhead.
        receive_buffer_bytes: largest limit of a receive buffer [B]; twice the requested size.
        memory_max_bytes: largest number of bytes in both buffers of one socket in a sample [B].
        sent_bytes: bytes sent in the window, retransmissions included [B].
        retransmitted_bytes: bytes retransmitted in the window [B].
        received_bytes: bytes received in the window [B].
        fastest_bytes_per_s: rate of the socket with the most bytes acknowledged by TCP [B/s].
        busy_us: time in which sockets had unsent or unacknowledged bytes, summed over sockets [µs].
        receiver_limited_us: the part of `busy_us` in which the receive window of the other end was
            full [µs].
        send_buffer_limited_us: the part of `busy_us` in which the send buffer was too small [µs].
    """

    connections: int = 0
    watched: int = 0
    looks: int = 0
    waiting_looks: int = 0
    unanswered_max: Annotated[int, LARGEST] = 0
    rtt_min_us: Annotated[int | None, SMALLEST] = None
    rtt_sum_us: int = 0
    cwnd_sum_bytes: int = 0
    in_flight_sum_bytes: int = 0
    in_flight_max_bytes: Annotated[int, LARGEST] = 0
    send_buffer_bytes: Annotated[int | None, LARGEST] = None
    receive_buffer_bytes: Annotated[int | None, LARGEST] = None
    memory_max_bytes: Annotated[int | None, LARGEST] = None
    sent_bytes: int = 0
    retransmitted_bytes: int = 0
    received_bytes: int = 0
    fastest_bytes_per_s: Annotated[float, LARGEST] = 0.0
    busy_us: int | None = None
    receiver_limited_us: int | None = None
    send_buffer_limited_us: int | None = None

    @column
    def rtt_min_ms(self) -> float | None:
        """Shortest round trip of any connection since the connection was opened."""
        return None if self.rtt_min_us is None else self.rtt_min_us / 1000.0

    @column
    def rtt_mean_ms(self) -> float | None:
        """Mean of the smoothed round trips over all samples."""
        return self.rtt_sum_us / self.looks / 1000.0 if self.looks else None

    @column
    def cwnd_mean_bytes(self) -> float | None:
        """Mean congestion window of a socket over all samples."""
        return self.cwnd_sum_bytes / self.looks if self.looks else None

    @column
    def in_flight_mean_bytes(self) -> float | None:
        """Mean number of bytes that a socket sent and that TCP did not acknowledge yet, over all
        samples.
        """
        return self.in_flight_sum_bytes / self.looks if self.looks else None

    @column
    def retransmitted_share(self) -> float | None:
        """Retransmitted bytes, divided by all bytes sent."""
        return self.retransmitted_bytes / self.sent_bytes if self.sent_bytes else None

    @column
    def receiver_limited_share(self) -> float | None:
        """Share of the busy time in which the receive window of the other end was full."""
        return over(self.receiver_limited_us, self.busy_us)

    @column
    def send_buffer_limited_share(self) -> float | None:
        """Share of the busy time in which the send buffer was too small."""
        return over(self.send_buffer_limited_us, self.busy_us)

    @column
    def waiting_share(self) -> float | None:
        """Share of the samples in which data waited for the answer to an earlier request."""
        return self.waiting_looks / self.looks if self.looks else None


@dataclass(frozen=True)
class KernelBuffers:
    """The kernel's limits of socket buffers on one host; unknown limits are None.

    Attributes:
        host: name of the machine.
        tcp_rmem: smallest, initial and largest receive buffer of a socket that the kernel tunes
            (`net.ipv4.tcp_rmem`) [B].
        tcp_wmem: smallest, initial and largest send buffer of a socket that the kernel tunes
            (`net.ipv4.tcp_wmem`) [B].
        rmem_max: the largest receive buffer that a program can request (`net.core.rmem_max`) [B].
        wmem_max: the largest send buffer that a program can request (`net.core.wmem_max`) [B].
    """

    host: str
    tcp_rmem: tuple[int, ...] = ()
    tcp_wmem: tuple[int, ...] = ()
    rmem_max: int | None = None
    wmem_max: int | None = None

    @property
    def text(self) -> str:
        """The limits in words, such as `receive up to 6.3 MB if tuned by the kernel and 4.2 MB if
        requested`.
        """
        ways = (("receive", self.tcp_rmem, self.rmem_max), ("send", self.tcp_wmem, self.wmem_max))
        return ", ".join(
            f"{name} up to {_mb(tuned[-1] if tuned else None)} if tuned by the kernel and "
            f"{_mb(asked)} if requested"
            for name, tuned, asked in ways
        )


def _mb(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / 1e6:.1f} MB"


def kernel_buffers_of(by_task: Iterable[KernelBuffers | None]) -> tuple[KernelBuffers, ...]:
    """The limits of socket buffers on each host, from the readings of the host's tasks."""
    by_host = {buffers.host: buffers for buffers in by_task if buffers is not None}
    return tuple(by_host[host] for host in sorted(by_host))
