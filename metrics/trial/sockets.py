"""TCP sockets of a measured window, as the kernel tells of them (`TCP_INFO`, `SO_MEMINFO`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from metrics.columns import column
from metrics.trial.adding import LARGEST, SMALLEST


@dataclass
class SocketCounts:
    """The sockets to one broker in the measured window: of a task, or of all tasks.

    What the kernel does not tell (Linux before 4.10, or another system) is None.

    Attributes:
        connections: that were open.
        watched: those of them that were looked at.
        looks: all of them together.
        waiting_looks: those at which something waited to be sent until one of the requests was
            answered, as `max_in_flight` allows no more; 0 of consumers.
        unanswered_max: the most requests that one of them waited for at a look; 0 of consumers.
        rtt_min_us: shortest round trip of any of them since it was opened [µs].
        rtt_sum_us: smoothed round trips at the looks, summed [µs].
        cwnd_sum_bytes: congestion windows at the looks, summed [B].
        in_flight_sum_bytes: sent and not acknowledged by TCP at the looks, summed [B].
        in_flight_max_bytes: the most of it that one socket had at a look [B].
        send_buffer_bytes: the largest limit of a send buffer, twice what was asked for, as the
            kernel counts its own overhead [B].
        receive_buffer_bytes: likewise of a receive buffer [B].
        memory_max_bytes: the most that one socket held at a look, both buffers [B].
        sent_bytes: in the window, with what was sent again [B].
        retransmitted_bytes: sent again in the window [B].
        received_bytes: in the window [B].
        fastest_bytes_per_s: of the socket that got most acknowledged by TCP.
        busy_us: time in which there was something to send or to be acknowledged, summed [µs].
        receiver_limited_us: that part of it in which the other end's window was full [µs].
        send_buffer_limited_us: that part of it in which the send buffer was too small [µs].
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

    @property
    @column
    def rtt_min_ms(self) -> float | None:
        """Shortest round trip of any of them since it was opened."""
        return None if self.rtt_min_us is None else self.rtt_min_us / 1000.0

    @property
    @column
    def rtt_mean_ms(self) -> float | None:
        """Mean of the smoothed round trips at the looks."""
        return self.rtt_sum_us / self.looks / 1000.0 if self.looks else None

    @property
    @column
    def cwnd_mean_bytes(self) -> float | None:
        """Mean congestion window of a socket at the looks."""
        return self.cwnd_sum_bytes / self.looks if self.looks else None

    @property
    @column
    def in_flight_mean_bytes(self) -> float | None:
        """Sent and not acknowledged by TCP, mean of a socket at the looks."""
        return self.in_flight_sum_bytes / self.looks if self.looks else None

    @property
    @column
    def retransmitted_share(self) -> float | None:
        """Bytes that were sent again over all that were sent."""
        return self.retransmitted_bytes / self.sent_bytes if self.sent_bytes else None

    @property
    @column
    def receiver_limited_share(self) -> float | None:
        """Share of the busy time in which the other end's window was full."""
        return _share(self.receiver_limited_us, self.busy_us)

    @property
    @column
    def send_buffer_limited_share(self) -> float | None:
        """Share of the busy time in which the send buffer was too small."""
        return _share(self.send_buffer_limited_us, self.busy_us)

    @property
    @column
    def waiting_share(self) -> float | None:
        """Share of the looks at which something waited until a request was answered."""
        return self.waiting_looks / self.looks if self.looks else None


def _share(part: int | None, whole: int | None) -> float | None:
    return part / whole if whole and part is not None else None


@dataclass(frozen=True)
class KernelBuffers:
    """What the kernel of one host lets the buffers of a socket be; None where it does not tell.

    Attributes:
        host: name of the machine.
        tcp_rmem: least, initial and greatest receive buffer of a socket that the kernel tunes
            (`net.ipv4.tcp_rmem`) [B].
        tcp_wmem: likewise of a send buffer (`net.ipv4.tcp_wmem`) [B].
        rmem_max: the largest receive buffer that may be asked for (`net.core.rmem_max`) [B].
        wmem_max: the largest send buffer that may be asked for (`net.core.wmem_max`) [B].
    """

    host: str
    tcp_rmem: tuple[int, ...] = ()
    tcp_wmem: tuple[int, ...] = ()
    rmem_max: int | None = None
    wmem_max: int | None = None

    @property
    def text(self) -> str:
        """For people: `receive up to 6.3 MB by tuning and 4.2 MB if asked for, send …`."""
        ways = (
            ("receive", self.tcp_rmem, self.rmem_max),
            ("send", self.tcp_wmem, self.wmem_max),
        )
        return ", ".join(
            f"{name} up to {_mb(tuned[-1] if tuned else None)} by tuning and {_mb(asked)} if "
            "asked for"
            for name, tuned, asked in ways
        )


def _mb(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / 1e6:.1f} MB"


def kernel_buffers_of(told: Iterable[KernelBuffers | None]) -> tuple[KernelBuffers, ...]:
    """One for each host, from what its tasks read."""
    by_host = {each.host: each for each in told if each is not None}
    return tuple(by_host[host] for host in sorted(by_host))
