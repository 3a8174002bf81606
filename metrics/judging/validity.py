"""The rules of validity: one object for each that says INVALID, and the list of all.

An INVALID trial does not answer whether the brokers took the load. A generator that missed its
rate, metrics that are missing or contradict each other, a cluster that changed under the load:
none of it may be read as an overload. A further rule is a class here and a line in `RULES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from metrics.judging.indicators import (
    ACHIEVED,
    CONSUMER_LAG,
    INDICATORS,
    SEEN_BY_CLIENTS,
    Indicator,
)
from metrics.judging.nearness import CPU_SATURATED, DROPPED_SHARE_HIGH, SWAPPED_PAGES_HIGH
from metrics.judging.thresholds import Thresholds
from metrics.trial.clock import OFFSET_MAX_S
from metrics.trial.consumption import GroupWindow, Stint
from metrics.trial.counts import Counts, ToBroker
from metrics.trial.evidence import ClusterFacts, Evidence
from metrics.trial.judgement import Reason
from metrics.windows.broker import BrokerWindow
from metrics.windows.host import HostWindow
from metrics.windows.resource import Resource
from metrics.windows.use import produce_throttle_ms

EDGE_GAP_INTERVALS = 2.0
"""How far the samples may stay away from the window's edges [sampling intervals]."""

SILENT_S = 1.0
"""A broker that answers nothing for so long, and for longer than between two of its samples, with
handlers to spare is out of reach [s]."""

OVERLOAD_ERRORS = frozenset(
    {
        "RequestTimedOutError",
        "KafkaTimeoutError",
        "Unacknowledged",
        "NotEnoughReplicasError",
        "NotEnoughReplicasAfterAppendError",
        "ThrottlingQuotaExceededError",
    }
)
"""Errors that a load too high for the brokers brings about. Their records are missing from
the acknowledged ones, so the shortfall judges them; they make no trial INVALID."""

MOVED_ERRORS = frozenset(
    {
        "NotLeaderForPartitionError",
        "NotLeaderOrFollowerError",
        "LeaderNotAvailableError",
        "ReplicaNotAvailableError",
        "UnknownTopicOrPartitionError",
        "FencedLeaderEpochError",
        "UnknownLeaderEpochError",
    }
)
"""Errors that say that a partition's leader moved away during the trial."""


class ValidityRule(ABC):
    """One rule of validity.

    Attributes:
        is_met_by_a_kill: what it looks for is what follows when a broker is killed, so it says
            nothing of a trial in which that was done on purpose.
    """

    is_met_by_a_kill: ClassVar[bool] = False

    @abstractmethod
    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """Why the trial is no answer; nothing where it is one."""

    def window_least_s(self, cluster: ClusterFacts) -> float:
        """The shortest window that the rule lets pass; one may not end earlier [s]."""
        return 0.0


def _generator(text: str, value: float, threshold: float) -> Reason:
    return Reason("generator_limited", text, value, threshold)


class Refused(ValidityRule):
    """What kept the trial from being made, or ended it."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """As they were given."""
        return list(evidence.refusals)


class TasksFailed(ValidityRule):
    """Tasks that could not take part, or a window in which nothing was offered or read."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each task."""
        client = evidence.client
        found = [Reason("task_failed", text, 1.0, 0.0) for text in client.task_errors]
        was_read = any(group.records_total for group in client.groups)
        was_sent = evidence.closed_loop and client.counts.sent_records > 0
        if not found and client.counts.offered_records == 0 and not was_read and not was_sent:
            text = (
                "nothing was due to be sent or read in the window, so it says nothing of the "
                "brokers; a profile of the rate may ask for no load at such a time"
            )
            found.append(_generator(text, 0.0, 1.0))
        return found


class ClocksApart(ValidityRule):
    """Hosts whose clock is far off the driver's, so that their load was at another time."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each host."""
        return [
            Reason(
                "clocks_apart",
                f"the clock of executor {each.host} was {each.clock.text}, more than "
                f"{OFFSET_MAX_S:g} s; synchronise the clocks of all hosts",
                each.clock.least_s,
                OFFSET_MAX_S,
            )
            for each in evidence.client.clocks
            if each.clock.least_s > OFFSET_MAX_S
        ]


class GeneratorLimited(ValidityRule):
    """A shortfall that the generator caused itself, as far as it can tell."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """Records that it held up, and tasks without time left."""
        client, limits = evidence.client, thresholds.validity
        if not ACHIEVED.falls_short(evidence, thresholds.indicators):
            return []
        missing, own = client.shortfall_records, client.counts.unsent_own_records
        found = []
        if own / missing >= limits.generator_share_max:
            text = (
                f"the generator was the limit: {own} of {missing} missing records were due and "
                f"unsent although their connections had room (sends left up to "
                f"{client.lateness_p99_ms:.0f} ms late at p99); use more executors or cores"
            )
            found.append(_generator(text, own / missing, limits.generator_share_max))
        busy = client.counts.loop_busy
        if busy >= limits.loop_busy_max:
            text = (
                f"the generator was the limit: a task was busy {busy:.0%} of the window while "
                f"{missing} records were missing; use more executors or cores"
            )
            found.append(_generator(text, busy, limits.loop_busy_max))
        return found


class GeneratorHost(ValidityRule):
    """A shortfall, or a latency too long, while a host of the generator had trouble of its own.

    It dropped packets, swapped, or had no CPU left. Hosts that share their machine with brokers
    are the brokers' too, and for the attribution to judge; what their own interfaces drop is not,
    but at the end of a link with a rate, which drops what exceeds it.
    """

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each host and trouble."""
        limits = thresholds.indicators
        if not any(each.reasons(evidence, limits) for each in SEEN_BY_CLIENTS):
            return []
        return [
            _generator(
                f"the generator was the limit: host {host.host} {text}; {remedy}", value, most
            )
            for host in evidence.hosts
            if host.generates and not host.brokers
            for text, remedy, value, most in _troubles(host)
        ]


def _troubles(host: HostWindow) -> Iterator[tuple[str, str, float, float]]:
    """What keeps a host from making its load: in words, what to do, its value and its limit."""
    for each in host.interfaces:
        if host.shares_machine and each.speed_bytes_per_s is not None:
            continue
        if (dropped := each.dropped_share or 0.0) >= DROPPED_SHARE_HIGH:
            text = f"dropped {dropped:.2%} of the packets of its interface {each.device}"
            yield text, "see its network, or use more hosts", dropped, DROPPED_SHARE_HIGH
    if host.shares_machine:
        return
    if (swapped := host.swapped_pages_per_s or 0.0) >= SWAPPED_PAGES_HIGH:
        text = f"moved {swapped:.0f} pages/s to and from swap"
        yield text, "give executors less memory, or their hosts more", swapped, SWAPPED_PAGES_HIGH
    if (busy := host.cpu_busy or 0.0) >= CPU_SATURATED and host.waiting_threads:
        text = f"was {busy:.0%} busy, with {host.waiting_threads:.1f} threads waiting for a core"
        yield text, "use more executors on more hosts", busy, CPU_SATURATED


class Unreachable(ValidityRule):
    """A shortfall of some brokers' records only, which those brokers never had to take.

    Executors wait for them and hear nothing, while they have handlers to spare and hold fewer
    requests than connections wait. A shortfall that all brokers share is the brokers' own, and so
    is that of a broker that answers slowly, is busy, or waits for its followers.
    """

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each broker out of reach, where the others took what was theirs."""
        client, limits = evidence.client, thresholds.indicators
        told = client.counts.by_broker
        if not ACHIEVED.falls_short(evidence, limits):
            return []
        lost = [
            (window, told[window.broker_id])
            for window in evidence.brokers
            if window.broker_id in told
            and _is_out_of_reach(window, told[window.broker_id], limits.request_handler_idle_min)
        ]
        records = sum(account.missing_records for _, account in lost)
        reached = (client.counts.acked_records + records) / client.counts.offered_records
        if not lost or len(lost) == len(told) or reached < limits.achieved_min:
            return []
        return [
            Reason(
                "unreachable",
                f"executors do not reach broker {window.broker_id}: it answered nothing for "
                f"{account.silent_s:.1f} s while {account.waiting_connections} connections waited, "
                f"its request handlers idle {window.handler_idle:.2f}, and "
                f"{account.missing_records} records that were due for it by the window's end are "
                "missing; see the network between the executors and this broker",
                account.silent_s,
                SILENT_S,
                window.broker_id,
            )
            for window, account in lost
        ]


def _is_out_of_reach(window: BrokerWindow, account: ToBroker, idle_min: float) -> bool:
    has_room = window.handler_idle is not None and window.handler_idle >= idle_min
    # A silence that holds a sample for certain; else nobody looked whether requests waited there.
    least_s = max(SILENT_S, (window.samples_missed + 1) * window.interval_s)
    holds = window.produce_delayed_max or 0.0
    return has_room and account.silent_s >= least_s and account.waiting_connections > holds


class MetricsIncomplete(ValidityRule):
    """Brokers with too many missed samples, none near an edge, or without what a goal judges by."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each broker."""
        most = thresholds.validity.missed_samples_max
        if not evidence.brokers:
            return [Reason("metrics_incomplete", "no broker was sampled", 0.0, 1.0)]
        limits = thresholds.indicators
        active = [each for each in INDICATORS if each.is_on(limits, evidence.cluster)]
        told = ((window, self._missing(window, most, active)) for window in evidence.brokers)
        return [
            Reason(
                "metrics_incomplete",
                f"broker {window.broker_id}: {text}",
                window.missed_share,
                most,
                window.broker_id,
            )
            for window, text in told
            if text is not None
        ]

    def _missing(
        self, window: BrokerWindow, most: float, active: Sequence[Indicator]
    ) -> str | None:
        if window.missed_share > most or window.start_s is None:
            return (
                f"{window.samples_missed} of {window.samples_expected} samples were missed, more "
                f"than {most:.0%}"
            )
        gap_s, interval_s = window.edge_gap_s, window.interval_s
        if gap_s is not None and gap_s > EDGE_GAP_INTERVALS * interval_s:
            return (
                f"no sample within {gap_s:.1f} s of an edge of the window, sampled every "
                f"{interval_s:g} s"
            )
        lacking = [] if window.contradiction else [each.missing(window) for each in active]
        if any(lacking):
            return (
                f"{', '.join(filter(None, lacking))} was not among the metrics, and the goal "
                "judges by it; of an exporter, its rules must export it and the file "
                "metrics.prometheus.rules name it"
            )
        return None


class MetricsContradictory(ValidityRule):
    """Nodes whose samples cannot all be true of one process that kept running."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each node."""
        return [
            Reason("metrics_contradictory", window.contradiction, 1.0, 0.0, window.broker_id)
            for window in (*evidence.brokers, *evidence.controllers)
            if window.contradiction is not None
        ]


class ErrorsUnexplained(ValidityRule):
    """Errors that no load brings about: leaders that moved, lost connections, refusals.

    Also those after which records were sent again and arrived: the load was then not what
    was asked for.
    """

    is_met_by_a_kill = True

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each error."""
        counts = evidence.client.counts
        ends = ((counts.errors, "failed with"), (counts.retry_errors, "were sent again because of"))
        return [
            self._reason(error, records, what)
            for errors, what in ends
            for error, records in sorted(errors.items())
            if records > 0 and error not in OVERLOAD_ERRORS
        ]

    def _reason(self, error: str, records: int, what: str) -> Reason:
        if error in MOVED_ERRORS:
            text = f"{records} records {what} {error}: a leader moved during the trial"
            return Reason("leaders_moved", text, float(records), 0.0)
        text = f"{records} records {what} {error}, which is no sign of load"
        return Reason("unexpected_errors", text, float(records), 0.0)


class ClusterChanged(ValidityRule):
    """A broker that was fenced, or partitions that changed their leader in the window."""

    is_met_by_a_kill = True

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each node that saw it."""
        away = evidence.cluster.offline
        found = [
            Reason(
                "broker_fenced",
                f"node {window.broker_id} saw up to {window.fenced_brokers_max:.0f} fenced "
                f"brokers in the window",
                window.fenced_brokers_max,
                float(away),
                window.broker_id,
            )
            for window in (*evidence.controllers, *evidence.brokers)
            if window.fenced_brokers_max is not None and window.fenced_brokers_max > away
        ]
        for window in evidence.brokers:
            least, most = window.leader_partitions_min, window.leader_partitions_max
            if least is not None and most is not None and least != most:
                text = (
                    f"broker {window.broker_id}: led {least:.0f} to {most:.0f} partitions in the "
                    f"window: leaders moved during the trial"
                )
                found.append(Reason("leaders_moved", text, most - least, 0.0, window.broker_id))
        return found


class ControllerChanged(ValidityRule):
    """Elections of a controller in the window, while which no leader and no ISR can change."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for all nodes, as each of them hears of the same elections."""
        nodes = (*evidence.brokers, *evidence.controllers)
        seen = [(n.controller_elections, n.broker_id) for n in nodes if n.controller_elections]
        if not seen:
            return []
        raised, node = max(seen)
        text = (
            f"the cluster elected a controller during the trial: its epoch rose by {raised:.0f}, "
            f"as node {node} saw; see whether a controller was restarted or lost"
        )
        return [Reason("controller_changed", text, raised, 0.0)]


class StoodStill(ValidityRule):
    """Brokers that did nothing at all for a while, and not to collect their heap."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each broker."""
        most_s = thresholds.validity.standstill_s_max
        return [
            Reason(
                "stood_still",
                f"broker {window.broker_id} stood still for {window.standstill_s:.1f} s or more: "
                "it answered nothing, and it was not its garbage collection; see whether its "
                "process or its machine was paused",
                window.standstill_s,
                most_s,
                window.broker_id,
            )
            for window in evidence.brokers
            if window.standstill_s is not None and window.standstill_s > most_s
        ]


class Throttled(ValidityRule):
    """Quotas held the load back, so the limit found would be the quota's."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """The brokers that throttled producers, or else what these were told; and the groups."""
        limit_ms = thresholds.validity.throttle_ms_max
        by_brokers = [
            _throttled(
                f"broker {window.broker_id}: produce requests were throttled for "
                f"{throttle_ms:.1f} ms on average by a quota",
                throttle_ms,
                limit_ms,
                window.broker_id,
            )
            for window in evidence.brokers
            if (throttle_ms := produce_throttle_ms(window)) is not None and throttle_ms > limit_ms
        ]
        return (by_brokers or self._told(evidence, limit_ms)) + self._of_groups(evidence, limit_ms)

    def _told(self, evidence: Evidence, limit_ms: float) -> list[Reason]:
        """What producers were told; without the number of requests, there is no mean to allow."""
        counts = evidence.client.counts
        requests = counts.produce_requests
        if not counts.throttle_ms or (requests and counts.throttle_ms / requests <= limit_ms):
            return []
        text = f"producers were throttled for {counts.throttle_ms} ms in all by a quota"
        return [_throttled(text, float(counts.throttle_ms), limit_ms)]

    def _of_groups(self, evidence: Evidence, limit_ms: float) -> list[Reason]:
        """Groups that were told of it, unless the brokers' mean says that it may be."""
        known = [each.fetch_consumer.throttle_ms for each in evidence.brokers]
        means = [each for each in known if each is not None]
        if means and max(means) <= limit_ms and limit_ms > 0:
            return []
        return [
            _throttled(
                f"consumer group {group.counts.group} was throttled for "
                f"{group.counts.throttle_ms} ms in all by a quota",
                float(group.counts.throttle_ms),
                limit_ms,
            )
            for group in evidence.client.groups
            if group.counts.throttle_ms
        ]


def _throttled(text: str, value: float, limit: float, broker_id: int | None = None) -> Reason:
    return Reason("throttled", text, value, limit, broker_id, Resource.QUOTA)


class ConsumersLimited(ValidityRule):
    """Lag that the consumers' own tasks brought about, as they had no time left."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """The busiest of these tasks."""
        busy, limit = evidence.client.consumer_loop_busy, thresholds.validity.loop_busy_max
        if busy < limit or not CONSUMER_LAG.reasons(evidence, thresholds.indicators):
            return []
        text = (
            f"the consumers were the limit: a task of theirs was busy {busy:.0%} of the window "
            "while lag grew; use more executors or cores"
        )
        return [_generator(text, busy, limit)]


class AccountingMismatch(ValidityRule):
    """Acknowledged records against the growth of the partitions' end offsets, if known.

    A record that failed may have been written all the same, and one that was sent again
    because its answer was lost may be there twice. So a partition's growth may exceed its
    acknowledged records by those, and no more; it may not fall below them. The end of a
    transaction is a record of the log too.
    """

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """Records that are missing, or that nobody sent."""
        growth, counts = evidence.growth_by_partition, evidence.client.counts
        if growth is None:
            return []
        acked = Counter(counts.acked_by_partition) + Counter(counts.control_records_by_partition)
        lost = {p: n - growth.get(p, 0) for p, n in acked.items() if n > growth.get(p, 0)}
        if lost:
            text = (
                f"{sum(lost.values())} acknowledged records"
                f"{' and ends of transactions' if counts.control_records else ''} are missing from "
                "the end offsets, "
                f"{_most(lost)}"
            )
            return [Reason("accounting_mismatch", text, float(sum(lost.values())), 0.0)]
        parts = (acked, counts.failed_by_partition, counts.duplicates_by_partition)
        explained = {p: sum(part.get(p, 0) for part in parts) for p in growth}
        unknown = {p: grown - explained[p] for p, grown in growth.items() if grown > explained[p]}
        if not unknown:
            return []
        excess = sum(unknown.values())
        text = (
            f"the end offsets grew by {sum(growth.values())} records, {excess} more than the "
            f"{counts.acked_total} acknowledged{_and_control(counts)} and "
            f"{counts.failed_total} failed and at most {counts.duplicates_at_most} sent twice, "
            f"{_most(unknown)}: somebody else writes to the topic, or a send was counted too little"
        )
        return [Reason("accounting_mismatch", text, float(excess), 0.0)]


def _and_control(counts: Counts) -> str:
    """` and 20 ends of transactions`, where there were some."""
    return f" and {counts.control_records} ends of transactions" if counts.control_records else ""


def _most(by_partition: Mapping[int, int]) -> str:
    records, partition = max((count, -partition) for partition, count in by_partition.items())
    return f"{records} of them on partition {-partition}"


class ConsumptionMismatch(ValidityRule):
    """What each group read against the partitions' end offsets after the trial, if known.

    A group reads each partition in one range without a break, up to what was acknowledged.
    It can neither have holes nor go beyond the end, and the batches must have held as many
    records as offsets. It may end early only when its lag says that it could not keep up.
    """

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """One for each group."""
        if evidence.end_offsets is None:
            return []
        ends = {partition: after for partition, (_, after) in evidence.end_offsets.items()}
        counts = evidence.client.counts
        taken = Counter(counts.acked_by_partition) + Counter(counts.control_records_by_partition)
        found = [
            _what_differs(group, ends) or _what_is_missing(group, taken)
            for group in evidence.client.groups
        ]
        return [
            Reason("consumption_mismatch", each[0], float(each[1]), 0.0) for each in found if each
        ]


def _what_is_missing(group: GroupWindow, taken: Mapping[int, int]) -> tuple[str, int] | None:
    read: Counter[int] = Counter()
    for stint in group.read_by_partition:
        read[stint.partition] += stint.length
    missing = {p: offsets - read[p] for p, offsets in taken.items() if offsets > read[p]}
    lags = group.counts.lag_records
    lag = lags[-1] if lags else 0
    if sum(missing.values()) <= lag:
        return None
    return (
        f"consumer group {group.counts.group} did not read {sum(missing.values())} acknowledged "
        f"records of {len(missing)} partitions, first of partition {min(missing)}, although its "
        f"lag was {lag} at the window's end"
    ), sum(missing.values())


def _what_differs(group: GroupWindow, ends: Mapping[int, int]) -> tuple[str, int] | None:
    name = f"consumer group {group.counts.group}"
    seen: dict[int, Stint] = {}
    for stint in group.read_by_partition:
        before = seen.get(stint.partition)
        if before is not None:
            missing = stint.from_offset - before.to_offset
            return (
                f"{name} missed {missing} records of partition {stint.partition} from offset "
                f"{before.to_offset} on"
            ), missing
        seen[stint.partition] = stint
        beyond = stint.to_offset - ends.get(stint.partition, 0)
        if beyond > 0:
            return (
                f"{name} read {beyond} records beyond the end offset of partition {stint.partition}"
            ), beyond
        if stint.records != stint.length:
            return (
                f"{name} read {stint.records} records in {stint.length} offsets of partition "
                f"{stint.partition} from offset {stint.from_offset} on"
            ), abs(stint.length - stint.records)
    return None


class OthersLoaded(ValidityRule):
    """Others loaded the brokers more than before the run, so that the limit is not theirs alone."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """The load of others, where it is too much of all."""
        others, most = evidence.others, thresholds.validity.others_share_max
        if others is None or others.excess_share <= most:
            return []
        text = (
            f"others wrote {others.text} to the brokers during the trial, beyond their level "
            f"before the run {others.excess_share:.0%} of all, above {most:.0%}; see who else "
            "uses the cluster"
        )
        return [Reason("others_loaded", text, others.excess_share, most)]


class WindowTooShort(ValidityRule):
    """A window in which a follower that lags could not have left the ISR yet."""

    def reasons(self, evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
        """The window's length."""
        duration_s, least_s = evidence.client.duration_s, self.window_least_s(evidence.cluster)
        if duration_s >= least_s:
            return []
        text = (
            f"the window of {duration_s:.1f} s is shorter than the {least_s:.1f} s after which "
            f"an ISR change shows; measure longer or lower replica.lag.time.max.ms"
        )
        return [Reason("window_too_short", text, duration_s, least_s)]

    def window_least_s(self, cluster: ClusterFacts) -> float:
        """As the brokers' `replica.lag.time.max.ms` asks for."""
        return cluster.isr_window_s or 0.0


RULES: Sequence[ValidityRule] = (
    Refused(),
    TasksFailed(),
    ClocksApart(),
    GeneratorLimited(),
    GeneratorHost(),
    Unreachable(),
    MetricsIncomplete(),
    MetricsContradictory(),
    ErrorsUnexplained(),
    ClusterChanged(),
    ControllerChanged(),
    StoodStill(),
    Throttled(),
    OthersLoaded(),
    ConsumersLimited(),
    AccountingMismatch(),
    ConsumptionMismatch(),
    WindowTooShort(),
)
"""All of them, in the order in which their reasons are told."""


def invalid_reasons(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Why a trial is no answer; nothing where it is one.

    A broker that was killed on purpose counts for nothing, and neither does what its death does
    to the others.
    """
    killed = evidence.cluster.killed
    if killed is None:
        return [reason for rule in RULES for reason in rule.reasons(evidence, thresholds)]
    others = tuple(each for each in evidence.brokers if each.broker_id != killed)
    seen = replace(evidence, brokers=others)
    rules = (rule for rule in RULES if not rule.is_met_by_a_kill)
    return [reason for rule in rules for reason in rule.reasons(seen, thresholds)]
