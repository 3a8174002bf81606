"""Which resource of a broker bound it, by the USE method, with the evidence in words.

The request handlers come first, because whatever they wait for shows in them: a handler
that waits for the disk and one that lacks CPU are both busy. What they wait for then names
the resource. The numbers are those of `metrics.windows.use`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metrics.judging.thresholds import Thresholds
from metrics.trial.evidence import Evidence
from metrics.windows.broker import BrokerWindow
from metrics.windows.resource import Resource
from metrics.windows.use import (
    CPU_SATURATED,
    flush_share,
    link_share,
    network_in,
    network_out,
    remote_share,
    use_of,
    waiting_share,
)

NETWORK_IDLE_LOW = 0.20
"""Idle fraction of a network thread below which it is a bottleneck [ratio]."""

DISK_SHARE_HIGH = 0.5
"""Share of the handlers' time in appends that went into flushes, or into waiting without
using CPU, from which on the disk explains why they are busy [ratio]."""

GC_SHARE_HIGH = 0.25
"""Share of time in garbage collection from which on the heap explains why they are busy [ratio]."""

LINK_SHARE_HIGH = 0.90
"""Use of the network interface by Kafka's own bytes from which on it is full [ratio]: headers
of TCP, IP and Ethernet take 4 to 6 % of it."""

REMOTE_SHARE_HIGH = 0.5
"""Share of a produce request's time spent waiting for followers that is most of it [ratio]."""


@dataclass(frozen=True)
class Attribution:
    """What bound the brokers, on which broker it shows most, and the evidence.

    `utilization` says how used each resource of that broker was [ratio], as far as known;
    1 minus it is the headroom.
    """

    resource: Resource
    text: str
    broker_id: int | None = None
    utilization: Mapping[Resource, float] = field(default_factory=dict)


def utilization(window: BrokerWindow) -> dict[Resource, float]:
    """How used each resource of a broker was [ratio], as far as the window tells."""
    return {row.resource: row.utilization for row in use_of(window) if row.utilization is not None}


def _others(window: BrokerWindow, resource: Resource) -> str:
    used = [f"{r.value} {u:.2f}" for r, u in utilization(window).items() if r is not resource]
    return f"; used of the others: {', '.join(used)}" if used else ""


def _times(window: BrokerWindow) -> str:
    """The produce request's time and where it went."""
    produce = window.produce
    if not produce.total_ms or produce.local_ms is None:
        return "no produce request was timed"
    queued_ms = produce.request_queue_ms
    queue = "" if queued_ms is None else f", {queued_ms:.1f} queued"
    told = f"produce took {produce.total_ms:.1f} ms, {produce.local_ms:.1f} of it local{queue}"
    # In an overload most of the time is queueing, which says nothing of what is queued for.
    served_ms = produce.total_ms - (queued_ms or 0.0)
    if served_ms <= 0:
        return told
    return f"{told}: local {min(1.0, produce.local_ms / served_ms):.0%} of the time after the queue"


def _busy_handlers(window: BrokerWindow) -> tuple[Resource, str]:
    """Why a broker's request handlers are busy."""
    idle = f"request handlers idle {window.handler_idle:.2f}"
    flushing = flush_share(window)
    if flushing is not None and flushing >= DISK_SHARE_HIGH:
        return Resource.DISK, (
            f"{idle}, and flushes took {flushing:.0%} of their time in appends "
            f"({window.flush_ms:.1f} ms each); {_times(window)}"
        )
    if window.gc_share is not None and window.gc_share >= GC_SHARE_HIGH:
        return Resource.HEAP, f"{idle}, and {_collections(window)}; {_times(window)}"
    if window.cpu_machine_share is not None and window.cpu_machine_share >= CPU_SATURATED:
        return Resource.CPU, (
            f"{idle} on a machine {window.cpu_machine_share:.0%} busy, of which the broker "
            f"used {window.cpu_cores or 0:.2f} cores; {_times(window)}"
        )
    waiting = waiting_share(window)
    if waiting is not None and waiting >= DISK_SHARE_HIGH:
        return Resource.DISK, (
            f"{idle}, and for at least {waiting:.0%} of their local time they waited without "
            f"using CPU; {_times(window)}"
        )
    return Resource.REQUEST_HANDLERS, (
        f"{idle} with CPU to spare and no wait for the disk: too few of them; {_times(window)}"
    )


def _collections(window: BrokerWindow) -> str:
    least = window.heap_used_share_min
    full = "" if least is None else f", with never less than {least:.0%} of the heap in use"
    return f"garbage collection stopped all threads for {window.gc_share:.0%} of the time{full}"


def _attribute(
    window: BrokerWindow, thresholds: Thresholds, brokers: Sequence[BrokerWindow]
) -> tuple[Resource, str]:
    """The resource that binds one broker, and the evidence."""
    throttle_ms = window.produce.throttle_ms
    if throttle_ms is not None and throttle_ms > thresholds.validity.throttle_ms_max:
        return (
            Resource.QUOTA,
            f"produce requests were throttled for {throttle_ms:.1f} ms on average",
        )
    idle = window.handler_idle
    if idle is not None and idle < thresholds.indicators.request_handler_idle_min:
        return _busy_handlers(window)
    link = link_share(window)
    if link is not None and link >= LINK_SHARE_HIGH:
        return Resource.NETWORK, (
            f"Kafka's bytes filled {link:.0%} of the {window.link_mbit_per_s:g} Mbit/s interface "
            f"({_mbit(network_in(window))} in, {_mbit(network_out(window))} out)"
        )
    if window.network_idle is not None and window.network_idle < NETWORK_IDLE_LOW:
        return Resource.NETWORK_THREADS, (
            f"the busiest network thread was idle {window.network_idle:.2f}"
        )
    if window.gc_share is not None and window.gc_share >= GC_SHARE_HIGH:
        return Resource.HEAP, _collections(window)
    if window.cpu_machine_share is not None and window.cpu_machine_share >= CPU_SATURATED:
        return Resource.CPU, f"the machine was {window.cpu_machine_share:.0%} busy"
    return _replication(window, thresholds, brokers)


def _mbit(bytes_per_s: float | None) -> str:
    return "unknown" if bytes_per_s is None else f"{bytes_per_s * 8 / 1e6:.0f} Mbit/s"


def _replication(
    window: BrokerWindow, thresholds: Thresholds, brokers: Sequence[BrokerWindow]
) -> tuple[Resource, str]:
    """The followers, or nothing that the metrics show."""
    changed, remote = window.isr_changed_share, remote_share(window)
    if changed is not None and changed > thresholds.indicators.isr_changed_share_max:
        return Resource.REPLICATION, (
            f"followers fell behind: ISR changes or under-replicated partitions in "
            f"{changed:.0%} of the samples{_furthest_behind(brokers)}"
        )
    if remote is not None and remote >= REMOTE_SHARE_HIGH:
        return Resource.REPLICATION, (
            f"waiting for followers took {remote:.0%} of a produce request "
            f"({window.produce.remote_ms:.1f} of {window.produce.total_ms:.1f} ms)"
            f"{_furthest_behind(brokers)}"
        )
    return Resource.UNKNOWN, "no resource that the metrics show was near its limit"


def _furthest_behind(brokers: Sequence[BrokerWindow]) -> str:
    """The broker whose replicas lag most: what binds the leaders is over there."""
    lags = [(w.replica_lag_max_records or 0.0, -w.broker_id) for w in brokers]
    records, broker_id = max(lags, default=(0.0, 0))
    if records <= 0:
        return ""
    return f", the replicas on broker {-broker_id} by up to {records:.0f} records"


_ORDER = (
    Resource.QUOTA,
    Resource.DISK,
    Resource.HEAP,
    Resource.REQUEST_HANDLERS,
    Resource.NETWORK,
    Resource.NETWORK_THREADS,
    Resource.CPU,
    Resource.REPLICATION,
    Resource.UNKNOWN,
)
"""Which of several brokers' resources to name: what is one broker's own first, then what
brokers on one machine share, then what follows from another broker's trouble."""


def attribute(evidence: Evidence, thresholds: Thresholds) -> Attribution:
    """What bound the brokers of an overloaded trial.

    The broker with the least idle handlers speaks for those with the same resource.
    """
    brokers = evidence.brokers
    if evidence.cluster.is_blind:
        return Attribution(Resource.UNKNOWN, "unknown: the cluster shows no broker metrics")
    judged = [
        (_ORDER.index(resource), _idle_or_one(window), window, resource, text)
        for window in brokers
        for resource, text in [_attribute(window, thresholds, brokers)]
    ]
    if not judged:
        return Attribution(Resource.UNKNOWN, "no broker was sampled")
    _, _, window, resource, text = min(judged, key=lambda found: found[:2])
    return Attribution(
        resource,
        f"{resource.value}: broker {window.broker_id}: {text}{_others(window, resource)}",
        window.broker_id,
        utilization(window),
    )


def _idle_or_one(window: BrokerWindow) -> float:
    return 1.0 if window.handler_idle is None else window.handler_idle
