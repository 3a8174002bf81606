"""Host metrics from Prometheus' node_exporter: a sample is one HTTP scrape of each host.

Its default collectors show all series that are read; their names are those of release 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from metrics.common.errors import ConfigError
from metrics.sources.hosts import readings
from metrics.sources.hosts.sample import HostSample
from metrics.sources.http_access import HttpAccess
from metrics.sources.rules import RuleSet, selectors_of
from metrics.sources.scraper import ClosedError, ScrapeError, Scraper
from metrics.sources.scrapers import OPEN_DEADLINE_S, Scrapers
from metrics.sources.source import Endpoint

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
}
RULES = RuleSet("node_exporter", selectors_of(_SERIES))

_OPEN = HttpAccess("metrics.host.prometheus")

_REMEDY = (
    ". Start node_exporter there, open the port to this machine, or correct "
    "metrics.host.prometheus of the cluster's file"
)


class NodeExporters:
    """Scrapes the exporters of all brokers' hosts.

    Args:
        addresses: broker id → host:port of the exporter on its host; brokers may share one.
        deadline_s: time after which a host's sample counts as missed [s].
        clock: wall clock [s since the epoch].
        access: login and certificates for the exporters.

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    def __init__(
        self,
        addresses: Mapping[int, str],
        deadline_s: float,
        clock: Callable[[], float] = time.time,
        access: HttpAccess = _OPEN,
    ) -> None:
        first = {address: broker for broker, address in sorted(addresses.items(), reverse=True)}
        scrapers = [
            Scraper(Endpoint.parse(broker, address), access, RULES, clock)
            for address, broker in sorted(first.items(), key=lambda each: each[1])
        ]
        self._scrapers = Scrapers(scrapers, deadline_s, "redline-hosts", clock)
        self._hosts = [scraper.endpoint.host for scraper in scrapers]
        self.brokers: Mapping[str, tuple[int, ...]] = {
            scraper.endpoint.host: tuple(
                sorted(b for b, a in addresses.items() if a == scraper.endpoint.address)
            )
            for scraper in scrapers
        }
        self.machines = frozenset(self.brokers)

    def open(self) -> NodeExporters:
        """Scrape each exporter once.

        Raises:
            ConfigError: an exporter does not answer, or is not node_exporter.
        """
        self._scrapers.open(self._probe)
        return self

    def _probe(self, scraper: Scraper) -> None:
        endpoint = scraper.endpoint
        try:
            found = scraper.scrape_known_series(OPEN_DEADLINE_S).values
            none = f"it answers without any series of node_exporter{_REMEDY}"
            problem = None if found else none
        except ScrapeError as error:
            problem = f"{error}{'' if isinstance(error, ClosedError) else _REMEDY}"
        if problem is not None:
            raise ConfigError(
                f"the host of broker {endpoint.node_id} shows no metrics at {scraper.url}: "
                f"{problem}"
            )

    def sample_all(self) -> Sequence[HostSample]:
        """See `HostSource.sample_all`."""
        return [
            HostSample(host, scrape.at_s, host_values(scrape.values), scrape.error)
            for host, scrape in zip(self._hosts, self._scrapers.scrape_all(), strict=True)
        ]

    def close(self) -> None:
        """See `HostSource.close`."""
        self._scrapers.close()


def host_values(values: Mapping[str, float]) -> dict[str, float]:
    """The readings of a host: cores added up, and only disks and interfaces that count."""
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
        elif _is_kept(reading, part, value):
            found[name] = value
    return {**found, readings.CORES: float(len(cores))} if cores else found


def _is_kept(reading: str, part: str, value: float) -> bool:
    if reading == readings.NET_SPEED_BYTES_PER_S:
        return readings.is_interface(part) and value > 0
    if reading.startswith("disk_"):
        return readings.is_disk(part)
    return not reading.startswith("net_") or readings.is_interface(part)
