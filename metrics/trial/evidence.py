"""The evidence of one trial, the values derived from it, and its judgement by a goal.

Kafka's own readings of a follower's lag, `MaxLag` and the `offsetLag` of a log directory, compare
the follower with the high watermark, which waits for the slowest follower of the ISR. So they show
nothing until the follower has left the ISR, after `replica.lag.time.max.ms`. Bytes that brokers
receive and copy include other clients' topics, and differ where a broker compresses again. The end
offset of each replica's own log has none of these faults, so the lag is counted by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Annotated

from metrics.columns import NO_COLUMN, Column, Flat, column
from metrics.trial.canary import CanaryWindow
from metrics.trial.client import ClientWindow
from metrics.trial.others import OtherLoad
from metrics.trial.sockets import SocketCounts
from metrics.windows.broker import BrokerWindow, busiest_of
from metrics.windows.host import HostUse, HostWindow, host_use_table
from metrics.windows.use import Resource, ResourceUse, use_table
from metrics.windows.write_back import WriteBackWindow
from search.model import Verdict


@dataclass(frozen=True)
class ReplicaEnds:
    """The end offsets of all replicas of a trial's topics, read from all brokers at once.

    Attributes:
        at_s: time at which the brokers were queried [s since the epoch].
        took_s: time until the last broker answered [s].
        written: broker → sum of the leaders' end offsets over the partitions that the broker
            follows [records].
        copied: broker → sum of its own end offsets of these partitions [records].
    """

    at_s: float
    took_s: float
    written: Mapping[int, int]
    copied: Mapping[int, int]


@dataclass(frozen=True)
class FollowerLag:
    """The growth of all leaders' logs beside that of their followers in a window.

    Attributes:
        wanted_records_per_s: records that followers have to copy, once for each follower [1/s].
        copied_records_per_s: records that they copied [1/s].
        duration_s: time between the first and the last reading in the window [s].
        uncertain_s: time that both readings took, as brokers do not answer at one moment [s].
        broker_id: the broker that lacks most.
        followers: number of brokers that follow.
    """

    wanted_records_per_s: float
    copied_records_per_s: float
    duration_s: float
    uncertain_s: float
    broker_id: int
    followers: int

    @classmethod
    def between(cls, first: ReplicaEnds, last: ReplicaEnds) -> FollowerLag | None:
        """The lag that followers gained between two readings; None without time or load."""
        wanted = {each: last.written[each] - first.written[each] for each in sorted(last.written)}
        copied = {each: last.copied[each] - first.copied[each] for each in wanted}
        lasted_s = last.at_s - first.at_s
        if lasted_s <= 0 or sum(wanted.values()) <= 0:
            return None
        return cls(
            sum(wanted.values()) / lasted_s,
            sum(copied.values()) / lasted_s,
            lasted_s,
            first.took_s + last.took_s,
            max(wanted, key=lambda each: wanted[each] - copied[each]),
            len(wanted),
        )

    @property
    def share(self) -> float:
        """Growth of the lag over the load; below 0 where followers caught up [ratio]."""
        return 1.0 - self.copied_records_per_s / self.wanted_records_per_s

    @property
    def behind_s(self) -> float:
        """Least growth of the lag, as the time in which the load has that size [s]."""
        return max(0.0, self.share * self.duration_s - self.uncertain_s)


def follower_lags(
    readings: Iterable[ReplicaEnds], start_s: float, end_s: float
) -> Sequence[FollowerLag]:
    """The lag that followers gained from the first reading in a window to each further one.

    The last of them is the lag of the window. Empty where the lag is not known.
    """
    inside = [each for each in readings if start_s <= each.at_s <= end_s]
    found = (FollowerLag.between(inside[0], each) for each in inside[1:])
    return [each for each in found if each is not None]


GENERATOR_LIMITED = "generator_limited"
"""The rule of trials that are INVALID because the generator was the limit."""
OTHERS_LOADED, OTHERS_LESS = "others_loaded", "others_less"
OTHERS_CHANGED = frozenset({OTHERS_LOADED, OTHERS_LESS})
"""The rules of trials that are INVALID because the load of other clients changed."""
ENDED_EARLY = "ended_early"
"""The rule of the reason that states an early end of the window."""


def part_label(part: str) -> str:
    """The beginning of a reason that is about one part of a mix."""
    return f"part {part}: "


@dataclass(frozen=True)
class Reason:
    """One sentence of a verdict, with the rule, the place and the numbers behind it.

    Attributes:
        indicator: the rule's name, for example `request_handler_idle`.
        text: the sentence, with numbers and units.
        broker_id: the broker that the reason is about, or None.
        value, threshold: the numbers compared [in the unit of the rule].
        resource: the resource that the rule points at.
    """

    indicator: str
    text: str
    value: float
    threshold: float
    broker_id: int | None = None
    resource: Resource = Resource.UNKNOWN


@dataclass(frozen=True)
class Judgement:
    """The judgement of a trial by a goal.

    Attributes:
        verdict: `SUSTAINED`, `OVERLOADED` or `INVALID`.
        reasons: reasons of the verdict, the most important first.
        utilization: indicator → its nearness to the threshold, 1 at it; it guides the search
            (`search.model.Observation.indicators`).
        limited_by: the limiting resource of an overload or a closed loop.
        attribution: the evidence for the limiting resource in one sentence.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    utilization: Mapping[str, float] = field(default_factory=dict)
    limited_by: Resource | None = None
    attribution: str = ""

    @property
    def rules(self) -> frozenset[str]:
        """The rules of the reasons, without that of an early end."""
        return frozenset(reason.indicator for reason in self.reasons) - {ENDED_EARLY}

    @property
    def is_by_generator(self) -> bool:
        """True for an INVALID trial for which the generator is the only cause."""
        return self.verdict is Verdict.INVALID and self.rules == {GENERATOR_LIMITED}


@dataclass(frozen=True)
class ClusterFacts:
    """Facts about a cluster that are known before any trial and that affect its judgement.

    Attributes:
        is_blind: the cluster shows no metrics, so that none can be missing.
        isr_window_s: shortest window in which an ISR change can show, from the brokers'
            `replica.lag.time.max.ms` [s]; None without followers.
        rate_window_s: shortest window that has a whole tick of each one-minute rate, and enough
            scrapes of a Prometheus server [s]; None where neither is read.
        under_replicated_at_rest: broker id → under-replicated partitions before the run, or
            before the trial where there were fewer then.
        queued_max_requests: broker id → its `queued.max.requests`, where it was read.
        offline: number of brokers that are offline on purpose, which controllers report as fenced.
        killed: broker that is killed on purpose in the window, to measure the failover.
        followers: number of followers of each partition of the trial's topics; the largest of a
            mix.
        delete_delay_s: the brokers' shortest time from the check of retention to the deletion of a
            file; Kafka's default where it is not known [s].
    """

    is_blind: bool = False
    isr_window_s: float | None = None
    rate_window_s: float | None = None
    queued_max_requests: Mapping[int, float] = field(default_factory=dict)
    under_replicated_at_rest: Mapping[int, float] = field(default_factory=dict)
    offline: int = 0
    killed: int | None = None
    followers: int = 0
    delete_delay_s: float = 60.0


@dataclass(frozen=True)
class Evidence:
    """The measurements of clients and brokers in a trial.

    Attributes:
        client: the account of the clients.
        brokers: the window of each broker.
        controllers: the window of each controller whose metrics are known.
        metrics_source: the source of the metrics: `driver-jvm`, `jmxquery`, …
        hosts: the windows of the machines of brokers and of tasks, as far as they show metrics.
        end_offsets: partition → (before, after) the trial, for comparison with the records
            acknowledged and read; None when they were not read.
        moved_leaders: broker id → partitions of the trial's topics that it led before the load and
            no longer leads after it; None where they were not read.
        others: the load of other producers; None where the brokers do not show it.
        any_isr_changed_share: share of the samples in which at least one broker shows an ISR
            change or under-replicated partitions [ratio].
        broker_sockets: broker id → its sockets to clients, on this machine; their counters cover
            the time between the first sample and the last.
        refusals: reasons why the trial was not made or was ended, and so is not an answer.
        planned_s: planned length of the window; 0 when it is unknown [s].
        closed_loop: True where producers sent without a rate, so that no record is missing or late.
        cluster: facts about the cluster.
        write_back: bytes that the brokers of each host received, that its disks wrote, and that its
            memory holds; only hosts that show their dirty memory.
        unreplicated_records: acknowledged records above the high watermark when it was first read
            after the load; None when it was not read.
        canaries: what a small client beside the load saw of each broker; empty without canaries.
        load_s: time from the start of the load to the end of its window [s]; None where no load
            began.
        kept_overloaded_s: how long the brokers were overloaded at least when a held load ended for
            it [s]; 0 where it did not.
        follower_lag: what followers did not copy of the window's records; None without followers,
            in an outage that is made on purpose, and where brokers do not report it.
    """

    client: Annotated[ClientWindow, Flat()]
    brokers: Annotated[tuple[BrokerWindow, ...], Column("broker_windows")] = ()
    controllers: Annotated[tuple[BrokerWindow, ...], Column("controller_windows")] = ()
    metrics_source: str = ""
    hosts: tuple[HostWindow, ...] = ()
    end_offsets: Annotated[Mapping[int, tuple[int, int]] | None, NO_COLUMN] = None
    moved_leaders: Annotated[Mapping[int, int] | None, NO_COLUMN] = None
    others: OtherLoad | None = None
    any_isr_changed_share: float | None = None
    broker_sockets: Mapping[int, SocketCounts] = field(default_factory=dict)
    refusals: Annotated[tuple[Reason, ...], NO_COLUMN] = ()
    planned_s: Annotated[float, NO_COLUMN] = 0.0
    closed_loop: Annotated[bool, NO_COLUMN] = False
    cluster: Annotated[ClusterFacts, NO_COLUMN] = ClusterFacts()
    write_back: tuple[WriteBackWindow, ...] = ()
    unreplicated_records: int | None = None
    canaries: tuple[CanaryWindow, ...] = ()
    load_s: float | None = None
    follower_lag: Annotated[FollowerLag | None, NO_COLUMN] = None
    kept_overloaded_s: Annotated[float, NO_COLUMN] = 0.0

    @column
    def end_offset_growth_records(self) -> int | None:
        """Growth of the end offsets over the whole trial."""
        growth = self.growth_by_partition
        return None if growth is None else sum(growth.values())

    @column
    def resources(self) -> tuple[ResourceUse, ...]:
        """The USE table of the brokers, a row for each resource of each broker."""
        return use_table(self.brokers)

    @column
    def host_resources(self) -> tuple[HostUse, ...]:
        """The USE table of the hosts, a row for each resource of each host."""
        return host_use_table(self.hosts, self.write_back)

    @property
    def by_part(self) -> dict[str, Evidence]:
        """Part of a mix → this evidence with the account of its clients alone; empty without."""
        return {name: replace(self, client=own) for name, own in self.client.parts.items()}

    def hosts_of(self, broker_id: int) -> tuple[HostWindow, ...]:
        """The host of a broker, under each of its names."""
        return self._hosts_by_broker.get(broker_id, ())

    @cached_property
    def _hosts_by_broker(self) -> dict[int, tuple[HostWindow, ...]]:
        found: dict[int, tuple[HostWindow, ...]] = {}
        for host in self.hosts:
            for broker_id in host.brokers:
                found[broker_id] = (*found.get(broker_id, ()), host)
        return found

    @property
    def broker_resident_bytes(self) -> float | None:
        """Largest memory of a broker's process [B]; None where hosts do not show it."""
        return max(
            (size for each in self.hosts for size in each.resident_bytes.values()), default=None
        )

    @property
    def page_cache_bytes(self) -> float | None:
        """Largest page cache of a brokers' host [B]; None where hosts do not show it."""
        known = [each.page_cache_bytes for each in self.hosts if each.brokers]
        return max(filter(None, known), default=None)

    @property
    def growth_by_partition(self) -> dict[int, int] | None:
        """Partition → growth of its end offset over the whole trial; None when it was not read."""
        if self.end_offsets is None:
            return None
        return {
            partition: after - before for partition, (before, after) in self.end_offsets.items()
        }

    @property
    def lost_by_partition(self) -> dict[int, int]:
        """Partition → acknowledged records and ends of transactions that its log lacks; empty where
        it lacks none, or where end offsets were not read.
        """
        growth, counts = self.growth_by_partition, self.client.counts
        acked = Counter(counts.acked_by_partition) + Counter(counts.control_records_by_partition)
        if growth is None:
            return {}
        return {p: n - growth.get(p, 0) for p, n in acked.items() if n > growth.get(p, 0)}

    @property
    def busiest_broker(self) -> BrokerWindow | None:
        """The broker whose request handlers had the least idle time; None where it is unknown."""
        return busiest_of(self.brokers)

    @property
    def handler_idle_min(self) -> float | None:
        """Lowest idle fraction of any broker's request handlers [ratio]."""
        busiest = self.busiest_broker
        return None if busiest is None else busiest.handler_idle

    @property
    def isr_changed_share(self) -> float | None:
        """Share of samples with an ISR change at any broker; where only the brokers' own shares
        are known, as in older rows, the largest of them [ratio].
        """
        if self.any_isr_changed_share is not None:
            return self.any_isr_changed_share
        known = [w.isr_changed_share for w in self.brokers if w.isr_changed_share is not None]
        return max(known, default=None)

    @column
    def follower_lag_growth_share(self) -> float | None:
        """Growth of the followers' lag over the load [ratio]; None where it is not known."""
        return None if self.follower_lag is None else self.follower_lag.share

    @property
    def handler_s_per_mb(self) -> float | None:
        """Time for which all of a broker's handlers are busy with each MB of its payload [s/MB].

        It is the busy share of the handlers over the payload of each broker [MB/s]. Its
        inverse is the payload that would keep them fully busy if the cost of a MB did not change
        with the load.
        """
        idle = [each.handler_idle for each in self.brokers if each.handler_idle is not None]
        achieved = self.client.achieved_mb_per_s
        if not idle or len(idle) < len(self.brokers) or not achieved:
            return None
        busy = fmean(max(0.0, 1.0 - each) for each in idle)
        return busy / (achieved / len(self.brokers)) if busy > 0.0 else None

    @property
    def log_bytes_per_byte(self) -> float | None:
        """Bytes of record batches that brokers took from all producers over our payload [ratio].

        It is below 1 where compression saves more than the framing costs; None where a broker does
        not show its input, or no record was acknowledged.
        """
        taken = [each.bytes_in_per_s for each in self.brokers]
        achieved = self.client.achieved_mb_per_s
        if not taken or None in taken or not achieved:
            return None
        return sum(filter(None, taken)) / (achieved * 1e6)

    @property
    def broker_cpu_s_per_mb(self) -> float | None:
        """CPU time of all brokers for each MB of our payload acknowledged [CPU-s/MB]."""
        cores = [each.cpu_cores for each in self.brokers if each.cpu_cores is not None]
        achieved = self.client.achieved_mb_per_s
        return sum(cores) / achieved if achieved and len(cores) == len(self.brokers) else None

    @property
    def producer_cpu_s_per_mb(self) -> float | None:
        """CPU time of the tasks with producers for each MB of payload acknowledged [CPU-s/MB]."""
        counts = self.client.counts
        return counts.cpu_s / (counts.acked_bytes / 1e6) if counts.acked_bytes else None

    @property
    def lag_growth_per_s(self) -> dict[str, float]:
        """Consumer group → growth of its lag: acknowledged less read in the window [records/s].

        The lag that members report is not used, as it depends on the end offsets in their last
        fetch responses; a member that is behind gets long responses, and so old end offsets.
        """
        client = self.client
        return {
            str(group.counts.group): (
                client.account_of_group(group.counts.group).counts.acked_records
                - group.counts.records
            )
            / client.duration_s
            for group in client.groups
        }
