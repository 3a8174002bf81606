"""The rules of validity. Each rule is a function that returns the reasons why a trial is INVALID.

An INVALID trial does not show whether the brokers sustain the load. A trial is INVALID if the
generator missed its rate, if metrics are missing or contradict each other, or if the cluster
changed under the load. An INVALID trial does not count as an overload. A new rule needs a function
in this module and a line in `RULES`.
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
"""Largest accepted time between an edge of the window and the nearest sample [sampling
intervals]."""

SILENT_S = 1.0
"""A broker with idle request handlers counts as unreachable after this time without an answer [s].
The time without an answer must also be longer than the time between two samples of the broker."""

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
"""Errors that an overload causes. These errors do not make a trial INVALID. The records that failed
with these errors are missing from the acknowledged records, so the indicator `achieved` judges
them."""

FOLLOWING_ERROR = "OutOfOrderSequenceNumberError"
"""Error of the batches that an idempotent producer had in flight behind a refused batch. If only
this error occurs, the broker lost the producer's state."""

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
"""Errors that show a move of a partition's leader during the trial."""


Judge = Callable[[Evidence, Thresholds], list[Reason]]
"""Returns the reasons why a trial is INVALID. The list is empty for a valid trial."""


@dataclass(frozen=True)
class ValidityRule:
    """One rule of validity.

    Attributes:
        reasons: the function that returns the reasons why a trial is INVALID.
        is_met_by_a_kill: True if the loss of a broker makes the rule return reasons. If a trial
            kills a broker on purpose, rules with `is_met_by_a_kill` are not applied.
        judges_parts: True if the rule also judges each part of a mix.
    """

    reasons: Judge
    is_met_by_a_kill: bool = False
    judges_parts: bool = False


def _generator(text: str, value: float, threshold: float) -> Reason:
    return Reason(GENERATOR_LIMITED, text, value, threshold)


def tasks_failed(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Tasks that failed, or a window in which no record was due to be sent or read.

    Returns:
        A list with one reason for each failed task. If no task failed, but no record was due in the
        window, a list with one reason for the whole window.
    """
    client = evidence.client
    found = [Reason("task_failed", text, 1.0, 0.0) for text in client.task_errors]
    was_read = any(group.records_total for group in client.groups)
    was_sent = evidence.closed_loop and client.counts.sent_records > 0
    if not found and client.counts.offered_records == 0 and not was_read and not was_sent:
        text = (
            "no record was due to be sent or read in the window, so the trial does not load the "
            "brokers; check the profile of the rate, because the rate may be 0 in this window"
        )
        found.append(_generator(text, 0.0, 1.0))
    return found


def clocks_apart(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Hosts whose clock differs too much from the driver's clock. A host with a wrong clock loads
    the brokers at the wrong times.

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
    """Hosts whose clock was set during the load, or ran faster or slower than the driver's clock.

    A host paces its load by its own clock, so a faster or slower clock changes the rate of the
    load.

    Returns:
        A list with one reason for each host whose clock was set or ran at another speed. A host is
        left out if its clock differs so much that `clocks_apart` returns a reason for this host.
    """
    client = evidence.client
    most_s = CHANGE_MAX * client.duration_s
    apart = {each.host for each in client.clocks if each.clock.least_s > OFFSET_MAX_S}
    return [
        Reason(
            "clock_changed",
            f"the clock of executor {each.host} {each.text} within the load; this is more than "
            f"{CHANGE_MAX:.0%} of the window of {client.duration_s:.1f} s; the clock was set or "
            "runs at another speed, and the load's rate changed with the clock; wait until the "
            "clocks of all hosts are synchronized",
            each.least_s,
            most_s,
        )
        for each in client.clock_changes
        if each.host not in apart and each.least_s > most_s
    ]


def generator_limited(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """A shortfall that the generator caused, according to the generator's own counts.

    Returns:
        One reason if the generator sent too many records late, and one more if a task had no spare
        time.
    """
    client, limits = evidence.client, thresholds.validity
    if not ACHIEVED.falls_short(evidence, thresholds.indicators):
        return []
    missing, own = client.shortfall_records, client.held_up_records
    found = []
    if own / missing >= limits.generator_share_max:
        text = (
            f"the generator was the limit: {own} of {missing} missing records were due and "
            f"unsent although their connections had room (records were sent up to "
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
    """Hosts of the generator that limited the load. This rule judges a trial only if records are
    missing or latencies are too long.

    A host of the generator limits the load if it drops packets, swaps memory, or has no CPU left.
    If the host shares a machine with brokers, this rule judges only dropped packets. The
    attribution judges the CPU and the memory of a machine that brokers share with the generator. On
    a host that shares a machine with brokers, this rule ignores interfaces with a known speed:
    these interfaces belong to a simulated link, which drops packets beyond its speed.

    Returns:
        A list with one reason for each problem of each host.
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
    """The problems of a host of the generator, each as a tuple (text, remedy, value, limit)."""
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
        yield (
            text,
            "give the executors less memory, or add memory to their hosts",
            swapped,
            SWAPPED_PAGES_HIGH,
        )
    if (busy := host.cpu_busy or 0.0) >= CPU_SATURATED and host.waiting_threads:
        text = f"was {busy:.0%} busy, with {host.waiting_threads:.1f} threads waiting for a core"
        yield text, "use more executors on more hosts", busy, CPU_SATURATED


def unreachable(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Brokers that gave no answer to the executors, although they were not overloaded.

    The request handlers of an unreachable broker are idle, and the number of connections that wait
    for an answer is higher than the number of requests that wait at the broker. If records are
    missing at all brokers, the brokers count as overloaded. A broker also counts as overloaded if
    it answers slowly, is busy, or waits for its followers.

    Returns:
        One reason for each unreachable broker, if the other brokers acknowledged their share.
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
            f"its request handlers were idle for {window.handler_idle:.2f} of the time, and "
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
    # The silence must contain a sample, because only a sample shows whether requests waited there.
    least_s = max(SILENT_S, (window.samples_missed + 1) * window.interval_s)
    holds = window.produce_delayed_max or 0.0
    return has_room and account.silent_s >= least_s and account.waiting_connections > holds


def metrics_incomplete(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Brokers whose metrics are not sufficient for a verdict.

    The metrics are not sufficient if too many samples are missing, if no sample lies near an edge
    of the window, or if a metric that the goal requires is missing. On a cluster without metrics,
    the samples are answers of the Admin API, and overloaded brokers delay these answers. So on a
    cluster without metrics, missing samples are accepted if the clients' figures show an overload.

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
            f"no sample lies within {gap_s:.1f} s of an edge of the window, although the broker "
            f"is sampled every {interval_s:g} s"
        )
    if window.ticked_s == 0.0 and not window.contradiction:
        return (
            "its one-minute rates, which Kafka updates every 5 s, were not updated twice in the "
            "window; measure for 20 s or longer, or configure the exporter to show "
            "the Count of RequestHandlerAvgIdlePercent"
        )
    lacking = [] if window.contradiction else [each.missing(window) for each in rules]
    if any(lacking):
        return (
            f"the metrics do not contain {', '.join(filter(None, lacking))}, which the goal "
            "requires; if an exporter is the source, add the missing metric to the exporter's own "
            "rules and to the file of metrics.prometheus.rules"
        )
    return None


def metrics_contradictory(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Nodes whose samples come from more than one process, or from a process that restarted.

    Returns:
        A list with one reason for each node whose samples contradict each other.
    """
    return [
        Reason("metrics_contradictory", window.contradiction, 1.0, 0.0, window.broker_id)
        for window in (*evidence.brokers, *evidence.controllers)
        if window.contradiction is not None
    ]


def errors_unexplained(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Errors that a load cannot cause, such as moved leaders, lost connections and refusals.

    An error is also a reason if its records were sent again and acknowledged, because the repeated
    records change the load.

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
    """Brokers that are fenced, and partitions whose leader moved. Only partitions of the trial's
    topics count.

    Leaders of other topics may move, because other users of the cluster may create topics at any
    time.

    Returns:
        One reason for each node that reports fenced brokers, and one reason for each broker that no
        longer leads some partitions.
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
            f"and does not lead them after it: leaders moved during the trial"
        )
        found.append(Reason("leaders_moved", text, float(count), 0.0, broker_id))
    return found


def controller_changed(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """Elections of a controller in the window. Leaders and ISRs cannot change during an election.

    Returns:
        A list with at most one reason, because all nodes of a cluster report the same elections.
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
    """Brokers whose process paused although no garbage collection ran.

    Returns:
        A list with one reason for each broker that paused for too long.
    """
    most_s = thresholds.validity.standstill_s_max
    return [
        Reason(
            "stood_still",
            f"broker {window.broker_id} paused for {window.standstill_s:.1f} s or more: "
            "it answered no request and did not collect garbage; check whether its process or "
            "its machine was suspended",
            window.standstill_s,
            most_s,
            window.broker_id,
        )
        for window in evidence.brokers
        if window.standstill_s is not None and window.standstill_s > most_s
    ]


def throttled(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Quotas that throttled the load, so that the trial measured the quotas and not the brokers.

    Returns:
        The result of `throttle_reasons`, or an empty list if the goal counts throttling as an
        overload.
    """
    if thresholds.indicators.throttled_is_overload:
        return []
    return throttle_reasons(evidence, thresholds.validity.throttle_ms_max)


def consumers_limited(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Consumer groups that fell behind because the tasks with the consumers had no spare time.

    Returns:
        A list with at most one reason, about the busiest task with consumers.
    """
    busy, limit = evidence.client.consumer_loop_busy, thresholds.validity.loop_busy_max
    if busy < limit or not CONSUMER_LAG.reasons(evidence, thresholds.indicators):
        return []
    text = (
        f"the consumers were the limit: a task with consumers was busy {busy:.0%} of the window "
        "while the lag grew; use more executors or cores"
    )
    return [_generator(text, busy, limit)]


def accounting_mismatch(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Acknowledged records that do not match the growth of the partitions' end offsets.

    The log may contain a failed record. If an answer was lost, the log may contain the record
    twice. So a partition grows by at least its acknowledged records. A partition grows by at most
    the sum of its acknowledged, failed and repeated records. Each end of a transaction adds one
    record to the log.

    Returns:
        A list with at most one reason, about missing records or about records of unknown origin.
        The list is empty if the end offsets are not known.
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
            "the logs, because the end offsets grew too little, "
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
        f"the topic has {excess} records of unknown origin, {_most(unknown)}: its end offsets grew "
        f"by {sum(growth.values())}, after {counts.acked_total} acknowledged{_and_control(counts)}"
        f", {counts.failed_total} failed and at most {counts.duplicates_at_most} repeated records; "
        "another producer writes to the topic, or sends were under-counted"
    )
    return [Reason("accounting_mismatch", text, float(excess), 0.0)]


def _or_waiting(evidence: Evidence) -> str:
    """A clause with another possible cause of low end offsets, or an empty text if the partitions
    have no followers.
    """
    if not evidence.cluster.followers:
        return ""
    return (
        "; clients see only offsets below the high watermark, so slow followers also lower the "
        "end offsets: check the followers' lag, and repeat the trial after the followers have "
        "caught up"
    )


def _and_control(counts: Counts) -> str:
    """A phrase such as ` and 20 ends of transactions`, or an empty text if the load has no
    transactions.
    """
    return f" and {counts.control_records} ends of transactions" if counts.control_records else ""


def _most(by_partition: Mapping[int, int]) -> str:
    records, partition = max((count, -partition) for partition, count in by_partition.items())
    return f"{records} of them on partition {-partition}"


def consumption_mismatch(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """Consumer groups whose reads do not match the end offsets after the trial.

    In each partition, a group must read one range of offsets without a gap, up to the last
    acknowledged record. This range must not go beyond the end offset. The number of records that
    the group read must equal the number of offsets in the range. If the range ends before the last
    acknowledged record, the group's lag must be at least the number of unread records.

    Returns:
        A list with one reason for each group whose reads do not match the end offsets. The list is
        empty if the end offsets are not known.
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
    """Partition that a group reads → number of offsets that the partition's acknowledged records
    occupy.
    """
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
        f"records of {len(missing)} partitions, the first of them partition {min(missing)}, "
        f"although its lag was {lag} records at the window's end"
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
    """A rise of the other clients' load during the trial, if the rise exceeds the usual variation
    of their load.

    If the other clients' load rises, the brokers reach their limit at a lower load of this run.

    Returns:
        A list with one reason if the rise of the other clients' load, divided by the brokers'
        traffic, exceeds `others_share_max`.
    """
    others, most = evidence.others, thresholds.validity.others_share_max
    if others is None or (rise := others.rise).share <= most:
        return []
    text = (
        f"other clients {rise.text}; the rise is {rise.share:.0%} of the brokers' traffic, "
        f"above {most:.0%}; find and stop the clients that raised their load"
    )
    return [Reason(OTHERS_LOADED, text, rise.share, most)]


def others_less(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """A fall of the other clients' load during the trial, if the fall exceeds the usual variation
    of their load.

    If the other clients' load fell, a trial does not show that the brokers sustain the load in
    addition to the other clients' usual load. The rule does not apply to an overloaded trial,
    because overloaded brokers leave other clients less room.

    Returns:
        A list with one reason if the fall of the other clients' load, divided by the brokers'
        traffic, exceeds `others_share_max`.
    """
    others, most = evidence.others, thresholds.validity.others_share_max
    if others is None or (fall := others.fall).share >= -most:
        return []
    text = (
        f"other clients {fall.text}; the fall is {-fall.share:.0%} of the brokers' traffic, "
        f"above {most:.0%}, so their load was below its usual level"
    )
    return [Reason(OTHERS_LESS, text, -fall.share, most)]


def window_too_short(evidence: Evidence, _: Thresholds) -> list[Reason]:
    """A window that is too short, because a lagging follower would leave the ISR only after the end
    of the window.

    Returns:
        One reason if the window is too short.
    """
    duration_s, least_s = evidence.client.duration_s, evidence.cluster.isr_window_s or 0.0
    if duration_s >= least_s:
        return []
    text = (
        f"the window of {duration_s:.1f} s is shorter than the {least_s:.1f} s after which a "
        "follower that falls behind leaves the ISR; measure longer or lower "
        "replica.lag.time.max.ms"
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
"""All rules that apply to every trial. The reasons have the order of these rules."""

SUSTAINED_RULES: Sequence[ValidityRule] = (
    ValidityRule(others_less),
    ValidityRule(window_too_short),
)
"""The rules that apply only to trials without an overload. Even a short window can show an
overload."""


def invalid_reasons(
    evidence: Evidence, thresholds: Thresholds, rules: Sequence[ValidityRule] = RULES
) -> list[Reason]:
    """The reasons why a trial is INVALID according to the given rules. The list is empty for a
    valid trial.

    If a broker was killed on purpose, the evidence of this broker is left out. Rules that would
    report the loss of this broker (`is_met_by_a_kill`) are left out, too.
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
