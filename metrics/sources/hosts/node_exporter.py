"""Host metrics from Prometheus' node_exporter.

A sample is one scrape of each host. The scrape is made over HTTP or by a Prometheus server. The
default collectors of node_exporter 1.x show all series that this module reads. The identity of a
machine: its name and its boot time. The name and the boot time show whether two addresses lead to
the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import combinations

from metrics.common.errors import ConfigError
from metrics.common.grouping import grouped
from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.http_access import ClosedError, HttpAccess, ScrapeError
from metrics.sources.rules import RuleSet, selectors_of
from metrics.sources.sample import parts_of
from metrics.sources.scraper import Scrape, Scraper, Scrapers
from metrics.sources.server.broker_label import host_of
from metrics.sources.server.feed import FeedTarget, ServerFeed
from metrics.sources.source import OPEN_DEADLINE_S, Endpoint

BOOT_TIME_S = "boot_time_s"
UNAME = "uname"
IDENTITY = frozenset({BOOT_TIME_S, UNAME})
"""Readings that identify a machine, and that are not part of a sample."""
_CLOCK_STEP_S = 2.0
"""Largest difference between two reported boot times of the same boot [s]."""


@dataclass(frozen=True)
class Machine:
    """The identity of a machine.

    Attributes:
        name: host name in the machine's kernel.
        booted_s: time of the machine's boot [s since the epoch].
    """

    name: str
    booted_s: float

    @property
    def text(self) -> str:
        """A text with the machine's name and boot time."""
        booted = datetime.fromtimestamp(self.booted_s, timezone.utc)
        return f"machine {self.name}, booted {booted:%Y-%m-%d %H:%M:%S} UTC"

    def is_before(self, other: Machine) -> bool:
        """Whether `other` has the name of this machine, and did not boot before this machine."""
        return self.name == other.name and other.booted_s >= self.booted_s - _CLOCK_STEP_S


def machine_in(values: Mapping[str, float]) -> Machine | None:
    """The machine of a scrape, or None if the collectors that show its identity are disabled."""
    texts = parts_of(values, UNAME)
    booted_s = values.get(BOOT_TIME_S)
    if not texts or booted_s is None:
        return None
    return Machine(texts[0].partition("/")[0], booted_s)


_OF_DEVICE = '{device="*"}'

_SERIES: Mapping[str, str] = {
    readings.CPU_S: 'node_cpu_seconds_total{cpu="*",mode="*"}',
    readings.RUNNING_THREADS: "node_procs_running",
    readings.MEMORY_TOTAL_BYTES: "node_memory_MemTotal_bytes",
    readings.MEMORY_AVAILABLE_BYTES: "node_memory_MemAvailable_bytes",
    readings.PAGE_CACHE_BYTES: "node_memory_Cached_bytes",
    readings.DIRTY_BYTES: "node_memory_Dirty_bytes",
    readings.WRITEBACK_BYTES: "node_memory_Writeback_bytes",
    readings.SWAPPED_IN_PAGES: "node_vmstat_pswpin",
    readings.SWAPPED_OUT_PAGES: "node_vmstat_pswpout",
    readings.OOM_KILLS: "node_vmstat_oom_kill",
    readings.DISK_READ_BYTES: f"node_disk_read_bytes_total{_OF_DEVICE}",
    readings.DISK_WRITTEN_BYTES: f"node_disk_written_bytes_total{_OF_DEVICE}",
    readings.DISK_READS: f"node_disk_reads_completed_total{_OF_DEVICE}",
    readings.DISK_WRITES: f"node_disk_writes_completed_total{_OF_DEVICE}",
    readings.DISK_BUSY_S: f"node_disk_io_time_seconds_total{_OF_DEVICE}",
    readings.DISK_QUEUED_S: f"node_disk_io_time_weighted_seconds_total{_OF_DEVICE}",
    readings.NET_RECEIVED_BYTES: f"node_network_receive_bytes_total{_OF_DEVICE}",
    readings.NET_SENT_BYTES: f"node_network_transmit_bytes_total{_OF_DEVICE}",
    readings.NET_RECEIVED_PACKETS: f"node_network_receive_packets_total{_OF_DEVICE}",
    readings.NET_SENT_PACKETS: f"node_network_transmit_packets_total{_OF_DEVICE}",
    readings.NET_RECEIVE_DROPS: f"node_network_receive_drop_total{_OF_DEVICE}",
    readings.NET_SEND_DROPS: f"node_network_transmit_drop_total{_OF_DEVICE}",
    readings.NET_RECEIVE_ERRORS: f"node_network_receive_errs_total{_OF_DEVICE}",
    readings.NET_SEND_ERRORS: f"node_network_transmit_errs_total{_OF_DEVICE}",
    readings.NET_SPEED_BYTES_PER_S: f"node_network_speed_bytes{_OF_DEVICE}",
    readings.TCP_SENT_SEGMENTS: "node_netstat_Tcp_OutSegs",
    readings.TCP_RETRANSMITTED_SEGMENTS: "node_netstat_Tcp_RetransSegs",
    readings.TCP_LISTEN_OVERFLOWS: "node_netstat_TcpExt_ListenOverflows",
    f"{readings.PRESSURE_S}:cpu": "node_pressure_cpu_waiting_seconds_total",
    f"{readings.PRESSURE_S}:io": "node_pressure_io_waiting_seconds_total",
    f"{readings.PRESSURE_S}:memory": "node_pressure_memory_waiting_seconds_total",
    BOOT_TIME_S: "node_boot_time_seconds",
    UNAME: (
        'node_uname_info{nodename="*",domainname="*",machine="*",release="*",sysname="*",'
        'version="*"}'
    ),
}
RULES = RuleSet("node_exporter", selectors_of(_SERIES))

_OPEN = HttpAccess("metrics.host.prometheus")

_OTHER = "answers at"

_REMEDY = (
    ". Start node_exporter there, open the port to this machine, or correct "
    "metrics.host.prometheus of the cluster's file"
)


class _Exporters:
    """The hosts of exporters, with their names and the disks of log dirs.

    Args:
        log_disks: names of the disks with log dirs, or nothing if they are not known.
    """

    def __init__(self, log_disks: Collection[str]) -> None:
        self._log_disks = frozenset(log_disks)
        self.brokers: Mapping[str, tuple[int, ...]] = {}
        self.machines: frozenset[str] = frozenset()

    def _name(self, places: Sequence[tuple[str, str, tuple[int, ...]]]) -> None:
        """Set the names of the hosts. `places` has (host, whole address, broker ids) of each
        exporter.
        """
        hosts = [host for host, _, _ in places]
        # If several exporters have the same host, their whole addresses are the names.
        self.brokers = {
            host if hosts.count(host) == 1 else address: brokers
            for host, address, brokers in places
        }

    def _sample(self, host: str, scrape: Scrape) -> HostSample:
        values = host_values(scrape.values, self._log_disks)
        return HostSample(host, scrape.at_s, values, scrape.error)

    def _require_log_disks(self, values: Mapping[str, float], where: str) -> None:
        shown = sorted(parts_of(values, readings.DISK_WRITTEN_BYTES))
        if not self._log_disks or self._log_disks.intersection(shown):
            return
        raise ConfigError(
            f"metrics.host.prometheus.log_disks is {', '.join(sorted(self._log_disks))}; expected "
            f"a disk that node_exporter {where} shows ({', '.join(shown) or 'none'}); correct "
            "log_disks"
        )


class NodeExporters(_Exporters):
    """A `HostSource` that scrapes the exporters of all brokers' hosts.

    Args:
        addresses: broker id → host:port of the exporter on the broker's host. Brokers on one host
            have the same exporter address. If two addresses differ only in the port, each whole
            address serves as the name of a host.
        deadline_s: time after which a host's sample counts as missing [s].
        clock: wall clock [s since the epoch].
        access: login and certificates for the exporters.
        log_disks: names of the disks with log dirs, or nothing if they are not known.

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    def __init__(
        self,
        addresses: Mapping[int, str],
        deadline_s: float,
        clock: Callable[[], float] = time.time,
        access: HttpAccess = _OPEN,
        log_disks: Collection[str] = (),
    ) -> None:
        super().__init__(log_disks)
        at = grouped((address, broker) for broker, address in sorted(addresses.items()))
        endpoints = [Endpoint.parse(brokers[0], address) for address, brokers in at.items()]
        scrapers = [Scraper(each, access, RULES, clock) for each in endpoints]
        self._scrapers = Scrapers(scrapers, deadline_s, "redline-hosts", clock)
        self._addresses = [*at]
        self._machines: dict[str, Machine] = {}
        hosts = [each.host for each in endpoints]
        self._name([*zip(hosts, at, map(tuple, at.values()), strict=True)])
        self.machines = frozenset(hosts)

    def open(self) -> NodeExporters:
        """Scrape each exporter twice, over two connections.

        Raises:
            ConfigError: an exporter does not answer or is not node_exporter, two exporters are on
                one machine, or several machines answer at one address.
        """
        self._scrapers.open(self._probe)
        self._scrapers.reconnect()
        try:
            self._require_own_machines()
        except BaseException:
            self.close()
            raise
        return self

    def _require_own_machines(self) -> None:
        for sample in self.sample_all():
            if sample.error is not None and _OTHER in sample.error:
                raise ConfigError(
                    f"{sample.error}; expected one machine, and no load balancer or service of "
                    f"Kubernetes that chooses a machine at each connection; set the address of "
                    f"each machine in metrics.host.prometheus.endpoints"
                )
        shown = [(each, self._machines[each]) for each in self._addresses if each in self._machines]
        for of_same_name in grouped((each[1].name, each) for each in shown).values():
            for (other, same), (address, machine) in combinations(of_same_name, 2):
                if abs(machine.booted_s - same.booted_s) <= _CLOCK_STEP_S:
                    raise ConfigError(
                        f"node_exporter at {other} and at {address} are on one machine "
                        f"({machine.text}); expected a different machine at each address; in "
                        f"metrics.host.prometheus.endpoints, set the same address for brokers on "
                        f"the same machine"
                    )

    def _probe(self, scraper: Scraper) -> None:
        endpoint = scraper.endpoint
        found: Mapping[str, float] = {}
        try:
            found = scraper.scrape_known_series(OPEN_DEADLINE_S).values
            self._require_same(endpoint.address, found)
            problem = "" if found else f"it answers without any series of node_exporter{_REMEDY}"
        except ScrapeError as error:
            problem = f"{error}{'' if isinstance(error, ClosedError) else _REMEDY}"
        if problem:
            raise ConfigError(
                f"the host of broker {endpoint.node_id} shows no metrics at {scraper.url}: "
                f"{problem}"
            )
        self._require_log_disks(found, f"at {endpoint.address}")

    def sample_all(self) -> Sequence[HostSample]:
        """One sample of each host, as `HostSource.sample_all` describes."""
        scrapes = zip(self.brokers, self._addresses, self._scrapers.scrape_all(), strict=True)
        return [self._sample_of_same(*each) for each in scrapes]

    def _sample_of_same(self, host: str, address: str, scrape: Scrape) -> HostSample:
        try:
            self._require_same(address, scrape.values)
        except ScrapeError as error:
            return HostSample(host, scrape.at_s, error=str(error))
        return self._sample(host, scrape)

    def _require_same(self, address: str, values: Mapping[str, float]) -> None:
        """Raise a ScrapeError if another machine than before answers at an address.

        Raises:
            ScrapeError: another machine answers.
        """
        machine = machine_in(values)
        if machine is None:
            return
        before = self._machines.get(address, machine)
        if not before.is_before(machine):
            raise ScrapeError(f"{machine.text} {_OTHER} {address}, but before it was {before.text}")
        self._machines[address] = machine

    def reconnect(self) -> None:
        """Close all connections, so that the next sample opens new connections."""
        self._scrapers.reconnect()

    def close(self) -> None:
        """Close all connections, as `HostSource.close` describes."""
        self._scrapers.close()


class ServedHosts(_Exporters):
    """Reads all hosts from one Prometheus server. A sample is one scrape by the server.

    Args:
        feed: the server, with the targets to read. Several brokers may have the same host.
        log_disks: names of the disks with log dirs, or nothing if they are not known.
    """

    def __init__(self, feed: ServerFeed, log_disks: Collection[str] = ()) -> None:
        super().__init__(log_disks)
        self._feed = feed

    def open(self) -> ServedHosts:
        """Find the hosts on the server.

        Raises:
            ConfigError: the server does not answer, or the node_exporter of at least one host is
                missing on the server.
        """
        try:
            self._feed.open(lambda name: bool(RULES.candidates_for(name)))
            for target in self._feed.targets:
                target.use(RULES)
                self._require_readings(target)
        except BaseException:
            self.close()
            raise
        self._feed.read_known_series()
        self._name([(host_of(t.value), t.value, t.brokers) for t in self._feed.targets])
        self.machines = frozenset(self.brokers)
        return self

    def _require_readings(self, target: FeedTarget) -> None:
        label, values = self._feed.spec.label, target.pages[-1].scrape(RULES).values
        if not host_values(values):
            raise ConfigError(
                f"the scrapes with {label.name}={target.value!r} have no series of node_exporter; "
                f"expected node_exporter on the host of broker {target.brokers[0]}; correct "
                f"{label.section}.selector"
            )
        self._require_log_disks(values, f"with {label.name}={target.value!r}")

    def sample_all(self) -> Sequence[HostSample]:
        """The scrapes of each host since the last call. See `ServerFeed.deliver`."""
        return [
            self._sample(host, each)
            for host, scrapes in zip(self.brokers, self._feed.deliver(), strict=True)
            for each in scrapes
        ]

    def close(self) -> None:
        """Close all connections, as `HostSource.close` describes."""
        self._feed.close()


def host_values(values: Mapping[str, float], log_disks: Collection[str] = ()) -> dict[str, float]:
    """The readings of a host, with each CPU time as the sum over all cores. The result has no
    readings of disk partitions, and no readings of the kernel's templates for tunnels.

    Args:
        values: readings of the scrape, with one value for each core.
        log_disks: names of the disks with log dirs. A disk with a log dir is kept even if disks of
            its kind are omitted otherwise.
    """
    found: dict[str, float] = {}
    cores = set()
    for name, value in values.items():
        reading, _, part = name.partition(":")
        if reading == readings.CPU_S:
            core, _, state = part.partition("/")
            cores.add(core)
            if state in readings.CPU_STATES:
                total = f"{readings.CPU_S}:{state}"
                found[total] = found.get(total, 0.0) + value
        elif reading not in IDENTITY and _is_kept(reading, part, value, log_disks):
            found[name] = value
        if reading == readings.DISK_WRITTEN_BYTES and part in log_disks:
            found[f"{readings.LOG_DISK}:{part}"] = 1.0
    return {**found, readings.CORES: float(len(cores))} if cores else found


def _is_kept(reading: str, part: str, value: float, log_disks: Collection[str]) -> bool:
    if reading == readings.NET_SPEED_BYTES_PER_S:
        return readings.is_interface(part) and value > 0
    if reading.startswith("disk_"):
        return readings.is_disk(part) or part in log_disks
    return not reading.startswith("net_") or readings.is_interface(part)
