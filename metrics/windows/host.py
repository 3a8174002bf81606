"""The work of hosts in a measured window, computed from their samples, and their USE table.

The increase of a counter is the difference between its last and its first sample. Gauges are read
from the samples inside the window. A value that the samples do not show is None, never 0.

The USE table shows utilization, saturation and errors. The rows of the table follow Gregg's
checklist for Linux (https://www.brendangregg.com/USEmethod/use-linux.html).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from metrics.columns import column
from metrics.common.grouping import grouped
from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import parts_of
from metrics.windows.broker import Span, highest, mean, over, total
from metrics.windows.use import Resource
from metrics.windows.write_back import WriteBackWindow, samples_with_log_disks


@dataclass(frozen=True)
class DiskWindow:
    """One disk of a host.

    Attributes:
        device: name of the disk.
        read_bytes_per_s: bytes read from the disk [B/s].
        written_bytes_per_s: bytes written to the disk [B/s].
        operations_per_s: completed reads and writes [1/s].
        busy_share: share of the time in which the disk had work [ratio]. A disk that processes many
            operations at the same time may have spare capacity even if its busy share is 1.
        queue: mean number of operations that wait or are in progress [operations].
    """

    device: str
    read_bytes_per_s: float | None = None
    written_bytes_per_s: float | None = None
    operations_per_s: float | None = None
    busy_share: float | None = None
    queue: float | None = None


@dataclass(frozen=True)
class InterfaceWindow:
    """One network interface of a host.

    Attributes:
        device: name of the interface.
        received_bytes_per_s: bytes received, including all headers [B/s].
        sent_bytes_per_s: bytes sent, including all headers [B/s].
        packets: received packets plus sent packets [packets].
        dropped: packets that the host dropped in both directions [packets].
        errors: received packets that were damaged, and packets that could not be sent [packets].
        speed_bytes_per_s: speed of the interface in one direction [B/s].
    """

    device: str
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    packets: float | None = None
    dropped: float | None = None
    errors: float | None = None
    speed_bytes_per_s: float | None = None

    @property
    def busiest_bytes_per_s(self) -> float | None:
        """Rate of the interface's busier direction [B/s]."""
        return highest((self.received_bytes_per_s, self.sent_bytes_per_s))

    @column
    def dropped_share(self) -> float | None:
        """Dropped packets, divided by the sum of carried and dropped packets [ratio]."""
        if self.dropped is None or self.packets is None:
            return None
        return over(self.dropped, self.packets + self.dropped) or 0.0

    @column
    def used_share(self) -> float | None:
        """Share of the interface's speed that its busier direction used [ratio]."""
        return over(self.busiest_bytes_per_s, self.speed_bytes_per_s)


@dataclass(frozen=True)
class HostWindow:
    """One host in the measured window. Unknown values are None.

    Attributes:
        host: name of the host.
        brokers: ids of the brokers on the host.
        generates: True if tasks of the load ran on the host.
        shares_machine: True if brokers run on the machine of this host. The brokers may use another
            name for the machine.
        start_s: time of the first good sample in the window [s since the epoch].
        end_s: time of the last good sample in the window [s since the epoch].
        samples: number of good samples in the window.
        cores: number of cores [cores].
        cpu_busy: share of the cores' time that was neither idle nor a wait for a disk [ratio].
        cpu_system: share of the cores' time in the kernel, including interrupts [ratio].
        cpu_iowait: share of the cores' time that was idle while a disk had work [ratio].
        cpu_steal: share of the cores' time that other virtual machines took [ratio].
        running_threads: mean number of threads that ran or waited for a core in a sample [threads].
        memory_total_bytes: size of the memory [B].
        memory_available_bytes: smallest size, in a sample, of the memory that is available to
            programs [B].
        page_cache_bytes: largest page cache in a sample [B].
        swapped_pages_per_s: pages moved to and from swap [1/s].
        oom_kills: processes that the kernel killed because memory was exhausted [count].
        pressure_cpu: share of the time in which at least one task waited for a core [ratio].
        pressure_io: share of the time in which at least one task waited for I/O [ratio].
        pressure_memory: share of the time in which at least one task waited for memory [ratio].
        retransmitted_share: retransmitted TCP segments, divided by all segments sent [ratio].
        retransmits_per_s: retransmitted TCP segments [1/s].
        listen_overflows: connections refused because a listener's queue was full [count].
        disks: the disks that had operations in the window.
        interfaces: the interfaces that carried or dropped packets in the window.
        resident_bytes: broker id → highest memory use of the broker's process [B].
        throttled_shares: broker id → share of the quota periods in which the CPU quota stopped the
            broker [ratio]. The map has no entry for a broker without a CPU quota.
    """

    host: str
    brokers: tuple[int, ...]
    generates: bool
    shares_machine: bool
    start_s: float | None = None
    end_s: float | None = None
    samples: int = 0
    cores: float | None = None
    cpu_busy: float | None = None
    cpu_system: float | None = None
    cpu_iowait: float | None = None
    cpu_steal: float | None = None
    running_threads: float | None = None
    memory_total_bytes: float | None = None
    memory_available_bytes: float | None = None
    page_cache_bytes: float | None = None
    swapped_pages_per_s: float | None = None
    oom_kills: float | None = None
    pressure_cpu: float | None = None
    pressure_io: float | None = None
    pressure_memory: float | None = None
    retransmitted_share: float | None = None
    retransmits_per_s: float | None = None
    listen_overflows: float | None = None
    disks: tuple[DiskWindow, ...] = ()
    interfaces: tuple[InterfaceWindow, ...] = ()
    resident_bytes: Mapping[int, float] = field(default_factory=dict)
    throttled_shares: Mapping[int, float] = field(default_factory=dict)

    @property
    def busiest_disk(self) -> DiskWindow | None:
        """The disk with the highest busy share."""
        return max(self.disks, key=lambda each: each.busy_share or 0.0, default=None)

    @property
    def busiest_interface(self) -> InterfaceWindow | None:
        """The interface with the highest rate."""
        return max(self.interfaces, key=lambda each: each.busiest_bytes_per_s or 0.0, default=None)

    @property
    def waiting_threads(self) -> float | None:
        """Lower bound of the mean number of threads that waited for a core [threads]."""
        if self.running_threads is None or self.cores is None:
            return None
        return max(0.0, self.running_threads - self.cores)

    @property
    def memory_used_share(self) -> float | None:
        """Share of the memory that is not available to programs [ratio]."""
        free = over(self.memory_available_bytes, self.memory_total_bytes)
        return None if free is None else 1.0 - free


def host_window(
    named: HostWindow, samples: Iterable[HostSample], start_s: float, end_s: float
) -> HostWindow:
    """The window of one host between two times.

    Args:
        named: a window with only the host's name and its roles.
        samples: samples of the host in any order, including samples from before and after the
            window.
        start_s, end_s: the measured window [s since the epoch].
    """
    inside = sorted(
        (each for each in samples if each.values and start_s <= each.at_s <= end_s),
        key=lambda each: each.at_s,
    )
    if not inside or inside[-1].at_s <= inside[0].at_s:
        return named
    span = Span(inside)
    cpu = span.deltas(readings.CPU_S)
    whole_s = sum(cpu.values())
    in_state = {name.partition(":")[2]: over(spent_s, whole_s) for name, spent_s in cpu.items()}
    idle, iowait = in_state.get("idle"), in_state.get("iowait")
    sent = span.delta(readings.TCP_SENT_SEGMENTS)
    again = span.delta(readings.TCP_RETRANSMITTED_SEGMENTS)
    swaps = (readings.SWAPPED_IN_PAGES, readings.SWAPPED_OUT_PAGES)
    return replace(
        named,
        start_s=inside[0].at_s,
        end_s=inside[-1].at_s,
        samples=len(inside),
        cores=span.gauge_max(readings.CORES),
        cpu_busy=None if idle is None else 1.0 - (idle + (iowait or 0.0)),
        cpu_system=total(in_state.get(state) for state in ("system", "irq", "softirq")),
        cpu_iowait=iowait,
        cpu_steal=in_state.get("steal"),
        running_threads=mean(span.gauges(readings.RUNNING_THREADS)),
        memory_total_bytes=span.gauge_max(readings.MEMORY_TOTAL_BYTES),
        memory_available_bytes=min(span.gauges(readings.MEMORY_AVAILABLE_BYTES), default=None),
        page_cache_bytes=span.gauge_max(readings.PAGE_CACHE_BYTES),
        swapped_pages_per_s=total(map(span.per_s, swaps)),
        oom_kills=span.delta(readings.OOM_KILLS),
        pressure_cpu=span.per_s(f"{readings.PRESSURE_S}:cpu"),
        pressure_io=span.per_s(f"{readings.PRESSURE_S}:io"),
        pressure_memory=span.per_s(f"{readings.PRESSURE_S}:memory"),
        retransmitted_share=over(again, total([sent, again])),
        retransmits_per_s=over(again, span.duration_s),
        listen_overflows=span.delta(readings.TCP_LISTEN_OVERFLOWS),
        disks=tuple(_disks(_of_disks(inside) or span)),
        interfaces=tuple(_interfaces(span)),
        resident_bytes={
            broker: max(span.gauges(f"{readings.RESIDENT_BYTES}:{broker}"))
            for broker in _brokers_in(inside, readings.RESIDENT_BYTES)
        },
        throttled_shares=_throttled_shares(inside),
    )


def host_windows(
    samples: Sequence[HostSample],
    start_s: float,
    end_s: float,
    brokers: Mapping[str, Sequence[int]],
    generators: Iterable[str] = (),
    of_brokers: Iterable[str] = (),
) -> tuple[HostWindow, ...]:
    """The windows of all hosts. Hosts with brokers come first.

    Args:
        samples: samples of all hosts.
        start_s, end_s: the measured window [s since the epoch].
        brokers: host → ids of the brokers on the host.
        generators: names of the hosts with tasks of the load.
        of_brokers: names of the brokers' machines. The names of the machines may differ from the
            keys of `brokers`.
    """
    tasks_on = set(generators)
    machines = {*brokers, *of_brokers}
    by_host = grouped((each.host, each) for each in samples)
    return tuple(
        host_window(
            HostWindow(host, tuple(brokers.get(host, ())), host in tasks_on, host in machines),
            by_host.get(host, ()),
            start_s,
            end_s,
        )
        for host in [*brokers, *sorted(tasks_on - set(brokers))]
    )


def _throttled_shares(inside: Sequence[HostSample]) -> dict[int, float]:
    """Broker id → share of the quota periods in which the broker's CPU quota was used up. Only
    samples that show quota periods count.
    """
    found = {}
    for broker in _brokers_in(inside, readings.BROKER_QUOTA_PERIODS):
        reading = f"{readings.BROKER_QUOTA_PERIODS}:{broker}"
        span = Span([each for each in inside if reading in each.values])
        periods = span.delta(reading)
        stopped = span.delta(f"{readings.BROKER_THROTTLED_PERIODS}:{broker}")
        if periods and periods > 0 and stopped is not None:
            found[broker] = max(0.0, min(1.0, stopped / periods))
    return found


def _brokers_in(samples: Sequence[HostSample], reading: str) -> set[int]:
    """The ids of the brokers for which at least one sample has a reading of this name."""
    return {int(broker) for each in samples for broker in parts_of(each.values, reading)}


def _of_disks(inside: Sequence[HostSample]) -> Span | None:
    """The span of the samples that show the disks of log dirs, or None if fewer than two samples
    show these disks.

    Spark tasks on a broker's machine take samples that lack some kinds of disks, such as loop
    devices. These samples are left out, because a `Span` computes the increase of a counter only if
    its first and its last sample show the counter.
    """
    known = samples_with_log_disks(inside)
    return None if known[-1].at_s <= known[0].at_s else Span(known)


def _disks(span: Span) -> Iterable[DiskWindow]:
    for device in _parts(span, readings.DISK_BUSY_S):

        def per_s(*names: str, device: str = device) -> float | None:
            return total(span.per_s(f"{name}:{device}") for name in names)

        window = DiskWindow(
            device,
            per_s(readings.DISK_READ_BYTES),
            per_s(readings.DISK_WRITTEN_BYTES),
            per_s(readings.DISK_READS, readings.DISK_WRITES),
            per_s(readings.DISK_BUSY_S),
            per_s(readings.DISK_QUEUED_S),
        )
        if window.busy_share or window.operations_per_s:
            yield window


def _interfaces(span: Span) -> Iterable[InterfaceWindow]:
    for device in _parts(span, readings.NET_RECEIVED_BYTES):

        def grown(*names: str, device: str = device) -> float | None:
            return total(span.delta(f"{name}:{device}") for name in names)

        window = InterfaceWindow(
            device,
            span.per_s(f"{readings.NET_RECEIVED_BYTES}:{device}"),
            span.per_s(f"{readings.NET_SENT_BYTES}:{device}"),
            grown(readings.NET_RECEIVED_PACKETS, readings.NET_SENT_PACKETS),
            grown(readings.NET_RECEIVE_DROPS, readings.NET_SEND_DROPS),
            grown(readings.NET_RECEIVE_ERRORS, readings.NET_SEND_ERRORS),
            span.gauge_max(f"{readings.NET_SPEED_BYTES_PER_S}:{device}"),
        )
        if window.packets or window.dropped:
            yield window


def _parts(span: Span, reading: str) -> list[str]:
    return sorted(parts_of(span.deltas(reading), reading))


@dataclass(frozen=True)
class HostUse:
    """The use of one resource of one host in one window.

    Attributes:
        host: name of the host.
        resource: the resource.
        device: name of the disk, interface or part of the memory, or an empty text for the whole
            resource.
        utilization: used share of the resource [ratio].
        saturation: work that waited for the resource [saturation_unit].
        saturation_unit: unit of `saturation`.
        errors: number of errors [errors_unit].
        errors_unit: unit of `errors`.
    """

    host: str
    resource: Resource
    device: str = ""
    utilization: float | None = None
    saturation: float | None = None
    saturation_unit: str = ""
    errors: float | None = None
    errors_unit: str = ""


def host_use_of(window: HostWindow) -> tuple[HostUse, ...]:
    """The rows of the USE table for one host. A host without samples has no rows."""
    if window.start_s is None:
        return ()
    row = partial(HostUse, window.host)
    return (
        row(Resource.CPU, "", window.cpu_busy, window.waiting_threads, "threads waiting"),
        row(
            Resource.MEMORY,
            "",
            window.memory_used_share,
            window.swapped_pages_per_s,
            "pages swapped/s",
            window.oom_kills,
            "processes killed",
        ),
        *(
            row(Resource.DISK, each.device, each.busy_share, each.queue, "operations waiting")
            for each in window.disks
        ),
        *(
            row(
                Resource.NETWORK,
                each.device,
                each.used_share,
                each.dropped,
                "packets dropped",
                each.errors,
                "damaged packets",
            )
            for each in window.interfaces
        ),
        row(
            Resource.NETWORK,
            "TCP",
            None,
            window.listen_overflows,
            "connections turned away",
            window.retransmitted_share,
            "share of segments sent again",
        ),
    )


def host_use_table(
    hosts: Iterable[HostWindow], write_back: Iterable[WriteBackWindow] = ()
) -> tuple[HostUse, ...]:
    """The USE table of all hosts, followed by one row of dirty pages for each host."""
    return (
        *(row for window in hosts for row in host_use_of(window)),
        *(
            HostUse(
                each.host,
                Resource.MEMORY,
                "pages to write",
                each.unwritten_share,
                each.writeback_bytes,
                "bytes being written",
            )
            for each in write_back
        ),
    )
