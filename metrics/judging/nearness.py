"""The distance of each resource from its limit, the throttling by quotas, and the limits of
connections.

The attribution and the USE table use the same limits from this module, so they cannot contradict
each other.

A connection over a long link can be the limit although the broker has spare resources. In one round
trip, a connection carries at most its bytes in flight (the bandwidth-delay product). TCP limits the
bytes in flight to the receiver's window and to the sender's buffer. The kernel counts how long the
window and the buffer limited the connection (`tcpi_rwnd_limited`, `tcpi_sndbuf_limited` of
`TCP_INFO`). Kafka limits the requests in flight to `max.in.flight.requests.per.connection`.
"""

from __future__ import annotations

import math

from metrics.judging.thresholds import Thresholds
from metrics.trial.evidence import Evidence, Reason
from metrics.trial.sockets import SocketCounts
from metrics.units import format_mb_per_s, format_ms, format_volume
from metrics.windows.use import Resource, ResourceUse, produce_throttle_ms

NETWORK_IDLE_LOW = 0.20
"""A network thread is a bottleneck if its idle fraction is below this value [ratio]."""

CPU_SATURATED = 0.90
"""Threads wait for a core if the busy share of the machine's CPU is above this value [ratio]."""

THROTTLED_SHARE_HIGH = 0.5
"""A broker lacks CPU time if its CPU quota is used up in this share of the quota periods or more
[ratio]. A quota can stop a broker although its machine has idle cores."""

GC_SHARE_HIGH = 0.25
"""The heap is the limiting resource if garbage collection takes more than this share of the time
[ratio]."""

HEAP_FULL = 0.95
"""The heap is full if its used share is never below this value [ratio]."""

DISK_BUSY_HIGH = 0.90
"""The disk is busy if flushes or other disk operations take more than this share of the time
[ratio]."""

LINK_SHARE_HIGH = 0.90
"""A network interface is full if Kafka's bytes use more than this share of its speed [ratio]. The
headers of TCP, IP and Ethernet take a further 4 to 6 %."""

DISK_QUEUE_HIGH = 1.0
"""Operations wait for a busy disk if the disk's mean queue is longer than this value
[operations]."""

DISK_BUSY_UNDER_PRESSURE = 0.70
"""Minimum busy share of a full disk, if the disk has a queue and tasks of the host wait for I/O
[ratio]. The value is lower than `DISK_BUSY_HIGH`: if too many pages of a disk are dirty, the kernel
makes writers wait for up to 0.2 s, and the disk may be idle during this wait."""

PRESSURE_IO_HIGH = 0.5
"""Writers wait for a disk if tasks of the host wait for I/O for this share of the time or more
[ratio]. If a disk is busy for 0.70 of the time only because of write-back, tasks wait for I/O for
less than 0.25 of the time."""

DROPPED_SHARE_HIGH = 0.001
"""TCP slows down if a host drops this share of its packets or more [ratio]."""

RETRANSMITTED_SHARE_HIGH = 0.01
"""Packet loss limits a connection if TCP retransmits this share of its segments or more [ratio].
The throughput of TCP Reno falls with the square root of the loss (Mathis et al., 1997)."""

SWAPPED_PAGES_HIGH = 256.0
"""A host lacks memory if it moves this number of pages per second or more to and from swap [1/s].
The value is 1 MiB/s in pages of 4 KiB."""

_UTILIZATION_MAX = {
    Resource.NETWORK_THREADS: 1.0 - NETWORK_IDLE_LOW,
    Resource.CPU: CPU_SATURATED,
    Resource.HEAP: HEAP_FULL,
    Resource.DISK: DISK_BUSY_HIGH,
    Resource.NETWORK: LINK_SHARE_HIGH,
}


def nearness(row: ResourceUse, thresholds: Thresholds) -> float | None:
    """The utilization of a resource, divided by its limit: 1 at the limit, above 1 beyond the
    limit, or None if the utilization is unknown.
    """
    limits = thresholds.indicators
    used = row.utilization
    if row.resource is Resource.QUOTA:
        most_ms = 0.0 if limits.throttled_is_overload else thresholds.validity.throttle_ms_max
        return _over(row.saturation, most_ms)
    if row.resource is Resource.REPLICATION:
        # A share cannot exceed a limit of 1, but a share of 1 is too high nevertheless.
        return 1.0 if used == 1.0 else _over(used, limits.isr_changed_share_max)
    if row.resource is Resource.REQUEST_HANDLERS:
        return _over(used, 1.0 - limits.request_handler_idle_min)
    near = None if used is None else used / _UTILIZATION_MAX[row.resource]
    if row.resource is Resource.HEAP and row.saturation is not None:
        return max(near or 0.0, row.saturation / GC_SHARE_HIGH)
    return near


def is_at_limit(row: ResourceUse, thresholds: Thresholds) -> bool:
    """True if the resource is at its limit or beyond."""
    near = nearness(row, thresholds)
    return near is not None and near >= 1.0


def _over(used: float | None, most: float) -> float | None:
    """A used value divided by its limit."""
    if used is None:
        return None
    if used > most:
        return max(1.0, used / most) if most > 0 else math.inf
    return min(used / most, math.nextafter(1.0, 0.0)) if most > 0 else 0.0


THROTTLED = "throttled"


def throttle_reasons(evidence: Evidence, limit_ms: float) -> list[Reason]:
    """The reasons why quotas throttled the load by more than a limit.

    Brokers and clients both report throttle times. The throttle times of clients count only if no
    broker shows throttled producers.

    Args:
        limit_ms: highest allowed mean throttle time of produce requests and of fetches [ms].

    Returns:
        One reason for each broker that throttled producers, or one reason for all producers. Each
        throttled consumer group adds one reason.
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
    """A reason if the produce responses report too much throttle time. If the number of responses
    is unknown, any throttle time is too much.
    """
    counts = evidence.client.counts
    requests = counts.produce_requests
    if not counts.throttle_ms or (requests and counts.throttle_ms / requests <= limit_ms):
        return []
    text = f"producers were throttled for {counts.throttle_ms} ms in total by a quota"
    return [_throttled(text, float(counts.throttle_ms), limit_ms)]


def _groups_throttled(evidence: Evidence, limit_ms: float) -> list[Reason]:
    """One reason for each throttled consumer group, unless the brokers' mean throttle time of
    fetches is within the limit.
    """
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
    return Reason(THROTTLED, text, value, limit, broker_id, Resource.QUOTA)


RTT_LEAST_MS = 2.0
"""Shortest round trip with which a link can be the limiting resource [ms]. A round trip takes some
hundredths of a millisecond within one machine, and less than 1 ms within a data center. With a
shorter round trip than this value, a full window means that the receiver does not read its data."""

LIMITED_SHARE_LEAST = 0.2
"""The TCP receive window and the send buffer limit a connection if the sum of two shares is at
least this value [ratio]. The first share is the part of the connection's busy time for which the
receive window is full. The second share is the part for which the send buffer is full. If the
receive window and the send buffer have equal sizes, each of them is full for a part of the time.
The kernel counts the time for which a full window or buffer stopped the sender. In a test with
buffers of 100 kB and a round trip of 50 ms, a connection carried a twentieth of the link's
bandwidth. In this test, the receive window was full for 0.4 and the send buffer for 0.75 of the
busy time. With sufficiently large buffers, both shares are 0."""

BESIDE_SHARE_LEAST = 0.05
"""The text also names the buffer at the other end if that buffer is full for this share of the busy
time [ratio]."""

WAITING_SHARE_LEAST = 0.5
"""A connection mostly waits for answers if it waits in this share of the samples or more
[ratio]."""

RTT_SHARE_LEAST = 0.5
"""The round trip is the limit if it takes this share or more of the time from a request to its
answer [ratio]."""


def connection_limit(evidence: Evidence, broker_id: int) -> str | None:
    """A text with the limit of the producers' connections to a broker, and the setting to change,
    or None if the connections are not the limit.
    """
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
            f"time in which there was data to send{_beside('our send buffer', sender)}: the "
            "socket's buffer is the limit, not the broker; raise the broker's "
            f"socket.receive.buffer.bytes{own}, or net.ipv4.tcp_rmem of its host if this property "
            "is -1"
        )
    size = sockets.send_buffer_bytes
    own = "" if size is None else f" ({format_volume(size / 2)})"
    return (
        f"{_carried(sockets)}; our send buffer{own} was full for {sender:.0%} of the time in "
        f"which there was data to send{_beside('the receive window', receiver)}: the socket's "
        "buffer is the limit, not the broker; raise producer.send_buffer_bytes (Kafka's "
        "send.buffer.bytes), or net.ipv4.tcp_wmem of the generator's hosts if this property is -1"
    )


def _beside(other: str, share: float) -> str:
    return f", and {other} for {share:.0%}" if share >= BESIDE_SHARE_LEAST else ""


def _carried(sockets: SocketCounts) -> str:
    """The throughput of one connection, with its bytes in flight and its round trip.

    Example: `one connection had at most 128 kB in flight at 50 ms: 2.6 MB/s`.
    """
    return (
        f"one connection had at most {format_volume(sockets.in_flight_max_bytes)} in flight at "
        f"{format_ms(sockets.rtt_mean_ms)} ms: "
        f"{format_mb_per_s(sockets.fastest_bytes_per_s / 1e6)} MB/s"
    )


def _of_broker(evidence: Evidence, broker_id: int) -> str:
    """A phrase with the size of the broker's receive buffer, or an empty text if its sockets were
    not read.

    The kernel reports twice the configured size, because the kernel adds its own overhead.
    """
    sockets = evidence.broker_sockets.get(broker_id)
    if sockets is None or sockets.receive_buffer_bytes is None:
        return ""
    return f" (its buffers are {format_volume(sockets.receive_buffer_bytes / 2)})"


def _waits_for_answers(evidence: Evidence, broker_id: int, sockets: SocketCounts) -> str | None:
    """The text for connections that are limited by the round trip. Such a connection has to wait
    for an answer before it can send the next request, and most of this wait is the round trip. None
    if no connection is limited in this way.
    """
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
    all_of_them = "its 1 allowed request" if most == 1 else f"all {most} allowed requests"
    return (
        f"in {waiting:.0%} of the samples a connection had data to send, but waited because "
        f"{all_of_them} had no answer yet: "
        f"{per_s:.0f} requests/s of {format_volume(size)} at a round trip of {format_ms(rtt_ms)} "
        "ms; the round trip is the limit, not the broker; raise producer.max_in_flight (up to 5 "
        "with enable_idempotence) or producer.batch_size, or use more connections"
    )
