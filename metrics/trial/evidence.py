"""The evidence of one trial, the values that are derived from the evidence, and the judgement by a
goal.

The lag of a follower is computed from the end offsets of all replicas. Kafka's own readings of the
lag (`MaxLag`, and `offsetLag` of a log directory) compare the follower with the high watermark,
which waits for the slowest follower in the ISR. So Kafka's readings of the lag stay low until a
slow follower has left the ISR, after `replica.lag.time.max.ms`. The lag is also not computed from
the bytes that brokers received and copied, because these bytes include other clients' topics and
change if a broker compresses batches again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Annotated

from metrics.columns import NO_COLUMN, Column, Flat, column
from metrics.trial.canary import CanaryWindow
from metrics.trial.client import ClientWindow
from metrics.trial.others import OtherLoad
from metrics.trial.sockets import SocketCounts
from metrics.windows.broker import BrokerWindow, busiest_of, highest, over, scaled, whole
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
        written: broker → sum of end offsets [records]: the leaders' end offsets of all partitions
            that the broker follows.
        copied: broker → sum of end offsets [records]: the broker's own end offsets of all
            partitions that the broker follows.
    """

    at_s: float
    took_s: float
    written: Mapping[int, int]
    copied: Mapping[int, int]


@dataclass(frozen=True)
class FollowerLag:
    """The growth of the leaders' logs in a window, compared with the growth of the followers' logs.

    Attributes:
        wanted_records_per_s: records that followers have to copy, counted once for each follower
            [1/s].
        copied_records_per_s: records that followers copied [1/s].
        duration_s: time between the first and the last reading in the window [s].
        uncertain_s: time that both readings took [s]; brokers answer at different moments within
            this time.
        broker_id: the follower that lacks the most records.
        followers: number of brokers that are followers.
    """

    wanted_records_per_s: float
    copied_records_per_s: float
    duration_s: float
    uncertain_s: float
    broker_id: int
    followers: int

    @classmethod
    def between(cls, first: ReplicaEnds, last: ReplicaEnds) -> FollowerLag | None:
        """The lag that followers gained between two readings; None if no time passed or no record
        was written.
        """
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
        """Growth of the lag as a share of the written records [ratio]; below 0 if followers caught
        up.
        """
        return 1.0 - self.copied_records_per_s / self.wanted_records_per_s

    @property
    def behind_s(self) -> float:
        """Lower bound of the growth of the lag, as a time [s]: in this time, the load writes as
        many records as the lag grew.
        """
        return max(0.0, self.share * self.duration_s - self.uncertain_s)


def follower_lags(
    readings: Iterable[ReplicaEnds], start_s: float, end_s: float
) -> Sequence[FollowerLag]:
    """The lag that followers gained from the first reading in a window to each later reading.

    The last element is the lag of the whole window. The result is empty if the lag is unknown.
    """
    inside = [each for each in readings if start_s <= each.at_s <= end_s]
    found = (FollowerLag.between(inside[0], each) for each in inside[1:])
    return [each for each in found if each is not None]


GENERATOR_LIMITED = "generator_limited"
"""Name of the rule for trials that are INVALID because the generator was the limit."""
OTHERS_LOADED, OTHERS_LESS = "others_loaded", "others_less"
OTHERS_CHANGED = frozenset({OTHERS_LOADED, OTHERS_LESS})
"""Names of the rules for trials that are INVALID because the load of other clients changed."""
ENDED_EARLY = "ended_early"
"""Name of the rule whose reason states that a window ended early."""


def part_label(part: str) -> str:
    """The first words of a reason that applies only to one part of a mix."""
    return f"part {part}: "


@dataclass(frozen=True)
class Reason:
    """One reason of a verdict: its text, its rule, the broker, and the compared numbers.

    Attributes:
        indicator: the rule's name, for example `request_handler_idle`.
        text: the reason as a sentence, with numbers and units.
        broker_id: the broker to which the reason applies; None if it applies to no single broker.
        value: the measured value [in the unit of the rule].
        threshold: the value at which the rule applies [in the unit of the rule].
        resource: the limiting resource that the rule indicates.
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
        utilization: indicator → measured value relative to the threshold, 1 at the threshold; the
            search uses these values to choose loads (`search.model.Observation.indicators`).
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
        """The rules of all reasons except the early end of the window."""
        return frozenset(reason.indicator for reason in self.reasons) - {ENDED_EARLY}

    @property
    def is_by_generator(self) -> bool:
        """True if the trial is INVALID, and only the generator is the cause."""
        return self.verdict is Verdict.INVALID and self.rules == {GENERATOR_LIMITED}


@dataclass(frozen=True)
class ClusterFacts:
    """Facts about a cluster that are known before any trial, and that affect the judgement of
    trials.

    Attributes:
        is_blind: True if the cluster offers no metrics, so that a missing metric does not make a
            trial INVALID.
        isr_window_s: length [s] of the shortest window in which an ISR change can be detected. The
            length is computed from the brokers' `replica.lag.time.max.ms`. None without followers.
        rate_window_s: minimum length [s] of a window, so that the window contains an update of each
            one-minute rate, and enough scrapes of a Prometheus server. None if the run reads no
            one-minute rates and no Prometheus server.
        under_replicated_at_rest: broker id → number of under-replicated partitions without load.
            This number is read before the run and before the trial, and the smaller number counts.
        queued_max_requests: broker id → its `queued.max.requests`; only brokers whose property
            could be read.
        offline: number of brokers that are offline on purpose; controllers report them as fenced.
        killed: broker that is killed on purpose in the window, to measure the failover.
        followers: number of followers of each partition of the trial's topics; in a mix, the
            largest number of any part.
        delete_delay_s: time [s] from the check of retention to the deletion of a file, at the
            broker with the shortest such time; Kafka's default if the time is unknown.
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
        client: the counts and latencies of the clients.
        brokers: the window of each broker.
        controllers: the window of each controller whose metrics are known.
        metrics_source: the source of the metrics, such as `driver-jvm` or `jmxquery`.
        hosts: the windows of the machines of brokers and of tasks, if their metrics are known.
        end_offsets: partition → (end offset before the trial, end offset after the trial), for
            comparison with the acknowledged records and the read records; None if no end offsets
            were read.
        moved_leaders: broker id → number of partitions that the broker should lead and does not
            lead at the end of the trial; None if the leaders were not read.
        others: the load of other clients; None if the brokers' metrics do not show it.
        any_isr_changed_share: share of the samples in which at least one broker shows an ISR change
            or under-replicated partitions [ratio].
        broker_sockets: broker id → its sockets to clients, if the broker runs on this machine; the
            counters cover the time between the first and the last sample.
        refusals: reasons why the run did not begin the trial, or stopped the trial; a trial with a
            refusal is INVALID.
        planned_s: planned length of the window [s]; 0 if it is unknown.
        closed_loop: True if producers sent without a rate, so that no record can be missing or
            late.
        cluster: facts that were known before the trial.
        write_back: for each host, the bytes that its brokers received, the bytes that its disks
            wrote, and the bytes that stayed in its memory; only hosts that show their dirty pages.
        unreplicated_records: number of acknowledged records that were still above the high
            watermark at its first reading after the load; None if the high watermark was not read.
        canaries: the canary's latencies at each broker; empty without canaries.
        load_s: time from the start of the load to the end of its window [s]; None if no load began.
        kept_overloaded_s: if a held load was stopped because of an overload, the shortest possible
            length of this overload [s]; otherwise 0.
        follower_lag: growth of the followers' lag in the window; None without followers, during a
            planned broker outage, or if brokers do not report end offsets.
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
        """Growth of the end offsets over the whole trial, summed over all partitions."""
        growth = self.growth_by_partition
        return None if growth is None else sum(growth.values())

    @column
    def resources(self) -> tuple[ResourceUse, ...]:
        """The USE table (utilization, saturation, errors) of the brokers, with a row for each
        resource of each broker.
        """
        return use_table(self.brokers)

    @column
    def host_resources(self) -> tuple[HostUse, ...]:
        """The USE table (utilization, saturation, errors) of the hosts, with a row for each
        resource of each host.
        """
        return host_use_table(self.hosts, self.write_back)

    @property
    def by_part(self) -> dict[str, Evidence]:
        """Part of a mix → this evidence with only the clients of the part; empty without a mix."""
        return {name: replace(self, client=own) for name, own in self.client.parts.items()}

    @property
    def broker_resident_bytes(self) -> float | None:
        """Largest memory of a broker's process [B]; None if hosts do not show it."""
        return max(
            (size for each in self.hosts for size in each.resident_bytes.values()), default=None
        )

    @property
    def page_cache_bytes(self) -> float | None:
        """Largest page cache of a host with brokers [B]; None if hosts do not show it."""
        known = [each.page_cache_bytes for each in self.hosts if each.brokers]
        return max(filter(None, known), default=None)

    @property
    def growth_by_partition(self) -> dict[int, int] | None:
        """Partition → growth of its end offset over the whole trial; None if end offsets were not
        read.
        """
        if self.end_offsets is None:
            return None
        return {
            partition: after - before for partition, (before, after) in self.end_offsets.items()
        }

    @property
    def lost_by_partition(self) -> dict[int, int]:
        """Partition → number of records that the partition's log lacks. Such a record was
        acknowledged, or ended a transaction (a commit or abort record). The result is empty if no
        records are missing, or if end offsets were not read.
        """
        growth, counts = self.growth_by_partition, self.client.counts
        acked = Counter(counts.acked_by_partition) + Counter(counts.control_records_by_partition)
        if growth is None:
            return {}
        return {p: n - growth.get(p, 0) for p, n in acked.items() if n > growth.get(p, 0)}

    @property
    def busiest_broker(self) -> BrokerWindow | None:
        """The broker whose request handlers had the least idle time; None if it is unknown."""
        return busiest_of(self.brokers)

    @property
    def handler_idle_min(self) -> float | None:
        """Lowest idle fraction of any broker's request handlers [ratio]."""
        busiest = self.busiest_broker
        return None if busiest is None else busiest.handler_idle

    @property
    def isr_changed_share(self) -> float | None:
        """Share of samples with an ISR change at any broker [ratio]. Older rows contain only a
        share of each broker; for such a row, the result is the largest of these shares.
        """
        if self.any_isr_changed_share is not None:
            return self.any_isr_changed_share
        return highest(each.isr_changed_share for each in self.brokers)

    @column
    def follower_lag_growth_share(self) -> float | None:
        """Growth of the followers' lag as a share of the written records [ratio]; None if the lag
        is unknown.
        """
        return None if self.follower_lag is None else self.follower_lag.share

    @property
    def handler_s_per_mb(self) -> float | None:
        """Time that all request handlers of a broker together need for each MB of payload [s/MB].
        The time is the busy share of the handlers, divided by the broker's payload rate [MB/s]. The
        inverse of this time is the payload rate at which the handlers would be fully busy, if the
        cost of a MB did not change with the load.
        """
        idle = [each.handler_idle for each in self.brokers if each.handler_idle is not None]
        achieved = self.client.achieved_mb_per_s
        if not idle or len(idle) < len(self.brokers) or not achieved:
            return None
        busy = fmean(max(0.0, 1.0 - each) for each in idle)
        return busy / (achieved / len(self.brokers)) if busy > 0.0 else None

    @property
    def log_bytes_per_byte(self) -> float | None:
        """Bytes of record batches that brokers received from all producers, divided by the payload
        of this run's producers [ratio]. The ratio is below 1 if compression saves more bytes than
        the framing adds. The result is None if a broker does not show its received bytes, or if no
        record was acknowledged.
        """
        taken = whole([each.bytes_in_per_s for each in self.brokers])
        return over(taken, scaled(self.client.achieved_mb_per_s, 1e6))

    @property
    def broker_cpu_s_per_mb(self) -> float | None:
        """CPU time of all brokers for each acknowledged MB of this run's payload [CPU-s/MB]."""
        cores = [each.cpu_cores for each in self.brokers if each.cpu_cores is not None]
        achieved = self.client.achieved_mb_per_s
        return sum(cores) / achieved if achieved and len(cores) == len(self.brokers) else None

    @property
    def producer_cpu_s_per_mb(self) -> float | None:
        """CPU time of the tasks with producers for each acknowledged MB of payload [CPU-s/MB]."""
        counts = self.client.counts
        return counts.cpu_s / (counts.acked_bytes / 1e6) if counts.acked_bytes else None

    @property
    def lag_growth_per_s(self) -> dict[str, float]:
        """Consumer group → growth of its lag: acknowledged minus read records in the window
        [records/s].

        The lag that members report is not used, because it depends on the end offsets in their last
        fetch responses. A member with a large lag receives long responses, so the end offsets that
        this member knows are old.
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
