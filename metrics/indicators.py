"""Rules that say OVERLOADED: pure functions from windows and thresholds to reasons.

Each broker is judged on its own, because one slow broker caps the cluster. A rule whose
evidence is missing says nothing; `metrics.validity` sees to what must not be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metrics.evidence import ClientWindow, Reason, Resource
from metrics.thresholds import Thresholds
from metrics.windows import BrokerWindow


def shortfall_records(client: ClientWindow) -> int:
    """Records offered and not acknowledged inside the window, never below 0."""
    return max(0, client.offered_records - client.acked_records)


def achieved_share(client: ClientWindow) -> float | None:
    """Acknowledged over offered records [ratio]; None when nothing was offered."""
    if client.offered_records == 0:
        return None
    return client.acked_records / client.offered_records


def falls_short(client: ClientWindow, thresholds: Thresholds) -> bool:
    """True when less was achieved than the goal asks for."""
    achieved = achieved_share(client)
    return achieved is not None and achieved < thresholds.achieved_min


def request_handler_idle(windows: Iterable[BrokerWindow], thresholds: Thresholds) -> list[Reason]:
    """Brokers whose request handlers have less idle time than the threshold."""
    limit = thresholds.request_handler_idle_min
    return [
        Reason(
            "request_handler_idle",
            f"broker {window.broker_id}: request handlers idle {window.handler_idle:.2f}, "
            f"below {limit:.2f}",
            window.handler_idle,
            limit,
            window.broker_id,
            Resource.REQUEST_HANDLERS,
        )
        for window in windows
        if window.handler_idle is not None and window.handler_idle < limit
    ]


def isr(windows: Iterable[BrokerWindow], thresholds: Thresholds) -> list[Reason]:
    """Brokers with ISR changes or under-replication in too many samples."""
    limit = thresholds.isr_changed_share_max
    return [
        Reason(
            "isr",
            f"broker {window.broker_id}: ISR changes or under-replicated partitions in "
            f"{window.isr_changed_share:.0%} of the samples, above {limit:.0%} "
            f"({_isr_counts(window)})",
            window.isr_changed_share,
            limit,
            window.broker_id,
            Resource.REPLICATION,
        )
        for window in windows
        if window.isr_changed_share is not None and window.isr_changed_share > limit
    ]


def _isr_counts(window: BrokerWindow) -> str:
    shrinks, expands = window.isr_shrinks or 0, window.isr_expands or 0
    return (
        f"{shrinks:.0f} shrinks, {expands:.0f} expands, "
        f"up to {window.under_replicated_max or 0:.0f} partitions under-replicated"
    )


def achieved(client: ClientWindow, thresholds: Thresholds) -> list[Reason]:
    """Too little of the offered load was acknowledged.

    That the generator had capacity is for `metrics.validity` to say, which comes first.
    """
    share = achieved_share(client)
    if share is None or not falls_short(client, thresholds):
        return []
    return [
        Reason(
            "achieved",
            f"{share:.1%} of the offered records were acknowledged in the window, below "
            f"{thresholds.achieved_min:.1%} ({client.acked_records} of "
            f"{client.offered_records}; latency p99 {client.latency_p99_ms:.0f} ms)",
            share,
            thresholds.achieved_min,
        )
    ]


def network_idle(windows: Iterable[BrokerWindow], thresholds: Thresholds) -> list[Reason]:
    """Brokers whose busiest network thread has less idle time than the threshold, if set."""
    limit = thresholds.network_idle_min
    if limit is None:
        return []
    return [
        Reason(
            "network_idle",
            f"broker {window.broker_id}: busiest network thread idle {window.network_idle:.2f}, "
            f"below {limit:.2f}",
            window.network_idle,
            limit,
            window.broker_id,
            Resource.NETWORK_THREADS,
        )
        for window in windows
        if window.network_idle is not None and window.network_idle < limit
    ]


def request_queue(windows: Iterable[BrokerWindow], thresholds: Thresholds) -> list[Reason]:
    """Brokers with more waiting requests in a sample than the threshold, if set."""
    limit = thresholds.request_queue_max
    if limit is None:
        return []
    return [
        Reason(
            "request_queue",
            f"broker {window.broker_id}: up to {window.request_queue_max:.0f} requests waited "
            f"for a handler, above {limit:.0f}",
            window.request_queue_max,
            limit,
            window.broker_id,
            Resource.REQUEST_HANDLERS,
        )
        for window in windows
        if window.request_queue_max is not None and window.request_queue_max > limit
    ]


def produce_latency(client: ClientWindow, thresholds: Thresholds) -> list[Reason]:
    """Produce latency above the objective at a quantile, for each that is set."""
    asked = (
        ("p50", client.latency_p50_ms, thresholds.latency_p50_ms_max),
        ("p95", client.latency_p95_ms, thresholds.latency_p95_ms_max),
        ("p99", client.latency_p99_ms, thresholds.latency_p99_ms_max),
    )
    return [
        Reason(
            f"latency_{quantile}",
            f"produce latency {quantile} {value_ms:.1f} ms, above {limit_ms:.1f} ms",
            value_ms,
            limit_ms,
        )
        for quantile, value_ms, limit_ms in asked
        if limit_ms is not None and value_ms > limit_ms
    ]


def overload_reasons(
    client: ClientWindow, brokers: Sequence[BrokerWindow], thresholds: Thresholds
) -> tuple[Reason, ...]:
    """All reasons for OVERLOADED: the brokers' own first, worst first, the clients' last."""
    idle = sorted(request_handler_idle(brokers, thresholds), key=lambda reason: reason.value)
    changed = sorted(isr(brokers, thresholds), key=lambda reason: -reason.value)
    return (
        *idle,
        *changed,
        *network_idle(brokers, thresholds),
        *request_queue(brokers, thresholds),
        *produce_latency(client, thresholds),
        *achieved(client, thresholds),
    )
