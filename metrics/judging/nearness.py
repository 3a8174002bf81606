"""The nearness of each resource to its limit: the USE table, each row over its limit.

The limits are those of the attribution, so that the attribution and the table cannot contradict
each other.

Throttling by quotas, which shows in the brokers' throttle times or in the clients' answers.

Connections whose throughput a long link limits, rather than the broker at its end.

One connection carries at most the bytes that it may have in flight per round trip, which is the
bandwidth-delay product read backwards. TCP limits these bytes by the receiver's window and by the
sender's buffer, and the kernel counts the time for which either did (`tcpi_rwnd_limited`,
`tcpi_sndbuf_limited` of `TCP_INFO`). Kafka limits them to `max.in.flight.requests.per.connection`
requests.
"""

from __future__ import annotations

import math

from metrics.judging.thresholds import Thresholds
from metrics.trial.evidence import Evidence, Reason
from metrics.trial.sockets import SocketCounts
from metrics.units import format_mb_per_s, format_ms, format_volume
from metrics.windows.use import Resource, ResourceUse, produce_throttle_ms

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


NAME = "throttled"


def throttle_reasons(evidence: Evidence, limit_ms: float) -> list[Reason]:
    """The throttling beyond a limit.

    Args:
        limit_ms: highest mean throttle time of produce requests and of fetches [ms].

    Returns:
        One reason for each broker that throttled producers, or else one for the producers; and one
        for each throttled consumer group.
    """
    by_brokers = [
        _throttled(
            f"broker {window.broker_id}: produce requests were throttled for "
            f"{throttle_ms:.1f} ms on average by a quota",
            throttle_ms,
            limit_ms,
            window.broker_id,
        )
        for window in evidence.brokers
        if (throttle_ms := produce_throttle_ms(window)) is not None and throttle_ms > limit_ms
    ]
    by_clients = by_brokers or _producers_throttled(evidence, limit_ms)
    return by_clients + _groups_throttled(evidence, limit_ms)


def _producers_throttled(evidence: Evidence, limit_ms: float) -> list[Reason]:
    """The throttle time in the producers' responses; any, where their number is unknown."""
    counts = evidence.client.counts
    requests = counts.produce_requests
    if not counts.throttle_ms or (requests and counts.throttle_ms / requests <= limit_ms):
        return []
    text = f"producers were throttled for {counts.throttle_ms} ms in total by a quota"
    return [_throttled(text, float(counts.throttle_ms), limit_ms)]


def _groups_throttled(evidence: Evidence, limit_ms: float) -> list[Reason]:
    """The throttled groups, unless the brokers' mean throttle time is within the limit."""
    known = [each.fetch_consumer.throttle_ms for each in evidence.brokers]
    means = [each for each in known if each is not None]
    if means and max(means) <= limit_ms and limit_ms > 0:
        return []
    return [
        _throttled(
            f"consumer group {group.counts.group} was throttled for "
            f"{group.counts.throttle_ms} ms in total by a quota",
            float(group.counts.throttle_ms),
            limit_ms,
        )
        for group in evidence.client.groups
        if group.counts.throttle_ms
    ]


def _throttled(text: str, value: float, limit: float, broker_id: int | None = None) -> Reason:
    return Reason(NAME, text, value, limit, broker_id, Resource.QUOTA)


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
