"""Connections whose throughput a long link limits, rather than the broker at its end.

One connection carries at most the bytes that it may have in flight per round trip, which is the
bandwidth-delay product read backwards. TCP limits these bytes by the receiver's window and by the
sender's buffer, and the kernel counts the time for which either did (`tcpi_rwnd_limited`,
`tcpi_sndbuf_limited` of `TCP_INFO`). Kafka limits them to `max.in.flight.requests.per.connection`
requests.
"""

from __future__ import annotations

from metrics.trial.evidence import Evidence
from metrics.trial.sockets import SocketCounts
from metrics.units import format_mb_per_s, format_ms, format_volume

RTT_LEAST_MS = 2.0
"""Shortest round trip with which a link can be the limiting resource [ms]. Within one machine it is
some hundredths, within a data center below 1; there a full window means that its owner does not
read it."""

LIMITED_SHARE_LEAST = 0.2
"""Share of the busy time for which a full window and a full buffer together are the limit [ratio];
where both have the same size, each takes a part of the time. The kernel counts the time in which no
more bytes would have fitted. Measured with buffers of 100 kB at 50 ms, which carry a twentieth of
what the link can: 0.4 for a window and 0.75 for a send buffer; 0 for buffers that are large
enough."""

BESIDE_SHARE_LEAST = 0.05
"""Share of the busy time above which the other end's buffer is named, too [ratio]."""

WAITING_SHARE_LEAST = 0.5
"""Share of the samples above which a connection waits for answers most of the time [ratio]."""

RTT_SHARE_LEAST = 0.5
"""Share of the time to an answer above which the round trip sets the pace [ratio]."""


def connection_limit(evidence: Evidence, broker_id: int) -> str | None:
    """The limit of the producers' connections to a broker and the setting to change, or None."""
    sockets = evidence.client.producer_sockets.get(broker_id)
    if sockets is None or sockets.rtt_min_ms is None or sockets.rtt_min_ms < RTT_LEAST_MS:
        return None
    receiver = sockets.receiver_limited_share or 0.0
    sender = sockets.send_buffer_limited_share or 0.0
    if receiver + sender < LIMITED_SHARE_LEAST:
        return _waits_for_answers(evidence, broker_id, sockets)
    if receiver >= sender:
        own = _of_broker(evidence, broker_id)
        return (
            f"{_carried(sockets)}; the broker's receive window was full for {receiver:.0%} of the "
            f"time in which there was something to send{_beside('our send buffer', sender)}: the "
            "socket's buffer is the limit, not the broker; raise the broker's "
            f"socket.receive.buffer.bytes{own}, or net.ipv4.tcp_rmem of its host where that is -1"
        )
    size = sockets.send_buffer_bytes
    own = "" if size is None else f" ({format_volume(size / 2)})"
    return (
        f"{_carried(sockets)}; our send buffer{own} was full for {sender:.0%} of the time in which "
        f"there was something to send{_beside('the receive window', receiver)}: the socket's "
        "buffer is the limit, not the broker; raise producer.send_buffer_bytes (Kafka's "
        "send.buffer.bytes), or net.ipv4.tcp_wmem of the generator's hosts where that is -1"
    )


def _beside(other: str, share: float) -> str:
    return f", and {other} for {share:.0%}" if share >= BESIDE_SHARE_LEAST else ""


def _carried(sockets: SocketCounts) -> str:
    """`one connection had at most 128 kB in flight at 50 ms: 2.6 MB/s`."""
    return (
        f"one connection had at most {format_volume(sockets.in_flight_max_bytes)} in flight at "
        f"{format_ms(sockets.rtt_mean_ms)} ms: "
        f"{format_mb_per_s(sockets.fastest_bytes_per_s / 1e6)} MB/s"
    )


def _of_broker(evidence: Evidence, broker_id: int) -> str:
    """The size of the broker's own buffer, where its sockets were read.

    The kernel reports twice the size, as it adds its overhead.
    """
    sockets = evidence.broker_sockets.get(broker_id)
    if sockets is None or sockets.receive_buffer_bytes is None:
        return ""
    return f" (its buffers are {format_volume(sockets.receive_buffer_bytes / 2)})"


def _waits_for_answers(evidence: Evidence, broker_id: int, sockets: SocketCounts) -> str | None:
    """The evidence that `max_in_flight` requests always wait and the round trip sets the pace."""
    account = evidence.client.counts.by_broker.get(broker_id)
    waiting, rtt_ms = sockets.waiting_share, sockets.rtt_mean_ms
    if account is None or waiting is None or rtt_ms is None or not sockets.unanswered_max:
        return None
    per_s = account.requests / evidence.client.duration_s / max(1, sockets.connections)
    if waiting < WAITING_SHARE_LEAST or per_s <= 0:
        return None
    answer_ms = 1000.0 * sockets.unanswered_max / per_s  # by Little's law
    if rtt_ms < RTT_SHARE_LEAST * answer_ms:
        return None
    size = sockets.sent_bytes / max(1, sockets.watched) / evidence.client.duration_s / per_s
    most = sockets.unanswered_max
    all_of_them = "the 1 request" if most == 1 else f"all {most} requests"
    return (
        f"in {waiting:.0%} of the samples a connection had something to send and waited for an "
        f"answer to {all_of_them} that it may have in flight: "
        f"{per_s:.0f} requests/s of {format_volume(size)} at a round trip of {format_ms(rtt_ms)} "
        "ms; the round trip sets the pace, not the broker; raise producer.max_in_flight (up to 5 "
        "with enable_idempotence) or producer.batch_size, or use more connections"
    )
