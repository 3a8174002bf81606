"""Invented samples with all readings, and evidence, of a trial on many brokers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from metrics.sources.beans import HANDLER_IDLE_NS, UPTIME_MS, Kind, Role, beans_for
from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.trial.adding import Quantiles
from metrics.trial.client import BrokerAccount, ClientWindow, Counts
from metrics.trial.evidence import Evidence
from metrics.windows.broker import any_isr_changed_share, broker_windows
from metrics.windows.host import host_windows
from tests.support.simulated_jmx import NOW, PER_S, PROCESSORS, VERSION

PARTITIONS_PER_BROKER = 10
_DISKS, _INTERFACES = ("nvme0n1", "nvme1n1"), ("eth0", "eth1")
_PARTS_PER_S = {
    readings.CPU_S: {"user": 8.0, "system": 4.0, "idle": 3.0, "iowait": 1.0},
    readings.DISK_BUSY_S: dict.fromkeys(_DISKS, 0.3),
    readings.DISK_QUEUED_S: dict.fromkeys(_DISKS, 0.6),
    readings.DISK_READS: dict.fromkeys(_DISKS, 10.0),
    readings.DISK_WRITES: dict.fromkeys(_DISKS, 200.0),
    readings.DISK_WRITTEN_BYTES: dict.fromkeys(_DISKS, 5e7),
    readings.NET_RECEIVED_BYTES: dict.fromkeys(_INTERFACES, 6e7),
    readings.NET_SENT_BYTES: dict.fromkeys(_INTERFACES, 6e7),
    readings.NET_RECEIVED_PACKETS: dict.fromkeys(_INTERFACES, 5e4),
    readings.NET_SENT_PACKETS: dict.fromkeys(_INTERFACES, 5e4),
}
_HOST_PER_S = {readings.TCP_SENT_SEGMENTS: 5e4, readings.TCP_RETRANSMITTED_SEGMENTS: 1.0}
_HOST_NOW = {
    readings.CORES: 16.0,
    readings.RUNNING_THREADS: 9.0,
    readings.MEMORY_TOTAL_BYTES: 64e9,
    readings.MEMORY_AVAILABLE_BYTES: 20e9,
    readings.PAGE_CACHE_BYTES: 30e9,
}
_STARS = {
    "network": [f"PLAINTEXT/{each}" for each in range(PROCESSORS)],
    "gc": ["G1 Young Generation", "G1 Old Generation", "G1 Concurrent GC"],
}


@dataclass(frozen=True)
class SimulatedTrial:
    """A trial with similar brokers without idle CPU, each on its own host.

    Attributes:
        handler_idle: idle fraction of the request handlers of each broker [ratio].
    """

    brokers: int
    window_s: float = 30.0
    interval_s: float = 5.0
    handler_idle: float = 0.1
    start_s: float = 1_000_000.0

    @property
    def broker_ids(self) -> range:
        """Ids of the brokers, from 1 on."""
        return range(1, self.brokers + 1)

    def _moments(self) -> Iterator[float]:
        """Times of the samples in the window, from one interval before to one after it [s]."""
        at_s = -self.interval_s
        while at_s <= self.window_s + self.interval_s:
            yield at_s
            at_s += self.interval_s

    def samples(self) -> list[BrokerSample]:
        """Samples of all brokers, in the order of a source's polls."""
        per_s, now = _broker_readings(self.handler_idle)
        own = {each: _spread(per_s, each) for each in self.broker_ids}
        return [
            BrokerSample(
                broker_id,
                self.start_s + at_s + broker_id * 1e-4,
                {name: float(round(rate * (3600.0 + at_s))) for name, rate in own[broker_id]} | now,
            )
            for at_s in self._moments()
            for broker_id in self.broker_ids
        ]

    def host_samples(self) -> list[HostSample]:
        """Samples of all hosts, in the order of a source's polls."""
        parts = {f"{n}:{part}": v for n, of in _PARTS_PER_S.items() for part, v in of.items()}
        own = {each: _spread(parts | _HOST_PER_S, each) for each in self.broker_ids}
        return [
            HostSample(
                f"host-{broker_id}",
                self.start_s + at_s,
                {name: rate * (3600.0 + at_s) for name, rate in own[broker_id]} | _HOST_NOW,
            )
            for at_s in self._moments()
            for broker_id in self.broker_ids
        ]

    def client(self) -> ClientWindow:
        """A client window with all offered records acknowledged, evenly over the partitions."""
        partitions = self.brokers * PARTITIONS_PER_BROKER
        records = int(100 * self.window_s)
        counts = Counts(
            offered_records=records * partitions,
            sent_records=records * partitions,
            acked_records=records * partitions,
            offered_bytes=1_000 * records * partitions,
            acked_bytes=1_000 * records * partitions,
            acked_by_partition=dict.fromkeys(range(partitions), records),
            sent_by_partition=dict.fromkeys(range(partitions), records),
            by_broker={each: BrokerAccount(1_000) for each in self.broker_ids},
            loop_busy=0.2,
        )
        latency = Quantiles(2.0, 4.0, 8.0, 20.0)
        end_s = self.start_s + self.window_s
        return ClientWindow(self.start_s, end_s, counts, latency, lateness_p99_ms=0.5)

    def evidence(
        self, samples: list[BrokerSample], hosts: list[HostSample], client: ClientWindow
    ) -> Evidence:
        """The evidence that `jobs.trials.measure` would make of these parts."""
        window = (client.start_s, client.end_s)
        grown = client.counts.acked_by_partition
        return Evidence(
            client,
            broker_windows(samples, self.broker_ids, *window, self.interval_s),
            metrics_source="simulated",
            hosts=host_windows(hosts, *window, {f"host-{i}": (i,) for i in self.broker_ids}),
            any_isr_changed_share=any_isr_changed_share(samples, self.broker_ids, *window),
            end_offsets={partition: (5, 5 + records) for partition, records in grown.items()},
            planned_s=self.window_s,
        )


def _spread(per_s: Mapping[str, float], seed: int) -> list[tuple[str, float]]:
    """Rates that differ by up to a tenth between brokers; the uptime's rate is the same for all."""
    chance = random.Random(seed)
    return [
        (name, rate if name == UPTIME_MS else rate * chance.uniform(0.9, 1.1))
        for name, rate in per_s.items()
    ]


def _broker_readings(handler_idle: float) -> tuple[dict[str, float], dict[str, float]]:
    """Name of each reading → its growth per second, and name → value of the constant readings."""
    per_s: dict[str, float] = {}
    now: dict[str, float] = {"silent_ms": 1.0}
    for bean in beans_for(VERSION, (Role.BROKER,)):
        stands_for = _STARS.get(bean.name.partition("_")[0]) if "*" in bean.object_name else None
        names = [f"{bean.name}:{each}" for each in stands_for] if stands_for else [bean.name]
        for name in names:
            if bean.kind is Kind.HISTOGRAM:
                mean_ms = 0.0 if "throttle" in name else 2.5
                per_s[f"{name}_count"], now[f"{name}_mean"] = 1_000.0, mean_ms
            elif bean.kind is Kind.COUNTER or bean.name in PER_S:
                per_s[name] = PER_S.get(bean.name, 1_000.0)
            else:
                now[name] = NOW.get(bean.name, 0.0)
    for held in ("isr_shrinks", "isr_expands", "failed_produce_requests"):
        per_s[held] = 0.0
    per_s[HANDLER_IDLE_NS] = handler_idle * 1e9
    now["machine_cpu_share"] = 0.99
    now["processors"], per_s["process_cpu_ns"] = 16.0, 15e9
    now["heap_used_bytes"], now["heap_max_bytes"] = 2e9, 6e9
    return per_s, now
