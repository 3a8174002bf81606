"""The USE table of a broker: utilization, saturation and errors of each of its resources.

Gregg describes the method (https://www.brendangregg.com/usemethod.html): for every resource,
measure the utilization, the saturation (work that waited for the resource) and the errors. All
values belong to one broker and one window. A value that the metrics do not show is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from metrics.windows.broker import BrokerWindow, highest, over, scaled, total


class Resource(str, Enum):
    """A resource that can limit a broker or its connections."""

    REQUEST_HANDLERS = "request handlers"
    NETWORK_THREADS = "network threads"
    CPU = "CPU"
    HEAP = "heap"
    MEMORY = "memory"
    DISK = "disk"
    NETWORK = "network"
    REPLICATION = "replication"
    QUOTA = "quota"
    CONNECTION = "connection"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ResourceUse:
    """The use of one resource of one broker in one window.

    Attributes:
        broker_id: node id.
        resource: the resource.
        utilization: used share of the resource [ratio].
        saturation: work that waited for the resource [saturation_unit].
        saturation_unit: unit of `saturation`.
        errors: number of errors [errors_unit].
        errors_unit: unit of `errors`.
    """

    broker_id: int
    resource: Resource
    utilization: float | None = None
    saturation: float | None = None
    saturation_unit: str = ""
    errors: float | None = None
    errors_unit: str = ""


def _in_phase(window: BrokerWindow, phase: str) -> float | None:
    """Mean number of requests in a phase, by Little's law.

    Args:
        window: window of the broker.
        phase: name of the field of `RequestWindow` that contains the mean time in the phase.
    """
    kinds = (window.produce, window.fetch_consumer, window.fetch_follower)
    known = ((each.per_s, getattr(each, phase)) for each in kinds)
    return total(None if rate is None or ms is None else rate * ms / 1000.0 for rate, ms in known)


def busy_threads(window: BrokerWindow) -> float | None:
    """Lower bound of the mean number of busy request handlers [handlers].

    The result is the higher of two lower bounds. The first lower bound follows from Little's law.
    The first lower bound may be too low, because Kafka cuts the times of each request to whole
    milliseconds. The second lower bound is the handlers' busy fraction.
    """
    threads = _in_phase(window, "local_ms")
    idle = window.handler_idle
    if threads is None or idle is None:
        return threads
    return max(threads, 1.0 - idle)


def flush_share(window: BrokerWindow) -> float | None:
    """Share of the request handlers' busy time that log flushes take [ratio].

    Replica fetchers also flush, on separate threads. The share of replica fetchers in all flushes
    is assumed to equal the share of replicated bytes in all received bytes.
    """
    busy = busy_threads(window)
    if window.flush_threads is None or not busy:
        return None
    led, followed = window.bytes_in_per_s, window.replication_bytes_in_per_s
    if led is None or led + (followed or 0.0) <= 0:
        return None
    return min(1.0, window.flush_threads * led / (led + (followed or 0.0)) / busy)


def waiting_share(window: BrokerWindow) -> float | None:
    """Lower bound of the share of the handlers' busy time in which they used no CPU [ratio]."""
    threads = busy_threads(window)
    if not threads or window.cpu_cores is None:
        return None
    return max(0.0, 1.0 - window.cpu_cores / threads)


def produce_throttle_ms(window: BrokerWindow) -> float | None:
    """Mean throttle time of produce requests [ms], or 0 if the measured time is only a rounding
    error.

    Kafka counts throttle times in whole milliseconds, so a real total in a window is at least 1 ms.
    A total of up to 0.5 ms is a rounding error of the histogram's mean.
    """
    mean_ms, per_s = window.produce.throttle_ms, window.produce.per_s
    if mean_ms is None or not per_s or window.start_s is None or window.end_s is None:
        return mean_ms
    return mean_ms if mean_ms * per_s * (window.end_s - window.start_s) > 0.5 else 0.0


def remote_share(window: BrokerWindow) -> float | None:
    """Share of the produce requests' time in which the requests wait for followers [ratio]."""
    return over(window.produce.remote_ms, window.produce.total_ms)


def link_share(window: BrokerWindow) -> float | None:
    """Utilization of the network interface in its busier direction [ratio].

    The utilization is computed only from the bytes that Kafka received and sent, without the
    headers of TCP and IP. So the utilization is 0.94 to 0.96 for a full link with frames of 1,500
    bytes. The result is None if the link's speed is not configured.
    """
    return over(
        scaled(highest((network_in(window), network_out(window))), 8e-6), window.link_mbit_per_s
    )


def network_in(window: BrokerWindow) -> float | None:
    """Bytes received on the broker's sockets or fetched from other leaders [B/s]."""
    served = window.network_in_bytes_per_s
    served = window.bytes_in_per_s if served is None else served
    return None if served is None else served + (window.replication_bytes_in_per_s or 0.0)


def network_out(window: BrokerWindow) -> float | None:
    """Bytes sent to clients and followers [B/s]."""
    if window.network_out_bytes_per_s is not None:
        return window.network_out_bytes_per_s
    return total((window.bytes_out_per_s, window.replication_bytes_out_per_s))


def cpu_share(window: BrokerWindow) -> float | None:
    """The higher of two shares [ratio]: the busy share of the machine's CPU, and the share of the
    machine's CPU time that the broker used.
    """
    return highest((window.cpu_machine_share, window.cpu_process_share))


def _used(idle: float | None) -> float | None:
    return None if idle is None else max(0.0, 1.0 - idle)


def use_of(window: BrokerWindow) -> tuple[ResourceUse, ...]:
    """The USE table of one broker, with one row for each resource."""
    flushing, row = window.flush_threads, partial(ResourceUse, window.broker_id)
    return (
        row(
            Resource.REQUEST_HANDLERS,
            _used(window.handler_idle),
            _in_phase(window, "request_queue_ms"),
            "requests waiting",
            window.failed_produce_requests_per_s,
            "failed requests/s",
        ),
        row(
            Resource.NETWORK_THREADS,
            _used(window.network_idle),
            _in_phase(window, "response_queue_ms"),
            "responses waiting",
        ),
        # JMX shows no run queue of the machine, only averages over a minute.
        row(Resource.CPU, cpu_share(window)),
        row(
            Resource.HEAP,
            window.heap_used_share_min,
            window.gc_share,
            "share of time in collections",
        ),
        row(
            Resource.DISK,
            None if flushing is None else min(1.0, flushing),
            flushing,
            "threads waiting",
            window.offline_replicas_max,
            "offline replicas",
        ),
        row(
            Resource.NETWORK,
            link_share(window),
            _in_phase(window, "response_send_ms"),
            "responses being sent",
        ),
        row(
            Resource.REPLICATION,
            window.isr_changed_share,
            window.replica_lag_max_records,
            "records behind",
            window.isr_shrinks,
            "ISR shrinks",
        ),
        row(Resource.QUOTA, None, produce_throttle_ms(window), "ms throttled"),
    )


def use_table(brokers: Iterable[BrokerWindow]) -> tuple[ResourceUse, ...]:
    """The USE tables of all brokers in one tuple."""
    return tuple(row for window in brokers for row in use_of(window))
