"""Which resource of a broker bound it, by the USE method, with the evidence in words.

Utilization, saturation and errors of each resource are read from the broker's window
(Gregg, "The USE method"). The request handlers come first, because whatever they wait for
shows in them: a handler that waits for the disk and one that lacks CPU are both busy.
What they wait for then names the resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metrics.evidence import Resource
from metrics.thresholds import Thresholds
from metrics.windows import BrokerWindow

CPU_SATURATED = 0.90
"""Busy share of the machine from which on threads wait for a core [ratio]."""

NETWORK_IDLE_LOW = 0.20
"""Idle fraction of a network thread below which it is a bottleneck [ratio]."""

DISK_SHARE_HIGH = 0.5
"""Share of the handlers' time in appends that went into flushes, or into waiting without
using CPU, from which on the disk explains why they are busy [ratio]."""

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


def local_threads(window: BrokerWindow) -> float | None:
    """Threads that work on requests locally at a time: rate × mean local time, summed."""
    parts = [
        request.per_s * request.local_ms / 1000.0
        for request in (window.produce, window.fetch_consumer, window.fetch_follower)
        if request.per_s is not None and request.local_ms is not None
    ]
    return sum(parts) if parts else None


def flush_share(window: BrokerWindow) -> float | None:
    """Share of the handlers' time in produce appends that went into log flushes [ratio].

    Followers flush too, on threads of their own; their part is taken to be that of the
    replicated bytes.
    """
    produce = window.produce
    if window.flush_threads is None or not produce.per_s or not produce.local_ms:
        return None
    led, followed = window.bytes_in_per_s, window.replication_bytes_in_per_s
    if led is None or led + (followed or 0.0) <= 0:
        return None
    flushing = window.flush_threads * led / (led + (followed or 0.0))
    return min(1.0, flushing / (produce.per_s * produce.local_ms / 1000.0))


def waiting_share(window: BrokerWindow) -> float | None:
    """Share of the handlers' local time that used no CPU, at least [ratio]."""
    threads = local_threads(window)
    if not threads or window.cpu_cores is None:
        return None
    return max(0.0, 1.0 - window.cpu_cores / threads)


def remote_share(window: BrokerWindow) -> float | None:
    """Share of a produce request's time spent waiting for followers [ratio]."""
    produce = window.produce
    if produce.remote_ms is None or not produce.total_ms:
        return None
    return produce.remote_ms / produce.total_ms


def utilization(window: BrokerWindow) -> dict[Resource, float]:
    """How used each resource of a broker was [ratio], as far as the window tells."""
    found = {
        Resource.REQUEST_HANDLERS: None if window.handler_idle is None else 1 - window.handler_idle,
        Resource.NETWORK_THREADS: None if window.network_idle is None else 1 - window.network_idle,
        Resource.CPU: window.cpu_machine_share,
        Resource.DISK: None if window.flush_threads is None else min(1.0, window.flush_threads),
        Resource.REPLICATION: window.isr_changed_share,
    }
    return {name: max(0.0, value) for name, value in found.items() if value is not None}


def _others(window: BrokerWindow, resource: Resource) -> str:
    used = [f"{r.value} {u:.2f}" for r, u in utilization(window).items() if r is not resource]
    return f"; used of the others: {', '.join(used)}" if used else ""


def _times(window: BrokerWindow) -> str:
    """The produce request's time and where it went."""
    produce = window.produce
    if produce.total_ms is None or produce.local_ms is None:
        return "no produce request was timed"
    queue = "" if produce.request_queue_ms is None else f", {produce.request_queue_ms:.1f} queued"
    return f"produce took {produce.total_ms:.1f} ms, {produce.local_ms:.1f} of it local{queue}"


def _busy_handlers(window: BrokerWindow) -> tuple[Resource, str]:
    """Why a broker's request handlers are busy."""
    idle = f"request handlers idle {window.handler_idle:.2f}"
    flushing = flush_share(window)
    if flushing is not None and flushing >= DISK_SHARE_HIGH:
        return Resource.DISK, (
            f"{idle}, and flushes took {flushing:.0%} of their time in appends "
            f"({window.flush_ms:.1f} ms each); {_times(window)}"
        )
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


def _attribute(window: BrokerWindow, thresholds: Thresholds) -> tuple[Resource, str]:
    """The resource that binds one broker, and the evidence."""
    if window.produce.throttle_ms is not None and window.produce.throttle_ms > 0:
        return Resource.QUOTA, (
            f"produce requests were throttled for {window.produce.throttle_ms:.1f} ms on average"
        )
    idle = window.handler_idle
    if idle is not None and idle < thresholds.request_handler_idle_min:
        return _busy_handlers(window)
    if window.network_idle is not None and window.network_idle < NETWORK_IDLE_LOW:
        return Resource.NETWORK_THREADS, (
            f"the busiest network thread was idle {window.network_idle:.2f}"
        )
    if window.cpu_machine_share is not None and window.cpu_machine_share >= CPU_SATURATED:
        return Resource.CPU, f"the machine was {window.cpu_machine_share:.0%} busy"
    changed, remote = window.isr_changed_share, remote_share(window)
    if changed is not None and changed > thresholds.isr_changed_share_max:
        return Resource.REPLICATION, (
            f"followers fell behind: ISR changes or under-replicated partitions in "
            f"{changed:.0%} of the samples"
        )
    if remote is not None and remote >= REMOTE_SHARE_HIGH:
        return Resource.REPLICATION, (
            f"waiting for followers took {remote:.0%} of a produce request "
            f"({window.produce.remote_ms:.1f} of {window.produce.total_ms:.1f} ms)"
        )
    return Resource.UNKNOWN, "no resource that the metrics show was near its limit"


_ORDER = (
    Resource.QUOTA,
    Resource.DISK,
    Resource.REQUEST_HANDLERS,
    Resource.NETWORK_THREADS,
    Resource.CPU,
    Resource.REPLICATION,
    Resource.UNKNOWN,
)
"""Which of several brokers' resources to name: what is one broker's own first, then what
brokers on one machine share, then what follows from another broker's trouble."""


def attribute(brokers: Sequence[BrokerWindow], thresholds: Thresholds) -> Attribution:
    """What bound the brokers of an overloaded trial.

    The broker with the least idle handlers speaks for those with the same resource.
    """
    judged = [
        (_ORDER.index(resource), _idle_or_one(window), window, resource, text)
        for window in brokers
        for resource, text in [_attribute(window, thresholds)]
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
