"""The use of a broker's resources that grows with its traffic, in one window.

A use is a share of the resource, or a rate where only a run shows how much of it there is. The
limits of the shares are those of the attribution, see `metrics.judging.nearness`.

The windows of production: one for the answer, and shorter ones that show its scatter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from metrics.judging.nearness import (
    CPU_SATURATED,
    DISK_BUSY_HIGH,
    LINK_SHARE_HIGH,
    NETWORK_IDLE_LOW,
)
from metrics.judging.thresholds import Indicators
from metrics.sources.hosts.source import HostSample
from metrics.sources.sample import BrokerSample
from metrics.windows.broker import BrokerWindow, broker_windows
from metrics.windows.host import HostWindow, host_windows
from metrics.windows.use import (
    Resource,
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


SLICES = 6
"""Number of parts of the window, whose scatter shows how sure its means are."""
IDLE_BYTES_PER_S = 1_000.0
"""Input of all brokers below which a cluster is idle [B/s]."""


@dataclass(frozen=True)
class Windows:
    """The windows of all brokers and hosts over the same time."""

    brokers: tuple[BrokerWindow, ...]
    hosts: tuple[HostWindow, ...] = ()


@dataclass(frozen=True)
class Today:
    """The traffic of production.

    Attributes:
        source: source of the metrics.
        start_s, end_s: the window [s since the epoch].
        whole: the windows over all of it.
        parts: the windows of its parts.
        machines: broker id → name of its machine, where it is known.
        note: how the window was chosen; empty for the last minute or so.
    """

    source: str
    start_s: float
    end_s: float
    whole: Windows
    parts: Sequence[Windows] = ()
    machines: Mapping[int, str] = field(default_factory=dict)
    note: str = ""

    @property
    def bytes_in_per_s(self) -> float | None:
        """Input of all brokers from producers [B/s]; None where a broker does not show it."""
        rates = [each.bytes_in_per_s for each in self.whole.brokers]
        return None if None in rates or not rates else sum(filter(None, rates))

    @property
    def is_idle(self) -> bool:
        """Whether producers write next to nothing."""
        taken = self.bytes_in_per_s
        return taken is not None and taken < IDLE_BYTES_PER_S

    def loads(self, limits: Indicators) -> dict[int, dict[Key, ResourceLoad]]:
        """Broker id → the use of its resources in the whole window."""
        return loads_of(self.whole.brokers, self.whole.hosts, limits, self.machines)

    def parts_of(self, limits: Indicators) -> list[dict[int, dict[Key, ResourceLoad]]]:
        """The same for each part."""
        return [loads_of(each.brokers, each.hosts, limits, self.machines) for each in self.parts]


def today_of(
    source: str,
    samples: Sequence[BrokerSample],
    hosts: Sequence[HostSample],
    brokers: Sequence[int],
    brokers_by_host: Mapping[str, Sequence[int]],
    span: tuple[float, float, float],
    link_mbit_per_s: float | None = None,
    machines: Mapping[int, str] | None = None,
) -> Today:
    """Today's windows from samples of some seconds.

    Args:
        source: source of the metrics.
        samples, hosts: samples of brokers and hosts in the span.
        brokers: ids of the brokers.
        brokers_by_host: host → ids of the brokers that run on it.
        span: start and end [s since the epoch], and the time between samples [s].
        link_mbit_per_s: stated speed of the brokers' network interfaces.
        machines: broker id → name of its machine.
    """
    start_s, end_s, interval_s = span

    def between(from_s: float, to_s: float) -> Windows:
        return Windows(
            broker_windows(samples, brokers, from_s, to_s, interval_s, link_mbit_per_s),
            host_windows(hosts, from_s, to_s, brokers_by_host),
        )

    count = max(1, min(SLICES, int((end_s - start_s) / (3 * interval_s))))
    step_s = (end_s - start_s) / count
    parts = [between(start_s + n * step_s, start_s + (n + 1) * step_s) for n in range(count)]
    return Today(
        source, start_s, end_s, between(start_s, end_s),
        parts if count > 1 else (), machines or {},
    )  # fmt: skip
