"""The use of a broker's resources that grows with its traffic, in one window.

A use is a share of the resource, or a rate where only a run shows how much of it there is. The
limits of the shares are those of the attribution, see `metrics.judging.nearness`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metrics.judging.nearness import (
    CPU_SATURATED,
    DISK_BUSY_HIGH,
    LINK_SHARE_HIGH,
    NETWORK_IDLE_LOW,
)
from metrics.judging.thresholds import Indicators
from metrics.windows.broker import BrokerWindow
from metrics.windows.host import HostWindow
from metrics.windows.resource import Resource
from metrics.windows.use import (
    cpu_share,
    link_share,
    network_in,
    network_out,
    produce_throttle_ms,
)

RATIO, BYTES_PER_S = "ratio", "B/s"

SHARES_APART = 0.05
"""Difference up to which the brokers of a machine and the machine show the same use [ratio]."""

Key = tuple[Resource, str]
"""A resource, and the unit of its use."""


@dataclass(frozen=True)
class ResourceLoad:
    """The use of one resource by the traffic of one broker.

    Attributes:
        resource: the resource.
        unit: unit of the use, `ratio` or `B/s`.
        used: the part in use that grows with the traffic [unit].
        most: the use at which the resource gives out, less what others use of it; None where only
            a run shows it [unit].
    """

    resource: Resource
    unit: str
    used: float
    most: float | None = None

    @property
    def key(self) -> Key:
        """The resource and the unit of its use."""
        return self.resource, self.unit


def loads_of(
    brokers: Sequence[BrokerWindow],
    hosts: Sequence[HostWindow],
    limits: Indicators,
    machines: Mapping[int, str] | None = None,
) -> dict[int, dict[Key, ResourceLoad]]:
    """Broker id → the use of its resources, as far as its window shows it.

    Args:
        brokers: the windows of all brokers.
        hosts: the windows of their hosts.
        limits: the limits of the goal.
        machines: broker id → name of its machine; by default each has its own.
    """
    by_broker: dict[int, list[HostWindow]] = {}
    for host in hosts:
        for broker_id in host.brokers:
            by_broker.setdefault(broker_id, []).append(host)
    found = {}
    for window in brokers:
        own = by_broker.get(window.broker_id, [])
        named = machines or {}
        beside = [
            each
            for each in brokers
            if each is window
            or (window.broker_id in named and named.get(each.broker_id) == named[window.broker_id])
        ]
        loads = (
            *_threads(window, limits),
            *_cpu(window, beside, own),
            *_disk(window, own),
            *_network(window, own),
            *_quota(window),
        )
        found[window.broker_id] = {each.key: each for each in loads}
    return found


def _threads(window: BrokerWindow, limits: Indicators) -> Iterator[ResourceLoad]:
    if window.handler_idle is not None:
        most = 1.0 - limits.request_handler_idle_min
        yield _share(Resource.REQUEST_HANDLERS, 1.0 - window.handler_idle, most)
    if window.network_idle is not None:
        most = 1.0 - (limits.network_idle_min or NETWORK_IDLE_LOW)
        yield _share(Resource.NETWORK_THREADS, 1.0 - window.network_idle, most)


def _cpu(
    window: BrokerWindow, beside: Sequence[BrokerWindow], hosts: Sequence[HostWindow]
) -> Iterator[ResourceLoad]:
    """The CPU that brokers use; what other programs use of the machine does not grow with it."""
    shares = [each.cpu_process_share for each in beside]
    whole = max(
        (each for each in (cpu_share(window), *(host.cpu_busy for host in hosts)) if each),
        default=None,
    )
    if whole is None:
        return
    if None in shares:
        yield _share(Resource.CPU, whole, CPU_SATURATED)
        return
    own = sum(filter(None, shares))
    if window.cpu_machine_share is not None and own > whole + SHARES_APART:
        own = window.cpu_process_share or 0.0  # an address that brokers of several machines share
    yield _share(Resource.CPU, own, CPU_SATURATED - max(0.0, whole - own))


def _disk(window: BrokerWindow, hosts: Sequence[HostWindow]) -> Iterator[ResourceLoad]:
    busy = [disk.busy_share for host in hosts for disk in host.disks if disk.busy_share is not None]
    used = max(busy, default=window.flush_threads)
    if used is not None:
        yield _share(Resource.DISK, min(1.0, used), DISK_BUSY_HIGH)
    if window.bytes_in_per_s is not None:
        taken = window.bytes_in_per_s + (window.replication_bytes_in_per_s or 0.0)
        yield ResourceLoad(Resource.DISK, BYTES_PER_S, taken)


def _network(window: BrokerWindow, hosts: Sequence[HostWindow]) -> Iterator[ResourceLoad]:
    shares = [
        link.used_share for host in hosts for link in host.interfaces if link.used_share is not None
    ]
    used = max(shares, default=link_share(window))
    if used is not None:
        yield _share(Resource.NETWORK, used, LINK_SHARE_HIGH)
    rates = [rate for rate in (network_in(window), network_out(window)) if rate is not None]
    if rates:
        yield ResourceLoad(Resource.NETWORK, BYTES_PER_S, max(rates))


def _quota(window: BrokerWindow) -> Iterator[ResourceLoad]:
    """A quota in use shows only once it throttles; then it is fully used."""
    if produce_throttle_ms(window):
        yield _share(Resource.QUOTA, 1.0, 1.0)


def _share(resource: Resource, used: float, most: float) -> ResourceLoad:
    return ResourceLoad(resource, RATIO, max(0.0, used), max(0.0, most))
