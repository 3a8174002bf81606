"""Throttling by quotas, which shows in the brokers' throttle times or in the clients' answers."""

from __future__ import annotations

from metrics.trial.evidence import Evidence
from metrics.trial.judgement import Reason
from metrics.windows.resource import Resource
from metrics.windows.use import produce_throttle_ms

NAME = "throttled"


def throttle_reasons(evidence: Evidence, limit_ms: float) -> list[Reason]:
    """The throttling beyond a limit.

    Args:
        limit_ms: highest mean throttle time of produce requests and of fetches [ms].

    Returns:
        One reason for each broker that throttled producers, or else one for the producers; and one
        for each throttled consumer group.
    """
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
    by_clients = by_brokers or _producers_throttled(evidence, limit_ms)
    return by_clients + _groups_throttled(evidence, limit_ms)


def _producers_throttled(evidence: Evidence, limit_ms: float) -> list[Reason]:
    """The throttle time in the producers' responses; any, where their number is unknown."""
    counts = evidence.client.counts
    requests = counts.produce_requests
    if not counts.throttle_ms or (requests and counts.throttle_ms / requests <= limit_ms):
        return []
    text = f"producers were throttled for {counts.throttle_ms} ms in total by a quota"
    return [_throttled(text, float(counts.throttle_ms), limit_ms)]


def _groups_throttled(evidence: Evidence, limit_ms: float) -> list[Reason]:
    """The throttled groups, unless the brokers' mean throttle time is within the limit."""
    known = [each.fetch_consumer.throttle_ms for each in evidence.brokers]
    means = [each for each in known if each is not None]
    if means and max(means) <= limit_ms and limit_ms > 0:
        return []
    return [
        _throttled(
            f"consumer group {group.counts.group} was throttled for "
            f"{group.counts.throttle_ms} ms in total by a quota",
            float(group.counts.throttle_ms),
            limit_ms,
        )
        for group in evidence.client.groups
        if group.counts.throttle_ms
    ]


def _throttled(text: str, value: float, limit: float, broker_id: int | None = None) -> Reason:
    return Reason(NAME, text, value, limit, broker_id, Resource.QUOTA)
