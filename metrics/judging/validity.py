"""The rules of validity: a function for each rule that makes a trial INVALID, and the list of all.

An INVALID trial does not show whether the brokers sustain the load. A generator that missed its
rate, metrics that are missing or contradict each other, and a cluster that changed under the load
must not be read as an overload. A further rule is a function here and a line in `RULES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from metrics.judging.doubts import lateness_reasons, reasons_of_doubt
from metrics.judging.indicators import ACHIEVED, CLIENT_INDICATORS, CONSUMER_LAG, Indicator, active
from metrics.judging.nearness import (
    CPU_SATURATED,
    DROPPED_SHARE_HIGH,
    SWAPPED_PAGES_HIGH,
    throttle_reasons,
)
from metrics.judging.running import followers_behind
from metrics.judging.thresholds import Thresholds, reasons_of_all
from metrics.trial.client import CHANGE_MAX, OFFSET_MAX_S, BrokerAccount, Counts
from metrics.trial.consumption import GroupWindow, ReadRange
from metrics.trial.evidence import GENERATOR_LIMITED, OTHERS_LESS, OTHERS_LOADED, Evidence, Reason
from metrics.windows.broker import BrokerWindow
from metrics.windows.host import HostWindow

EDGE_GAP_INTERVALS = 2.0
"""Longest distance between the samples and the window's edges [sampling intervals]."""

SILENT_S = 1.0
"""Silence of a broker with idle handlers after which it is unreachable, if it is also longer than
the time between two of its samples [s]."""

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
"""Errors that an overload causes. Their records are missing from the acknowledged ones, so the
shortfall judges them; they do not make a trial INVALID."""

FOLLOWING_ERROR = "OutOfOrderSequenceNumberError"
"""Error of an idempotent producer's batches behind one that was refused, as they were in flight
with it. Without another error it means that the broker lost the producer's state."""

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
"""Errors that show that a partition's leader moved during the trial."""


Judge = Callable[[Evidence, Thresholds], list[Reason]]
"""Returns the reasons why a trial is not an answer; empty where it is one."""


@dataclass(frozen=True)
class ValidityRule:
    """One rule of validity.

    Attributes:
        reasons: the rule.
        is_met_by_a_kill: killing a broker triggers the rule, so it does not apply to a trial in
            which a broker is killed on purpose.
        judges_parts: the rule also judges the account of each part of a mix.
    """

    reasons: Judge
    is_met_by_a_kill: bool = False
    judges_parts: bool = False


def _generator(text: str, value: float, threshold: float) -> Reason:
    return Reason(GENERATOR_LIMITED, text, value, threshold)


def tasks_failed(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Tasks that could not take part, or a window in which nothing was offered or read.

    Returns:
        One reason for each task.
    """
    client = evidence.client
    found = [Reason("task_failed", text, 1.0, 0.0) for text in client.task_errors]
    was_read = any(group.records_total for group in client.groups)
    was_sent = evidence.closed_loop and client.counts.sent_records > 0
    if not found and client.counts.offered_records == 0 and not was_read and not was_sent:
        text = (
            "no record was due to be sent or read in the window, so the trial does not load "
            "the brokers; check the profile of the rate, which may be 0 at such a time"
        )
        found.append(_generator(text, 0.0, 1.0))
    return found


def clocks_apart(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Hosts whose clock is far off the driver's, so that their load was at another time.

    Returns:
        One reason for each host.
    """
    return [
        Reason(
            "clocks_apart",
            f"the clock of executor {each.host} was {each.clock.text}, more than "
            f"{OFFSET_MAX_S:g} s; synchronize the clocks of all hosts",
            each.clock.least_s,
            OFFSET_MAX_S,
        )
        for each in evidence.client.clocks
        if each.clock.least_s > OFFSET_MAX_S
    ]


def clocks_changed(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Hosts whose clock was set under load, or ran faster or slower than the driver's.

    A load is paced by the clock of its host, so that it may be larger or smaller by as much.

    Returns:
        One reason for each host whose clock is within its largest offset.
    """
    client = evidence.client
    most_s = CHANGE_MAX * client.duration_s
    apart = {each.host for each in client.clocks if each.clock.least_s > OFFSET_MAX_S}
    return [
        Reason(
            "clock_changed",
            f"the clock of executor {each.host} {each.text} within the load, more than "
            f"{CHANGE_MAX:.0%} of the window of {client.duration_s:.1f} s: it was set or runs "
            "at another speed, and the load's rate with it; wait until the clocks of all "
            "hosts are synchronized",
            each.least_s,
            most_s,
        )
        for each in client.clock_changes
        if each.host not in apart and each.least_s > most_s
    ]


def generator_limited(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """A shortfall that the generator itself caused, by its own account.

    Returns:
        The records that the generator held up, and the tasks without time left.
    """
    client, limits = evidence.client, thresholds.validity
    if not ACHIEVED.falls_short(evidence, thresholds.indicators):
        return []
    missing, own = client.shortfall_records, client.held_up_records
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


def generator_host(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """A shortfall, or a latency too long, while a host of the generator was the limit.

    Such a host dropped packets, swapped, or had no CPU left. Hosts that share their machine with
    brokers belong to the brokers, too, so the attribution judges them. Only packets that their own
    interfaces drop count here, except on a link with a rate, which drops traffic beyond it.

    Returns:
        One reason for each host and problem.
    """
    limits = thresholds.indicators
    accounts = (evidence, *evidence.by_part.values())
    if not any(rule.reasons(each, limits) for rule in CLIENT_INDICATORS for each in accounts):
        return []
    return [
        _generator(f"the generator was the limit: host {host.host} {text}; {remedy}", value, most)
        for host in evidence.hosts
        if host.generates and not host.brokers
        for text, remedy, value, most in _host_problems(host)
    ]


def _host_problems(host: HostWindow) -> Iterator[tuple[str, str, float, float]]:
    """The problems that keep a host from its load: in words, the remedy, the value, the limit."""
    for each in host.interfaces:
        if host.shares_machine and each.speed_bytes_per_s is not None:
            continue
        if (dropped := each.dropped_share or 0.0) >= DROPPED_SHARE_HIGH:
            text = f"dropped {dropped:.2%} of the packets of its interface {each.device}"
            yield text, "check its network, or use more hosts", dropped, DROPPED_SHARE_HIGH
    if host.shares_machine:
        return
    if (swapped := host.swapped_pages_per_s or 0.0) >= SWAPPED_PAGES_HIGH:
        text = f"moved {swapped:.0f} pages/s to and from swap"
        yield text, "give executors less memory, or their hosts more", swapped, SWAPPED_PAGES_HIGH
    if (busy := host.cpu_busy or 0.0) >= CPU_SATURATED and host.waiting_threads:
        text = f"was {busy:.0%} busy, with {host.waiting_threads:.1f} threads waiting for a core"
        yield text, "use more executors on more hosts", busy, CPU_SATURATED


def unreachable(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """A shortfall of the records for some brokers, which never received them.

    The executors get no answer from these brokers, although their handlers are idle and they hold
    fewer requests than connections wait. A shortfall at all brokers is an overload, and so is that
    of a broker that answers slowly, is busy, or waits for its followers.

    Returns:
        One reason for each unreachable broker, where the others took their share.
    """
    client, limits = evidence.client, thresholds.indicators
    by_broker = client.counts.by_broker
    if not ACHIEVED.falls_short(evidence, limits):
        return []
    lost = [
        (window, by_broker[window.broker_id])
        for window in evidence.brokers
        if window.broker_id in by_broker
        and _is_unreachable(window, by_broker[window.broker_id], limits.request_handler_idle_min)
    ]
    records = sum(account.missing_records for _, account in lost)
    reached = (client.counts.acked_records + records) / client.counts.offered_records
    if not lost or len(lost) == len(by_broker) or reached < limits.achieved_min:
        return []
    return [
        Reason(
            "unreachable",
            f"executors do not reach broker {window.broker_id}: it answered nothing for "
            f"{account.silent_s:.1f} s while {account.waiting_connections} connections waited, "
            f"its request handlers idle {window.handler_idle:.2f}, and "
            f"{account.missing_records} records that were due for it by the window's end are "
            "missing; check the network between the executors and this broker",
            account.silent_s,
            SILENT_S,
            window.broker_id,
        )
        for window, account in lost
    ]


def _is_unreachable(window: BrokerWindow, account: BrokerAccount, idle_min: float) -> bool:
    has_room = window.handler_idle is not None and window.handler_idle >= idle_min
    # The silence has to contain a sample, which shows whether requests waited at the broker.
    least_s = max(SILENT_S, (window.samples_missed + 1) * window.interval_s)
    holds = window.produce_delayed_max or 0.0
    return has_room and account.silent_s >= least_s and account.waiting_connections > holds


def metrics_incomplete(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Brokers with too many missed samples, without a sample near an edge of the window, or without
    a metric that the goal judges by.

    Without metrics, samples are answers of the Admin API, which overloaded brokers delay like any
    other. Missing ones then leave a trial valid that the clients' figures show to be an overload.

    Returns:
        One reason for each broker.
    """
    most = thresholds.validity.missed_samples_max
    if not evidence.brokers:
        return [Reason("metrics_incomplete", "no broker was sampled", 0.0, 1.0)]
    limits = thresholds.indicators
    rules = active(limits, evidence.cluster)
    of_clients = [each for each in rules if each in (*CLIENT_INDICATORS, CONSUMER_LAG)]
    if evidence.cluster.is_blind and any(each.reasons(evidence, limits) for each in of_clients):
        return []
    gaps = ((window, _missing(window, most, rules)) for window in evidence.brokers)
    return [
        Reason(
            "metrics_incomplete",
            f"broker {window.broker_id}: {text}",
            window.missed_share,
            most,
            window.broker_id,
        )
        for window, text in gaps
        if text is not None
    ]


def _missing(window: BrokerWindow, most: float, rules: Sequence[Indicator]) -> str | None:
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
    if window.ticked_s == 0.0 and not window.contradiction:
        return (
            "no whole tick of its one-minute rates, which move every 5 s, lies in the window; "
            "measure for 20 s or longer, or have the exporter show the Count of "
            "RequestHandlerAvgIdlePercent"
        )
    lacking = [] if window.contradiction else [each.missing(window) for each in rules]
    if any(lacking):
        return (
            f"{', '.join(filter(None, lacking))} was not among the metrics, and the goal "
            "judges by it; add it to the exporter's own rules and to the file of "
            "metrics.prometheus.rules, if an exporter is the source"
        )
    return None


def metrics_contradictory(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Nodes whose samples cannot all be from one process that kept running.

    Returns:
        One reason for each node.
    """
    return [
        Reason("metrics_contradictory", window.contradiction, 1.0, 0.0, window.broker_id)
        for window in (*evidence.brokers, *evidence.controllers)
        if window.contradiction is not None
    ]


def errors_unexplained(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Errors that a load cannot cause: leaders that moved, lost connections, refusals.

    Errors after which records were sent again and acknowledged count as well, because they change
    the load.

    Returns:
        One reason for each error.
    """
    counts = evidence.client.counts
    ends = ((counts.errors, "failed with"), (counts.retry_errors, "were sent again because of"))
    others = {*counts.errors, *counts.retry_errors} - {FOLLOWING_ERROR}
    expected = OVERLOAD_ERRORS | {FOLLOWING_ERROR} if others else OVERLOAD_ERRORS
    found = []
    for errors, what in ends:
        for error, records in sorted(errors.items()):
            if records > 0 and error not in expected:
                name, words = "unexpected_errors", ", which is not an overload error"
                if error in MOVED_ERRORS:
                    name, words = "leaders_moved", ": a leader moved during the trial"
                text = f"{records} records {what} {error}{words}"
                found.append(Reason(name, text, float(records), 0.0))
    return found


def cluster_changed(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """A broker that was fenced, or partitions of the trial's topics that changed their leader.

    The partitions of others may move: a cluster that others use creates topics all the time.

    Returns:
        One reason for each node that reports it.
    """
    offline = evidence.cluster.offline
    found = [
        Reason(
            "broker_fenced",
            f"node {window.broker_id} reports up to {window.fenced_brokers_max:.0f} fenced "
            f"brokers in the window",
            window.fenced_brokers_max,
            float(offline),
            window.broker_id,
        )
        for window in (*evidence.controllers, *evidence.brokers)
        if window.fenced_brokers_max is not None and window.fenced_brokers_max > offline
    ]
    for broker_id, count in sorted((evidence.moved_leaders or {}).items()):
        text = (
            f"broker {broker_id} led {count} partitions of the trial's topics before the load "
            f"that it no longer leads: leaders moved during the trial"
        )
        found.append(Reason("leaders_moved", text, float(count), 0.0, broker_id))
    return found


def controller_changed(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Elections of a controller in the window, during which leaders and ISRs cannot change.

    Returns:
        One reason for all nodes, as all of them report the same elections.
    """
    nodes = (*evidence.brokers, *evidence.controllers)
    found = [(n.controller_elections, n.broker_id) for n in nodes if n.controller_elections]
    if not found:
        return []
    raised, node = max(found)
    text = (
        f"the cluster elected a controller during the trial: the epoch that node {node} "
        f"reports rose by {raised:.0f}; check whether a controller was restarted or lost"
    )
    return [Reason("controller_changed", text, raised, 0.0)]


def stood_still(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Brokers whose process stood still for a while, other than for a garbage collection.

    Returns:
        One reason for each broker.
    """
    most_s = thresholds.validity.standstill_s_max
    return [
        Reason(
            "stood_still",
            f"broker {window.broker_id} stood still for {window.standstill_s:.1f} s or more: "
            "it answered no request and did not collect garbage; check whether its process or "
            "its machine was paused",
            window.standstill_s,
            most_s,
            window.broker_id,
        )
        for window in evidence.brokers
        if window.standstill_s is not None and window.standstill_s > most_s
    ]


def throttled(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Quotas that throttled the load, so that the limit would be that of the quota.

    Returns:
        See `throttle_reasons`; none where throttling is an overload.
    """
    if thresholds.indicators.throttled_is_overload:
        return []
    return throttle_reasons(evidence, thresholds.validity.throttle_ms_max)


def consumers_limited(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Lag that the consumers' own tasks caused, as they had no time left.

    Returns:
        One reason for the busiest task with consumers.
    """
    busy, limit = evidence.client.consumer_loop_busy, thresholds.validity.loop_busy_max
    if busy < limit or not CONSUMER_LAG.reasons(evidence, thresholds.indicators):
        return []
    text = (
        f"the consumers were the limit: a task with consumers was busy {busy:.0%} of the "
        "window while lag grew; use more executors or cores"
    )
    return [_generator(text, busy, limit)]


def accounting_mismatch(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Acknowledged records that do not match the growth of the partitions' end offsets, if known.

    A record that failed may have been written nevertheless, and a record that was sent again
    because its answer was lost may be written twice. So the growth of a partition is at least its
    acknowledged records, and at most these plus the failed and the repeated ones. The end of a
    transaction is a record of the log, too.

    Returns:
        One reason for records that are missing, or for records of unknown origin.
    """
    growth, counts = evidence.growth_by_partition, evidence.client.counts
    if growth is None:
        return []
    lost = evidence.lost_by_partition if evidence.cluster.killed is None else {}
    if lost and followers_behind(evidence, thresholds.indicators) is not None:
        return []  # the high watermark waits for followers that fell behind
    if lost:
        text = (
            f"{sum(lost.values())} acknowledged records"
            f"{' and ends of transactions' if counts.control_records else ''} are missing from "
            "the end offsets, "
            f"{_most(lost)}{_or_waiting(evidence)}"
        )
        return [Reason("accounting_mismatch", text, float(sum(lost.values())), 0.0)]
    parts = (
        counts.acked_by_partition,
        counts.control_records_by_partition,
        counts.failed_by_partition,
        counts.duplicates_by_partition,
    )
    explained = {p: sum(part.get(p, 0) for part in parts) for p in growth}
    unknown = {p: grown - explained[p] for p, grown in growth.items() if grown > explained[p]}
    if not unknown:
        return []
    excess = sum(unknown.values())
    text = (
        f"the end offsets grew by {sum(growth.values())} records, {excess} more than the "
        f"{counts.acked_total} acknowledged{_and_control(counts)} and "
        f"{counts.failed_total} failed and at most {counts.duplicates_at_most} sent twice, "
        f"{_most(unknown)}: another producer writes to the topic, or sends were under-counted"
    )
    return [Reason("accounting_mismatch", text, float(excess), 0.0)]


def _or_waiting(evidence: Evidence) -> str:
    """The other cause of end offsets that are too low, where partitions have followers."""
    if not evidence.cluster.followers:
        return ""
    return (
        "; the end offset of clients is the high watermark, so followers that need longer to catch "
        "up look alike: look at their lag, and repeat the trial once they have caught up"
    )


def _and_control(counts: Counts) -> str:
    """A phrase such as ` and 20 ends of transactions`; empty without any."""
    return f" and {counts.control_records} ends of transactions" if counts.control_records else ""


def _most(by_partition: Mapping[int, int]) -> str:
    records, partition = max((count, -partition) for partition, count in by_partition.items())
    return f"{records} of them on partition {-partition}"


def consumption_mismatch(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Consumer groups whose reads do not match the end offsets after the trial, if known.

    A group reads each partition in one range without a gap, up to the last acknowledged record.
    The range does not go beyond the end offset, and its batches hold as many records as offsets.
    It may end earlier only when the lag shows that the group could not keep up.

    Returns:
        One reason for each group.
    """
    behind = followers_behind(evidence, thresholds.indicators)
    if evidence.end_offsets is None or behind is not None:  # groups read to the high watermark
        return []
    ends = {partition: after for partition, (_, after) in evidence.end_offsets.items()}
    found = [
        _find_difference(group, ends) or _find_missing(group, _taken(evidence, group))
        for group in evidence.client.groups
    ]
    return [Reason("consumption_mismatch", each[0], float(each[1]), 0.0) for each in found if each]


def _taken(evidence: Evidence, group: GroupWindow) -> Counter[int]:
    """Partition that a group reads → offsets that the acknowledged records took."""
    counts = evidence.client.account_of_group(group.counts.group).counts
    return Counter(counts.acked_by_partition) + Counter(counts.control_records_by_partition)


def _find_missing(group: GroupWindow, taken: Mapping[int, int]) -> tuple[str, int] | None:
    read: Counter[int] = Counter()
    for found in group.read_by_partition:
        read[found.partition] += found.length
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


def _find_difference(group: GroupWindow, ends: Mapping[int, int]) -> tuple[str, int] | None:
    name = f"consumer group {group.counts.group}"
    earlier: dict[int, ReadRange] = {}
    for found in group.read_by_partition:
        before = earlier.get(found.partition)
        if before is not None:
            missing = found.from_offset - before.to_offset
            return (
                f"{name} missed {missing} records of partition {found.partition} from offset "
                f"{before.to_offset} on"
            ), missing
        earlier[found.partition] = found
        beyond = found.to_offset - ends.get(found.partition, 0)
        if beyond > 0:
            return (
                f"{name} read {beyond} records beyond the end offset of partition {found.partition}"
            ), beyond
        if found.records != found.length:
            return (
                f"{name} read {found.records} records in {found.length} offsets of partition "
                f"{found.partition} from offset {found.from_offset} on"
            ), abs(found.length - found.records)
    return None


def others_loaded(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Other clients that loaded the brokers more than before the trial, beyond what the scatter of
    their load explains, so that the limit would include their load.

    Returns:
        One reason for the load of others, where its rise is too high a share of all.
    """
    others, most = evidence.others, thresholds.validity.others_share_max
    if others is None or (rise := others.rise).share <= most:
        return []
    text = (
        f"other clients {rise.text}; the rise is {rise.share:.0%} of the brokers' traffic, "
        f"above {most:.0%}; find the other clients of this cluster"
    )
    return [Reason(OTHERS_LOADED, text, rise.share, most)]


def others_less(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Other clients that loaded the brokers less than before the trial, beyond what the scatter of
    their load explains: the load might not be sustained beside their usual one. An overload that
    left others less room is one.

    Returns:
        One reason for the load of others, where its fall is too high a share of all.
    """
    others, most = evidence.others, thresholds.validity.others_share_max
    if others is None or (fall := others.fall).share >= -most:
        return []
    text = (
        f"other clients {fall.text}; the fall is {-fall.share:.0%} of the brokers' traffic, "
        f"above {most:.0%}, so the load is not measured beside their usual one"
    )
    return [Reason(OTHERS_LESS, text, -fall.share, most)]


def window_too_short(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """A window too short for a lagging follower to leave the ISR.

    Returns:
        One reason for the window's length.
    """
    duration_s, least_s = evidence.client.duration_s, evidence.cluster.isr_window_s or 0.0
    if duration_s >= least_s:
        return []
    text = (
        f"the window of {duration_s:.1f} s is shorter than the {least_s:.1f} s after which "
        f"an ISR change shows; measure longer or lower replica.lag.time.max.ms"
    )
    return [Reason("window_too_short", text, duration_s, least_s)]


RULES: Sequence[ValidityRule] = (
    ValidityRule(lambda evidence, _: list(evidence.refusals)),
    ValidityRule(tasks_failed),
    ValidityRule(clocks_apart),
    ValidityRule(clocks_changed),
    ValidityRule(generator_limited, judges_parts=True),
    ValidityRule(generator_host),
    ValidityRule(lateness_reasons, judges_parts=True),
    ValidityRule(unreachable),
    ValidityRule(metrics_incomplete),
    ValidityRule(metrics_contradictory),
    ValidityRule(reasons_of_doubt),
    ValidityRule(errors_unexplained, is_met_by_a_kill=True),
    ValidityRule(cluster_changed, is_met_by_a_kill=True),
    ValidityRule(controller_changed, is_met_by_a_kill=True),
    ValidityRule(stood_still),
    ValidityRule(throttled),
    ValidityRule(others_loaded),
    ValidityRule(consumers_limited),
    ValidityRule(accounting_mismatch),
    ValidityRule(consumption_mismatch),
)
"""All rules in the order of their reasons."""

SUSTAINED_RULES: Sequence[ValidityRule] = (
    ValidityRule(others_less),
    ValidityRule(window_too_short),
)
"""The rules for loads that are not overloaded: an overload that showed itself sooner is one."""


def invalid_reasons(
    evidence: Evidence, thresholds: Thresholds, rules: Sequence[ValidityRule] = RULES
) -> list[Reason]:
    """The reasons why a trial is not an answer by these rules; empty where it is one.

    A broker that was killed on purpose is left out, and so are the rules that its loss triggers on
    the other brokers.
    """
    killed = evidence.cluster.killed
    if killed is not None:
        others = tuple(each for each in evidence.brokers if each.broker_id != killed)
        evidence = replace(evidence, brokers=others)
        rules = [rule for rule in rules if not rule.is_met_by_a_kill]
    return [
        reason
        for rule in rules
        for reason in reasons_of_all(rule.reasons, evidence, thresholds, rule.judges_parts)
    ]
