"""The limiting resource of an overloaded cluster, found with the USE method.

The request handlers are checked first, because every wait also keeps a handler busy: a handler
that waits for the disk and a handler that lacks CPU are both busy. The limiting resource is the one
that busy handlers wait for. `metrics.windows.use` computes the utilizations, and
`metrics.judging.nearness` defines the limits of the utilizations. If several trials are overloaded,
a weighted vote combines their attributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from metrics.common.grouping import grouped
from metrics.judging.nearness import (
    CPU_SATURATED,
    DISK_BUSY_HIGH,
    DISK_BUSY_UNDER_PRESSURE,
    DISK_QUEUE_HIGH,
    DROPPED_SHARE_HIGH,
    GC_SHARE_HIGH,
    LINK_SHARE_HIGH,
    PRESSURE_IO_HIGH,
    RETRANSMITTED_SHARE_HIGH,
    SWAPPED_PAGES_HIGH,
    THROTTLED_SHARE_HIGH,
    connection_limit,
    is_at_limit,
    nearness,
    throttle_reasons,
)
from metrics.judging.running import followers_behind, followers_reason
from metrics.judging.thresholds import Thresholds
from metrics.trial.evidence import Evidence, Judgement
from metrics.windows.broker import BrokerWindow, highest, over, whole
from metrics.windows.host import DiskWindow, HostWindow, InterfaceWindow
from metrics.windows.use import (
    Resource,
    ResourceUse,
    cpu_share,
    flush_share,
    network_in,
    network_out,
    remote_share,
    use_of,
    waiting_share,
)

HANDLERS_SHARE_HIGH = 0.5
"""Log flushes count as the reason for busy request handlers if the flushes take at least this share
of the handlers' busy time [ratio]. Request handlers count as mostly waiting if they use no CPU
during at least this share of their busy time."""

FLUSH_SHARE_LOW = 0.25
"""Handlers count as busy with flushes if the flushes take at least this share of the handlers' busy
time [ratio]. This value replaces `HANDLERS_SHARE_HIGH` if the handlers mostly wait while the disk
is at its limit. The value is lower than `HANDLERS_SHARE_HIGH`, because the flushes of followers are
only estimated from the followers' bytes."""

REMOTE_SHARE_HIGH = 0.5
"""Replication counts as the limit if a produce request waits for followers during this share of its
time or more [ratio]."""

OWN_CPU_SHARE_LEAST = 0.5
"""Brokers count as the cause of a busy machine if they use this share of its used CPU or more
[ratio]. If brokers use less than this share, other processes count as the cause of the busy
machine."""


@dataclass(frozen=True)
class Attribution:
    """The limiting resource of the brokers, with the evidence.

    Attributes:
        resource: the limiting resource.
        text: the evidence.
        broker_id: the broker that shows the limit most clearly.
        utilization: known utilization of each resource of this broker [ratio].
    """

    resource: Resource
    text: str
    broker_id: int | None = None
    utilization: Mapping[Resource, float] = field(default_factory=dict)


class _ClusterEvidence:
    """Facts about all brokers and hosts together, which are computed once for all rules."""

    def __init__(self, evidence: Evidence) -> None:
        self._brokers, self._hosts = evidence.brokers, evidence.hosts

    @cached_property
    def hosts_by_broker(self) -> Mapping[int, Sequence[HostWindow]]:
        """Broker id → the windows of its host, one window for each name of the host."""
        return grouped((broker, host) for host in self._hosts for broker in host.brokers)

    @cached_property
    def far_interfaces(self) -> Sequence[tuple[HostWindow, InterfaceWindow]]:
        """The interfaces at the generator's end of a simulated link, if the speed of these
        interfaces is known.
        """
        ends = (host for host in self._hosts if host.shares_machine and not host.brokers)
        far = ((host, each) for host in ends for each in host.interfaces)
        return [(host, each) for host, each in far if each.speed_bytes_per_s is not None]

    @cached_property
    def cpu_used_share(self) -> float | None:
        """Share of a machine's CPU [ratio]. The share is the sum of the CPU use of all brokers
        whose machine has no spare CPU. None if one of these brokers does not report its CPU time.
        """
        busy = [each for each in self._brokers if (cpu_share(each) or 0.0) >= CPU_SATURATED]
        return whole([each.cpu_process_share for each in busy])

    @cached_property
    def isr_changed_most(self) -> frozenset[int]:
        """Ids of the brokers with the most ISR changes, or an empty set if no broker shows ISR
        changes.
        """
        known = [(w.isr_changed_share, w.broker_id) for w in self._brokers]
        shares = {broker: share for share, broker in known if share is not None}
        return frozenset(each for each in shares if shares[each] >= max(shares.values()))


@dataclass(frozen=True)
class _Broker:
    """The input of a rule: one broker's window, USE table and hosts, and the whole evidence."""

    window: BrokerWindow
    evidence: Evidence
    thresholds: Thresholds
    cluster: _ClusterEvidence

    @property
    def hosts(self) -> Sequence[HostWindow]:
        """The windows of the broker's hosts."""
        return self.cluster.hosts_by_broker.get(self.window.broker_id, ())

    @cached_property
    def rows(self) -> Mapping[Resource, ResourceUse]:
        """The broker's USE table. The table shows the host's CPU if the broker does not report its
        own CPU.
        """
        rows = {row.resource: row for row in use_of(self.window)}
        busy = highest(each.cpu_busy for each in self.hosts)
        if rows[Resource.CPU].utilization is None:
            rows[Resource.CPU] = replace(rows[Resource.CPU], utilization=busy)
        return rows

    @property
    def interfaces(self) -> list[tuple[HostWindow, InterfaceWindow]]:
        """The interfaces of the broker's hosts. For a simulated link, also the interfaces at the
        generator's end of the link.

        The interface that drops the highest share of its packets comes first. A simulated link may
        drop packets at both ends, but drops more packets at the generator's end than at the
        brokers' end.
        """
        found = [(host, each) for host in self.hosts for each in host.interfaces]
        found += self.cluster.far_interfaces
        return sorted(found, key=lambda one: -(one[1].dropped_share or 0.0))

    @property
    def full_disk(self) -> DiskWindow | None:
        """The full disk with the longest queue, or None if no disk of the hosts is full."""
        return _longest_queue((disk, DISK_BUSY_HIGH) for host in self.hosts for disk in host.disks)

    @property
    def awaited_disk(self) -> DiskWindow | None:
        """The disk that writers may wait for: the busy disk with the longest queue, or None.

        A disk counts as busy if its busy share is at least `DISK_BUSY_HIGH` and its queue is at
        least `DISK_QUEUE_HIGH`. If tasks of the host wait for I/O, the lower busy share
        `DISK_BUSY_UNDER_PRESSURE` is enough.
        """
        return _longest_queue(
            (disk, DISK_BUSY_UNDER_PRESSURE if _is_under_pressure(host) else DISK_BUSY_HIGH)
            for host in self.hosts
            for disk in host.disks
        )

    def is_at_limit(self, resource: Resource) -> bool:
        is_stopped = resource is Resource.CPU and self.is_stopped_by_quota
        return is_stopped or is_at_limit(self.rows[resource], self.thresholds)

    def is_busy_with(self, resource: Resource) -> bool:
        """True if this resource keeps the broker's request handlers busy."""
        if not self.is_at_limit(Resource.REQUEST_HANDLERS):
            return False
        if self.is_flushing or (_waits(self.window) and self.awaited_disk is not None):
            return resource is Resource.DISK
        if (self.window.gc_share or 0.0) >= GC_SHARE_HIGH:
            return resource is Resource.HEAP
        return resource is (Resource.CPU if self.is_out_of_cpu else Resource.REQUEST_HANDLERS)

    @property
    def is_flushing(self) -> bool:
        """True if the broker's request handlers are busy because they flush."""
        flushing = flush_share(self.window)
        if flushing is None:
            return False
        never_rests = _waits(self.window) and self.is_at_limit(Resource.DISK)
        return flushing >= (FLUSH_SHARE_LOW if never_rests else HANDLERS_SHARE_HIGH)

    @property
    def throttled_share(self) -> float:
        """Share of the quota periods in which the CPU quota stopped the broker [ratio], or 0 for a
        broker without a CPU quota.
        """
        number = self.window.broker_id
        return max((host.throttled_shares.get(number, 0.0) for host in self.hosts), default=0.0)

    @property
    def is_stopped_by_quota(self) -> bool:
        """True if the CPU quota of the broker's control group is used up."""
        return self.throttled_share >= THROTTLED_SHARE_HIGH

    @property
    def is_out_of_cpu(self) -> bool:
        """True if the CPU is at its limit and brokers use at least half of the used CPU.

        Several brokers may run on one machine, but the metrics do not show which brokers share a
        machine. So this method adds up the CPU use of all brokers whose machine has no spare CPU.
        If the metrics do not show which processes use the CPU, the brokers are assumed to use it.
        """
        if self.is_stopped_by_quota:
            return True
        if not self.is_at_limit(Resource.CPU):
            return False
        return self.own_cpu_share is None or self.own_cpu_share >= OWN_CPU_SHARE_LEAST

    @property
    def own_cpu_share(self) -> float | None:
        """The CPU use of the brokers, divided by the CPU use of the whole machine [ratio]. The
        result is an upper bound; it is None if the CPU use of a broker or of the machine is
        unknown.
        """
        used = over(self.cluster.cpu_used_share, cpu_share(self.window))
        return None if used is None else min(1.0, used)


def _longest_queue(disks: Iterable[tuple[DiskWindow, float]]) -> DiskWindow | None:
    """The disk with the longest queue among the busy disks, or None if no disk is busy. A busy disk
    also has a queue of at least `DISK_QUEUE_HIGH`.

    Args:
        disks: pairs of a disk and the busy share from which this disk counts as busy [ratio].
    """
    full = [
        disk
        for disk, busy_least in disks
        if (disk.busy_share or 0.0) >= busy_least and (disk.queue or 0.0) >= DISK_QUEUE_HIGH
    ]
    return max(full, key=lambda disk: disk.queue or 0.0, default=None)


def _is_under_pressure(host: HostWindow) -> bool:
    return (host.pressure_io or 0.0) >= PRESSURE_IO_HIGH


def utilization(window: BrokerWindow) -> dict[Resource, float]:
    """Resource → its utilization [ratio]. Resources without a utilization in the window are left
    out.
    """
    return {row.resource: row.utilization for row in use_of(window) if row.utilization is not None}


def attribute(evidence: Evidence, thresholds: Thresholds) -> Attribution:
    """The limiting resource of an overloaded trial.

    The rules are tried in order, and the first rule that is true for any broker decides the
    resource. If this rule is true for several brokers, the text describes the broker whose handlers
    are least idle.
    """
    is_overload = thresholds.indicators.throttled_is_overload
    throttled = throttle_reasons(evidence, 0.0) if is_overload else []
    quota = Attribution(Resource.QUOTA, f"quota: {throttled[0].text}") if throttled else None
    if evidence.cluster.is_blind:
        unknown = Attribution(Resource.UNKNOWN, "unknown: the cluster shows no broker metrics")
        return quota or unknown
    if not evidence.brokers:
        return Attribution(Resource.UNKNOWN, "no broker was sampled")
    cluster = _ClusterEvidence(evidence)
    brokers = [_Broker(each, evidence, thresholds, cluster) for each in evidence.brokers]
    brokers.sort(key=lambda each: (_idle_or_one(each.window), each.window.broker_id))
    resource, window, text = next(_found(brokers), None) or _unknown(brokers)
    if quota and resource is not Resource.QUOTA:
        return quota
    return Attribution(
        resource,
        f"{resource.value}: broker {window.broker_id}: {text}"
        f"{_also_at_limit(resource, brokers)}{_others(window, resource)}",
        window.broker_id,
        utilization(window),
    )


def _idle_or_one(window: BrokerWindow) -> float:
    return 1.0 if window.handler_idle is None else window.handler_idle


_Finding = tuple[Resource, BrokerWindow, str]
"""(limiting resource, window of the broker that shows it, evidence)."""


def _found(brokers: list[_Broker]) -> Iterator[_Finding]:
    """The findings of all rules that are true, in the order of the rules. The findings of one rule
    begin with the least idle broker.
    """
    for resource, applies, rule in _RULES:
        for broker in brokers:
            if applies(broker, resource) and (text := rule(broker)) is not None:
                yield resource, broker.window, text


# --- rules: the evidence in words -----------------------------------------------------------


def _quota(broker: _Broker) -> str:
    return (
        f"produce requests were throttled for {broker.window.produce.throttle_ms:.1f} ms on average"
    )


def _waits(window: BrokerWindow) -> bool:
    """True if the request handlers spend most of their busy time in waits that use no CPU."""
    return (waiting_share(window) or 0.0) >= HANDLERS_SHARE_HIGH


def _handlers_that_flush(broker: _Broker) -> str:
    window = broker.window
    if not broker.is_flushing:
        return (
            f"{_idle(window)}, waiting without CPU for at least {waiting_share(window):.0%} of "
            f"their time while {_queue_of(broker)}{_pressure(broker)}; {_times(window)}"
        )
    each = "" if window.flush_ms is None else f" ({window.flush_ms:.1f} ms each)"
    return (
        f"{_idle(window)}, and flushes took {flush_share(window):.0%} of their time{each}; "
        f"{_times(window)}"
    )


def _handlers_that_collections_stop(broker: _Broker) -> str:
    return f"{_idle(broker.window)}, and {_collections(broker.window)}; {_times(broker.window)}"


def _handlers_without_cpu(broker: _Broker) -> str:
    window = broker.window
    if broker.is_stopped_by_quota:
        return f"{_idle(window)}, and {_stopped(broker)}; {_times(window)}"
    return (
        f"{_idle(window)} on a machine {_busy(broker)}; the broker used "
        f"{window.cpu_cores or 0:.2f} cores; {_times(window)}"
    )


def _stopped(broker: _Broker) -> str:
    """A text such as `the CPU quota of its control group stopped it in 93% of the periods`."""
    return (
        "the CPU quota of its control group stopped it in "
        f"{broker.throttled_share:.0%} of the periods; it used {broker.window.cpu_cores or 0:.2f} "
        "cores"
    )


def _busy(broker: _Broker) -> str:
    """A text such as `97% busy, with 4.2 threads waiting for a core`."""
    waiting = max((each.waiting_threads or 0.0 for each in broker.hosts), default=0.0)
    queue = f", with {waiting:.1f} threads waiting for a core" if waiting >= 0.5 else ""
    return f"{broker.rows[Resource.CPU].utilization:.0%} busy{queue}"


def _handlers(broker: _Broker) -> str:
    """The text for busy handlers if no other resource explains why they are busy."""
    window = broker.window
    waiting, flushing = waiting_share(window), flush_share(window)
    missing = _not_among(_MISSING_OF_HANDLERS, window)
    if broker.is_at_limit(Resource.CPU):
        spent = (
            f", on a machine that is {cpu_share(window):.0%} busy with processes other than "
            "brokers, so it is unknown whether the handlers wait for a core, a lock, an "
            "authorizer or a read from the disk; keep other work off this machine"
        )
    elif _waits(window):
        flush = "flushes are unknown" if flushing is None else f"{flushing:.0%} flushes"
        spent = (
            f"; they waited for at least {waiting:.0%} of their time without using CPU ({flush}), "
            f"probably for {_waited_for(broker)}{_moved(window)}"
        )
    elif missing:
        spent = f"; the metrics do not show how they spend their time: {missing} are missing"
    else:
        spent = " with CPU to spare and no wait for the disk: there are too few request handlers"
    return f"{_idle(window)}{spent}; {_times(window)}"


def _waited_for(broker: _Broker) -> str:
    """A phrase with the possible causes of the handlers' waits. The phrase does not name the disk
    if all disks were mostly idle.
    """
    busy = [disk.busy_share for host in broker.hosts for disk in host.disks]
    if any(busy) and max(filter(None, busy)) < HANDLERS_SHARE_HIGH:
        return "a lock or an authorizer, because all disks were busy for less than half of the time"
    return "a lock, an authorizer, a read from the disk or a full page cache"


def _moved(window: BrokerWindow) -> str:
    read, written = window.disk_read_bytes_per_s, window.disk_write_bytes_per_s
    if read is None or written is None:
        return ""
    return f"; the broker read {read / 1e6:.1f} MB/s from disk and wrote {written / 1e6:.1f} MB/s"


def _link(broker: _Broker) -> str:
    window = broker.window
    return (
        f"Kafka's bytes filled {broker.rows[Resource.NETWORK].utilization:.0%} of the "
        f"{window.link_mbit_per_s:g} Mbit/s interface "
        f"({_mbit(network_in(window))} in, {_mbit(network_out(window))} out)"
    )


def _swapping(broker: _Broker) -> str | None:
    for host in broker.hosts:
        swapped = host.swapped_pages_per_s or 0.0
        if host.oom_kills:
            return (
                f"the kernel of host {host.host} killed {host.oom_kills:.0f} processes because "
                "memory ran out"
            )
        if swapped >= SWAPPED_PAGES_HIGH:
            return (
                f"host {host.host} moved {swapped:.0f} pages/s to and from swap, with "
                f"{_share(host.memory_used_share)} of its memory in use; reduce the heap, or give "
                "the host more memory"
            )
    return None


def _interface_full(broker: _Broker) -> str | None:
    """The text for an interface that is full or drops packets."""
    for host, each in broker.interfaces:
        used, dropped = each.used_share or 0.0, each.dropped_share or 0.0
        if used < LINK_SHARE_HIGH and dropped < DROPPED_SHARE_HIGH:
            continue
        full = f" of which {used:.0%} was used" if each.used_share is not None else ""
        speed = f" at {_mbit(each.speed_bytes_per_s)}{full}" if each.speed_bytes_per_s else ""
        return (
            f"interface {each.device} of host {host.host}{speed} carried "
            f"{_mbit(each.received_bytes_per_s)} in and {_mbit(each.sent_bytes_per_s)} out, "
            f"and dropped {dropped:.2%} of its packets{_sent_again(host)}"
        )
    return None


def _segments_lost(broker: _Broker) -> str | None:
    """The text for packets that were lost, although no interface of the hosts counted them. TCP
    retransmits the lost packets, and sends more slowly.
    """
    for host in broker.hosts:
        if (host.retransmitted_share or 0.0) >= RETRANSMITTED_SHARE_HIGH:
            return (
                f"packets were lost on the way from host {host.host}{_sent_again(host)}; check the "
                "network between this host and its clients and other brokers"
            )
    return None


def _sent_again(host: HostWindow) -> str:
    share = host.retransmitted_share
    return "" if not share else f"; TCP sent {share:.2%} of its segments again"


def _share(share: float | None) -> str:
    return "an unknown share" if share is None else f"{share:.0%}"


def _network_threads(broker: _Broker) -> str:
    return f"the busiest network thread was idle {broker.window.network_idle:.2f}"


def _collecting(broker: _Broker) -> str | None:
    gc_share = broker.window.gc_share
    return None if gc_share is None or gc_share < GC_SHARE_HIGH else _collections(broker.window)


def _cpu(broker: _Broker) -> str | None:
    if broker.is_stopped_by_quota:
        return _stopped(broker)
    return f"the machine was {_busy(broker)}" if broker.is_out_of_cpu else None


def _cpu_of_others(broker: _Broker) -> str:
    """The text for a machine that other processes keep busy.

    Such a busy machine does not prove that CPU limits the brokers, because the brokers may still
    get enough CPU.
    """
    return (
        f"the machine was {_busy(broker)}, and brokers used {_share(broker.own_cpu_share)} of the "
        f"used CPU: keep other work off this machine; {_not_known([broker])}"
    )


def _disk(broker: _Broker) -> str | None:
    """The text for a disk that is busy although the request handlers do not wait for it. For
    example, replica fetchers keep the disk busy.
    """
    if broker.is_at_limit(Resource.DISK):
        return (
            f"on average {broker.window.flush_threads:.1f} threads were in a flush, replica "
            "fetchers included"
        )
    return _queue_of(broker) if broker.full_disk is not None else None


def _queue_of(broker: _Broker) -> str:
    disk = broker.full_disk or broker.awaited_disk
    assert disk is not None, "a host of the broker has a busy disk that requests wait for"
    moved = [each or 0.0 for each in (disk.read_bytes_per_s, disk.written_bytes_per_s)]
    return (
        f"disk {disk.device} of its host was busy {disk.busy_share:.0%} of the time, with "
        f"{disk.queue:.1f} operations at once; it read {moved[0] / 1e6:.1f} MB/s and wrote "
        f"{moved[1] / 1e6:.1f} MB/s"
    )


def _pressure(broker: _Broker) -> str:
    """A phrase with the time for which tasks waited for I/O. The phrase is empty if the busy share
    alone shows that a disk is full.
    """
    if broker.full_disk is not None:
        return ""
    pressure = max(host.pressure_io or 0.0 for host in broker.hosts)
    return f", and tasks of the host waited for I/O for {pressure:.0%} of the time"


def _followers_behind(broker: _Broker) -> str | None:
    share, limits = broker.evidence.isr_changed_share, broker.thresholds.indicators
    lag = followers_behind(broker.evidence, limits)
    if lag is not None and lag.broker_id == broker.window.broker_id:
        return followers_reason(broker.evidence, limits, lag).text
    is_most = broker.window.broker_id in broker.cluster.isr_changed_most
    is_over = is_most and share is not None and share > limits.isr_changed_share_max
    if share is None or not (is_over or broker.is_at_limit(Resource.REPLICATION)):
        return None
    return (
        f"followers fell behind: ISR changes or under-replicated partitions in "
        f"{share:.0%} of the samples{_furthest_behind(broker.evidence)}"
    )


def _heap_full(broker: _Broker) -> str:
    return f"at least {broker.window.heap_used_share_min:.0%} of the heap was always in use"


def _connection(broker: _Broker) -> str | None:
    """The text for connections that are limited by a long link, if no resource of the broker is
    full.
    """
    text = connection_limit(broker.evidence, broker.window.broker_id)
    if text is None or any(broker.is_at_limit(resource) for resource in broker.rows):
        return None
    return text


def _waits_for_followers(broker: _Broker) -> str | None:
    """The text for produce requests that mostly wait for followers. Waits for followers are the
    weakest evidence, because with acks=all requests mostly wait for followers at any load.
    """
    window, remote = broker.window, remote_share(broker.window)
    if remote is None or remote < REMOTE_SHARE_HIGH:
        return None
    return (
        f"nothing else was near its limit, and waiting for followers took {remote:.0%} of a "
        f"produce request ({window.produce.remote_ms:.1f} of {window.produce.total_ms:.1f} ms)"
        f"{_furthest_behind(broker.evidence)}; {_not_known([broker])}"
    )


def _always(_broker: _Broker, _resource: Resource) -> bool:
    return True


_RULES: tuple[
    tuple[Resource, Callable[[_Broker, Resource], bool], Callable[[_Broker], str | None]], ...
] = (
    (Resource.QUOTA, _Broker.is_at_limit, _quota),
    (Resource.MEMORY, _always, _swapping),
    (Resource.DISK, _Broker.is_busy_with, _handlers_that_flush),
    (Resource.HEAP, _Broker.is_busy_with, _handlers_that_collections_stop),
    (Resource.REQUEST_HANDLERS, _Broker.is_busy_with, _handlers),
    (Resource.NETWORK, _Broker.is_at_limit, _link),
    (Resource.NETWORK, _always, _interface_full),
    (Resource.CPU, _Broker.is_busy_with, _handlers_without_cpu),
    (Resource.NETWORK_THREADS, _Broker.is_at_limit, _network_threads),
    (Resource.HEAP, _always, _collecting),
    (Resource.CPU, _always, _cpu),
    (Resource.NETWORK, _always, _segments_lost),
    (Resource.DISK, _always, _disk),
    (Resource.REPLICATION, _always, _followers_behind),
    (Resource.CPU, _Broker.is_at_limit, _cpu_of_others),
    (Resource.HEAP, _Broker.is_at_limit, _heap_full),
    (Resource.CONNECTION, _always, _connection),
    (Resource.REPLICATION, _always, _waits_for_followers),
)
"""Tuples of a resource, a function that returns whether the rule applies, and a function that
returns the text. The text is None if the rule is not true. The first rules name causes inside one
broker. The next rules name causes that all brokers on one machine share, such as a lack of CPU. The
last rules name effects that a problem of a different broker may cause, such as lagging followers.
"""


# --- words ------------------------------------------------------------------------------------


def _idle(window: BrokerWindow) -> str:
    return f"request handlers idle {window.handler_idle:.2f}"


def _times(window: BrokerWindow) -> str:
    """A text with the mean time of a produce request, and with the parts of this time."""
    produce = window.produce
    if not produce.total_ms or produce.local_ms is None:
        return "no produce request was timed"
    queued_ms = produce.request_queue_ms
    queue = "" if queued_ms is None else f", {queued_ms:.1f} queued"
    text = f"produce took {produce.total_ms:.1f} ms, {produce.local_ms:.1f} of it local{queue}"
    # In an overload most of the time is the wait in the queue, which does not show the cause.
    served_ms = produce.total_ms - (queued_ms or 0.0)
    local = min(1.0, produce.local_ms / served_ms) if served_ms > 0 else None
    return text if local is None else f"{text}; {local:.0%} of the time after the queue was local"


def _collections(window: BrokerWindow) -> str:
    least = window.heap_used_share_min
    full = "" if least is None else f", and at least {least:.0%} of the heap was always in use"
    return f"garbage collection stopped all threads for {window.gc_share:.0%} of the time{full}"


def _mbit(bytes_per_s: float | None) -> str:
    return "unknown" if bytes_per_s is None else f"{bytes_per_s * 8 / 1e6:.0f} Mbit/s"


def _furthest_behind(evidence: Evidence) -> str:
    """A phrase with the broker whose replicas lag most. The broker whose replicas lag most is the
    probable cause of the lag.
    """
    lags = [(w.replica_lag_max_records or 0.0, -w.broker_id) for w in evidence.brokers]
    records, broker_id = max(lags, default=(0.0, 0))
    if records <= 0:
        return ""
    return f", and the replicas on broker {-broker_id} lag by up to {records:.0f} records"


def _others(window: BrokerWindow, resource: Resource) -> str:
    used = [f"{r.value} {u:.2f}" for r, u in utilization(window).items() if r is not resource]
    return f"; utilization of its other resources: {', '.join(used)}" if used else ""


def _also_at_limit(named: Resource, brokers: list[_Broker]) -> str:
    """A phrase with the other resources that are at their limit on any broker."""
    also = {
        resource: broker.window.broker_id
        for broker in reversed(brokers)
        for resource in broker.rows
        if resource is not named and broker.is_at_limit(resource)
        # If another resource explains busy handlers, only the other resource is listed.
        if resource is not Resource.REQUEST_HANDLERS or broker.is_busy_with(resource)
    }
    others = [f"{resource.value} (broker {broker_id})" for resource, broker_id in also.items()]
    return f"; also at its limit: {', '.join(others)}" if others else ""


def _unknown(brokers: list[_Broker]) -> _Finding:
    """The finding that the resource is unknown. The text of the finding contains the missing
    evidence, and the resource that is nearest to its limit.
    """
    near = [
        (value, broker.window, row)
        for broker in brokers
        for row in broker.rows.values()
        if (value := nearness(row, broker.thresholds)) is not None
    ]
    window, nearest = brokers[0].window, ""
    if near:
        value, window, row = max(near, key=lambda each: each[0])
        nearest = f"; the nearest was {row.resource.value} with {value:.0%} of its limit"
    text = f"no resource that the metrics show was at its limit{nearest}; {_not_known(brokers)}"
    return Resource.UNKNOWN, window, text


_Missing = tuple[tuple[str, Callable[[BrokerWindow], object]], ...]
_MISSING_OF_HANDLERS: _Missing = (
    ("the brokers' CPU", lambda window: window.cpu_cores),
    ("flushes", lambda window: window.flush_threads),
    ("request times", lambda window: window.produce.local_ms),
)
_MISSING: _Missing = (
    ("the request handlers' idle time", lambda window: window.handler_idle),
    ("the network threads' idle time", lambda window: window.network_idle),
    ("the machines' CPU", cpu_share),
    ("garbage collection", lambda window: window.gc_share),
    *_MISSING_OF_HANDLERS[1:],
    ("ISR changes", lambda window: window.isr_changed_share),
)
"""Pairs for the evidence that a source may lack: a noun phrase for the evidence, and a function
that reads the evidence from a window."""


def _not_among(missing: _Missing, *windows: BrokerWindow) -> str:
    """The missing evidence, as noun phrases separated by commas. Evidence is missing if any window
    lacks it.
    """
    return ", ".join(what for what, read in missing if any(read(each) is None for each in windows))


def _not_known(brokers: list[_Broker]) -> str:
    """A sentence about the evidence that is missing."""
    gaps = []
    absent = [str(each.window.broker_id) for each in brokers if each.window.start_s is None]
    if absent:
        gaps.append(f"broker {', '.join(absent)} gave no samples")
    windows = [each.window for each in brokers if each.window.start_s is not None]
    missing = _not_among(_MISSING, *windows)
    if missing:
        source = brokers[0].evidence.metrics_source or "this source"
        gaps.append(f"the metrics of {source} do not show {missing}")
    hosts = [host for each in brokers for host in each.hosts]
    speeds = [link.speed_bytes_per_s for host in hosts for link in host.interfaces]
    if any(each.link_mbit_per_s is None for each in windows) and not any(speeds):
        gaps.append("the speed of the network interface is not stated (link_mbit_per_s)")
    if not any(host.disks for host in hosts):
        gaps.append("the brokers' hosts show no metrics (metrics.host)")
    return f"not known: {'; '.join(gaps)}"


VOTING_LOAD_RATIO_MAX = 1.5
"""An overloaded trial votes on the limiting resource only if its load is at most this multiple of
the lowest overloaded load [ratio]. A load above this multiple also exhausts other resources.
"""


@dataclass(frozen=True)
class AttributionVote:
    """The vote of one overload for a resource.

    Attributes:
        judgement: the judgement that states that the trial was overloaded.
        load: text with the load of the overloaded trial, or an empty text if all overloaded trials
            had the same load.
        weight: number that the vote adds to the sum for its resource.
    """

    judgement: Judgement
    load: str = ""
    weight: float = 1.0

    @property
    def resource(self) -> Resource:
        """The limiting resource of this overload."""
        return self.judgement.limited_by or Resource.UNKNOWN


def combine_votes(votes: Sequence[AttributionVote], what: str = "overloads") -> Attribution | None:
    """The resource with the highest sum of weights, or None if there are no votes.

    Votes without a known resource have the weight 0. The text comes from the vote with the highest
    weight for the resource. If several votes have the same weight, the text comes from the latest
    of these votes. The text also states the number of votes for each resource.

    Args:
        votes: one vote for each overload, oldest first.
        what: plural noun that the text uses for the votes, for example `overloads`.
    """
    if not votes:
        return None
    weights = dict.fromkeys((Resource.UNKNOWN, *Resource), 0.0)  # the first of equal weights counts
    for vote in votes:
        if vote.resource is not Resource.UNKNOWN:
            weights[vote.resource] += vote.weight
    named = max(weights, key=lambda resource: weights[resource])
    alike = [vote for vote in votes if vote.resource is named]
    heaviest = max(reversed(alike), key=lambda vote: vote.weight)
    text = heaviest.judgement.attribution
    return Attribution(named, "; ".join(filter(None, [text, _vote_count(votes, named, what)])))


def contradiction(votes: Sequence[AttributionVote]) -> str:
    """A sentence that lists the different limiting resources of the votes. The text is empty if the
    votes have at most one known resource.
    """
    by_name = grouped(
        (vote.resource, vote.load) for vote in votes if vote.resource is not Resource.UNKNOWN
    )
    if len(by_name) < 2:
        return ""
    named = [f"{name.value}{_at(loads)}" for name, loads in by_name.items()]
    return f"overloads near the limit had different limiting resources: {'; '.join(named)}"


def _vote_count(votes: Sequence[AttributionVote], named: Resource, what: str) -> str:
    if len(votes) == 1:
        return ""
    others = [
        f"{vote.resource.value}{_at([vote.load])}" for vote in votes if vote.resource is not named
    ]
    if not others:
        return f"all {len(votes)} {what} were limited by this resource"
    alike = len(votes) - len(others)
    return (
        f"{alike} of {len(votes)} {what} were limited by this resource, "
        f"the others by {', '.join(others)}"
    )


def _at(loads: Sequence[str]) -> str:
    places = ", ".join(dict.fromkeys(filter(None, loads)))
    return f" at {places}" if places else ""
