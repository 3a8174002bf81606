"""Rules that say OVERLOADED: pure functions from windows and thresholds to reasons.

Each broker is judged on its own, because one slow broker caps the cluster. A rule whose
evidence is missing says nothing; `metrics.judging.validity` sees to what must not be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from metrics.judging.thresholds import Thresholds
from metrics.trial.evidence import ClientWindow
from metrics.trial.judgement import Reason
from metrics.windows.broker import BrokerWindow
from metrics.windows.resource import Resource


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

    That the generator had capacity is for `metrics.judging.validity` to say, which comes first.
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
    reasons = []
    for window in windows:
        limit, waiting = thresholds.queue_max(window.broker_id), window.request_queue_max
        if limit is None or waiting is None or waiting <= limit:
            continue
        room = thresholds.queued_max_requests.get(window.broker_id)
        of = f" of {room:.0f} that the queue holds" if room is not None else ""
        text = (
            f"broker {window.broker_id}: up to {waiting:.0f} requests{of} waited for a handler, "
            f"above {limit:.0f}"
        )
        reasons.append(
            Reason(
                "request_queue",
                text,
                waiting,
                limit,
                window.broker_id,
                Resource.REQUEST_HANDLERS,
            )
        )
    return reasons


def produce_latency(client: ClientWindow, thresholds: Thresholds) -> list[Reason]:
    """Produce latency above the objective at a quantile, for each that is set."""
    reasons = []
    for quantile, limit_ms in thresholds.latency_ms_max().items():
        value_ms = float(getattr(client, f"latency_{quantile}_ms"))
        if value_ms > limit_ms:
            text = f"produce latency {quantile} {value_ms:.1f} ms, above {limit_ms:.1f} ms"
            reasons.append(Reason(f"latency_{quantile}", text, value_ms, limit_ms))
    return reasons


def consumer_lag(
    client: ClientWindow, lag_growth_per_s: Mapping[str, float], thresholds: Thresholds
) -> list[Reason]:
    """Consumer groups that fall behind faster than the threshold allows, if set.

    Args:
        lag_growth_per_s: group → slope of its lag over the window, all partitions [1/s].
    """
    limit = thresholds.consumer_lag_growth_max
    if limit is None or client.offered_records == 0:
        return []
    offered_per_s = client.offered_records / client.duration_s
    return [
        Reason(
            "consumer_lag",
            f"consumer group {group} fell behind by {growth_per_s:.0f} records/s, "
            f"{growth_per_s / offered_per_s:.1%} of the offered, above {limit:.1%}",
            growth_per_s / offered_per_s,
            limit,
        )
        for group, growth_per_s in sorted(lag_growth_per_s.items())
        if growth_per_s / offered_per_s > limit
    ]


def overload_reasons(
    client: ClientWindow,
    brokers: Sequence[BrokerWindow],
    thresholds: Thresholds,
    lag_growth_per_s: Mapping[str, float] | None = None,
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
        *consumer_lag(client, lag_growth_per_s or {}, thresholds),
        *achieved(client, thresholds),
    )
