"""Rules that say INVALID: the trial does not answer whether the brokers took the load.

A generator that missed its rate, metrics that are missing or contradict each other, a
cluster that changed under the load: none of it may be read as an overload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from metrics.judging.group_rules import consumers_limited
from metrics.judging.indicators import falls_short, shortfall_records
from metrics.judging.thresholds import Thresholds
from metrics.trial.evidence import ClientWindow
from metrics.trial.judgement import Reason
from metrics.windows.broker import BrokerWindow
from metrics.windows.resource import Resource

EDGE_GAP_INTERVALS = 2.0
"""How far the samples may stay away from the window's edges [sampling intervals]."""

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


def _generator(text: str, value: float, threshold: float) -> Reason:
    return Reason("generator_limited", text, value, threshold)


def tasks_failed(client: ClientWindow) -> list[Reason]:
    """Tasks that could not take part, or a window in which nothing was offered."""
    reasons = [Reason("task_failed", text, 1.0, 0.0) for text in client.task_errors]
    if not reasons and client.offered_records == 0:
        reasons.append(_generator("no record was offered in the window", 0.0, 1.0))
    return reasons


def generator_limited(client: ClientWindow, thresholds: Thresholds) -> list[Reason]:
    """A shortfall that the generator caused itself, as far as it can tell."""
    if not falls_short(client, thresholds):
        return []
    missing = shortfall_records(client)
    own_share = client.unsent_own_records / missing
    reasons = []
    if own_share >= thresholds.generator_share_max:
        reasons.append(
            _generator(
                f"the generator was the limit: {client.unsent_own_records} of {missing} missing "
                f"records were due and unsent although their connections had room (sends left "
                f"up to {client.lateness_p99_ms:.0f} ms late at p99); use more executors or cores",
                own_share,
                thresholds.generator_share_max,
            )
        )
    if client.loop_busy >= thresholds.loop_busy_max:
        reasons.append(
            _generator(
                f"the generator was the limit: a task was busy {client.loop_busy:.0%} of the "
                f"window while {missing} records were missing; use more executors or cores",
                client.loop_busy,
                thresholds.loop_busy_max,
            )
        )
    return reasons


def metrics_incomplete(windows: Iterable[BrokerWindow], thresholds: Thresholds) -> list[Reason]:
    """Brokers with too many missed samples, none near an edge, or no handler metric."""
    reasons = []
    for window in windows:
        text = _what_is_missing(window, thresholds)
        if text is not None:
            reasons.append(
                Reason(
                    "metrics_incomplete",
                    f"broker {window.broker_id}: {text}",
                    window.missed_share,
                    thresholds.missed_samples_max,
                    window.broker_id,
                )
            )
    return reasons


def _what_is_missing(window: BrokerWindow, thresholds: Thresholds) -> str | None:
    if window.missed_share > thresholds.missed_samples_max or window.start_s is None:
        return (
            f"{window.samples_missed} of {window.samples_expected} samples were missed, more "
            f"than {thresholds.missed_samples_max:.0%}"
        )
    if window.edge_gap_s is not None and window.edge_gap_s > EDGE_GAP_INTERVALS * window.interval_s:
        return (
            f"no sample within {window.edge_gap_s:.1f} s of an edge of the window, sampled every "
            f"{window.interval_s:g} s"
        )
    if thresholds.client_only:
        return None
    if window.contradiction is None and window.handler_idle is None:
        return (
            "the request handlers' idle time was not among the metrics (handler_idle_ns); of an "
            "exporter, its rules must export it and the file metrics.prometheus.rules name it"
        )
    return None


def metrics_contradictory(windows: Iterable[BrokerWindow]) -> list[Reason]:
    """Brokers whose samples cannot all be true of one process that kept running."""
    return [
        Reason("metrics_contradictory", window.contradiction, 1.0, 0.0, window.broker_id)
        for window in windows
        if window.contradiction is not None
    ]


def errors_unexplained(client: ClientWindow) -> list[Reason]:
    """Errors that no load brings about: leaders that moved, lost connections, refusals.

    Also those after which records were sent again and arrived: the load was then not what
    was asked for.
    """
    ends = ((client.errors, "failed with"), (client.retry_errors, "were sent again because of"))
    reasons = []
    for errors, what in ends:
        for error, records in sorted(errors.items()):
            if records <= 0 or error in OVERLOAD_ERRORS:
                continue
            if error in MOVED_ERRORS:
                text = f"{records} records {what} {error}: a leader moved during the trial"
                reasons.append(Reason("leaders_moved", text, float(records), 0.0))
            else:
                text = f"{records} records {what} {error}, which is no sign of load"
                reasons.append(Reason("unexpected_errors", text, float(records), 0.0))
    return reasons


def accounting_mismatch(
    client: ClientWindow, growth_by_partition: Mapping[int, int] | None
) -> list[Reason]:
    """Acknowledged records against the growth of the partitions' end offsets, if known.

    A record that failed may have been written all the same, and one that was sent again
    because its answer was lost may be there twice. So a partition's growth may exceed its
    acknowledged records by those, and no more; it may not fall below them.
    """
    if growth_by_partition is None:
        return []
    lost = {
        partition: acked - growth_by_partition.get(partition, 0)
        for partition, acked in client.acked_by_partition.items()
        if acked > growth_by_partition.get(partition, 0)
    }
    if lost:
        text = (
            f"{sum(lost.values())} acknowledged records are missing from the end offsets, "
            f"{_most(lost)}"
        )
        return [Reason("accounting_mismatch", text, float(sum(lost.values())), 0.0)]
    parts = (client.acked_by_partition, client.failed_by_partition, client.duplicates_by_partition)
    unknown = {
        partition: grown - sum(part.get(partition, 0) for part in parts)
        for partition, grown in growth_by_partition.items()
        if grown > sum(part.get(partition, 0) for part in parts)
    }
    excess = sum(unknown.values())
    if excess:
        text = (
            f"the end offsets grew by {sum(growth_by_partition.values())} records, {excess} more "
            f"than the {client.acked_total} acknowledged and {client.failed_total} failed and at "
            f"most {client.duplicates_at_most} sent twice, {_most(unknown)}: somebody else writes "
            f"to the topic, or a send was counted too little"
        )
        return [Reason("accounting_mismatch", text, float(excess), 0.0)]
    return []


def _most(by_partition: Mapping[int, int]) -> str:
    records, partition = max((count, -partition) for partition, count in by_partition.items())
    return f"{records} of them on partition {-partition}"


def cluster_changed(
    brokers: Sequence[BrokerWindow], controllers: Sequence[BrokerWindow]
) -> list[Reason]:
    """A broker that was fenced, or partitions that changed their leader in the window."""
    reasons = [
        Reason(
            "broker_fenced",
            f"node {window.broker_id} saw up to {window.fenced_brokers_max:.0f} fenced "
            f"brokers in the window",
            window.fenced_brokers_max,
            0.0,
            window.broker_id,
        )
        for window in (*controllers, *brokers)
        if window.fenced_brokers_max is not None and window.fenced_brokers_max > 0
    ]
    for window in brokers:
        least, most = window.leader_partitions_min, window.leader_partitions_max
        if least is not None and most is not None and least != most:
            text = (
                f"broker {window.broker_id}: led {least:.0f} to {most:.0f} partitions in the "
                f"window: leaders moved during the trial"
            )
            reasons.append(Reason("leaders_moved", text, most - least, 0.0, window.broker_id))
    return reasons


def throttled(
    client: ClientWindow, brokers: Iterable[BrokerWindow], thresholds: Thresholds
) -> list[Reason]:
    """Quotas held the load back, so the limit found would be the quota's."""
    limit_ms = thresholds.throttle_ms_max
    reasons = [
        Reason(
            "throttled",
            f"broker {window.broker_id}: produce requests were throttled for "
            f"{window.produce.throttle_ms:.1f} ms on average by a quota",
            window.produce.throttle_ms,
            limit_ms,
            window.broker_id,
            Resource.QUOTA,
        )
        for window in brokers
        if window.produce.throttle_ms is not None
        and window.produce.throttle_ms > max(limit_ms, _rounding_ms(window))
    ]
    if not reasons and client.throttle_ms > 0 and limit_ms == 0:
        text = f"producers were throttled for {client.throttle_ms} ms in all by a quota"
        value_ms = float(client.throttle_ms)
        reasons.append(Reason("throttled", text, value_ms, 0.0, resource=Resource.QUOTA))
    return reasons


def _rounding_ms(window: BrokerWindow) -> float:
    """The mean throttle time that half a millisecond in the whole window would make [ms].

    Kafka counts whole milliseconds, and the difference of two means times their counts is
    off by some billionths, which is no throttling.
    """
    per_s, start_s, end_s = window.produce.per_s, window.start_s, window.end_s
    if not per_s or start_s is None or end_s is None or end_s <= start_s:
        return 0.0
    return 0.5 / (per_s * (end_s - start_s))


def too_short(client: ClientWindow, thresholds: Thresholds) -> list[Reason]:
    """A window in which a follower that lags could not have left the ISR yet."""
    limit_s = thresholds.window_min_s
    if limit_s is None or client.duration_s >= limit_s:
        return []
    text = (
        f"the window of {client.duration_s:.1f} s is shorter than the {limit_s:.1f} s after which "
        f"an ISR change shows; measure longer or lower replica.lag.time.max.ms"
    )
    return [Reason("window_too_short", text, client.duration_s, limit_s)]


def invalid_reasons(
    client: ClientWindow,
    brokers: Sequence[BrokerWindow],
    thresholds: Thresholds,
    controllers: Sequence[BrokerWindow] = (),
    growth_by_partition: Mapping[int, int] | None = None,
) -> tuple[Reason, ...]:
    """All reasons for INVALID, see the single rules."""
    return (
        *tasks_failed(client),
        *generator_limited(client, thresholds),
        *metrics_incomplete(brokers, thresholds),
        *metrics_contradictory((*brokers, *controllers)),
        *errors_unexplained(client),
        *cluster_changed(brokers, controllers),
        *throttled(client, brokers, thresholds),
        *consumers_limited(client, thresholds),
        *accounting_mismatch(client, growth_by_partition),
        *too_short(client, thresholds),
    )
