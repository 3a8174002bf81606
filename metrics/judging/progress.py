"""A running trial as slices, for the rule that may end it early (`search.early_stop`).

The slices are those between the samples of a broker. What a slice says of an indicator is
what the whole window would say, had the window been that slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from metrics.judging.thresholds import Thresholds
from metrics.sources.beans import HANDLER_IDLE_NS, NETWORK_WAIT_NS
from metrics.sources.sample import BrokerSample
from metrics.windows.spans import Span, good_samples, isr_changed
from search.early_stop import Progress

Acked = Sequence[tuple[float, int]]
"""(seconds into the window, records acknowledged in it so far), oldest first."""


def progress_of(
    samples: Sequence[BrokerSample],
    broker_ids: Iterable[int],
    window: tuple[float, float],
    interval_s: float,
    thresholds: Thresholds,
    acked: Acked,
    offered_per_s: float,
) -> Progress:
    """What is known of the trial by now.

    Args:
        samples: of all brokers, in any order, also from before the window.
        window: planned start and end of the measured window [s since the epoch].
        interval_s: intended time between samples [s].
        offered_per_s: records that all producers together offer [1/s].
    """
    start_s, end_s = window
    planned = max(1, int((end_s - start_s) / interval_s + 1e-9))
    means: dict[str, list[float]] = {}
    shares: dict[str, tuple[list[bool], float]] = {}
    for broker_id in sorted(broker_ids):
        inside = [s for s in good_samples(samples, broker_id) if start_s <= s.at_s <= end_s]
        slices = list(pairwise(inside))
        means[f"request_handler_idle/{broker_id}"] = _handlers(slices, thresholds)
        if thresholds.network_idle_min is not None:
            busiest = _network(slices, thresholds.network_idle_min)
            means[f"network_idle/{broker_id}"] = busiest
        shares[f"isr/{broker_id}"] = (
            [isr_changed(before, after) for before, after in slices],
            thresholds.isr_changed_share_max,
        )
        limit = thresholds.queue_max(broker_id)
        if limit is not None:
            shares[f"request_queue/{broker_id}"] = (
                [after.values.get("request_queue_size", 0.0) > limit for _, after in slices],
                0.0,
            )
    return Progress(
        planned=planned,
        means=means,
        shares=shares,
        stocks={"achieved": _backlog(acked, offered_per_s, end_s - start_s, thresholds)},
        known_at_end=(
            bool(thresholds.latency_ms_max()) or thresholds.consumer_lag_growth_max is not None
        ),
    )


Slices = Sequence[tuple[BrokerSample, BrokerSample]]


def _handlers(slices: Slices, thresholds: Thresholds) -> list[float]:
    used = []
    for edges in slices:
        idle_ns = Span(edges).per_s(HANDLER_IDLE_NS)
        if idle_ns is not None:
            used.append((1.0 - idle_ns / 1e9) / (1.0 - thresholds.request_handler_idle_min))
    return used


def _network(slices: Slices, idle_min: float) -> list[float]:
    used = []
    for edges in slices:
        span = Span(edges)
        waits_ns = span.deltas(NETWORK_WAIT_NS).values()
        if waits_ns and span.duration_s > 0:
            used.append((1.0 - min(waits_ns) / 1e9 / span.duration_s) / (1.0 - idle_min))
    return used


def _backlog(
    acked: Acked, offered_per_s: float, window_s: float, thresholds: Thresholds
) -> list[float]:
    allowed = (1.0 - thresholds.achieved_min) * offered_per_s * window_s
    if allowed <= 0:
        # Nothing may be missing, and the last acknowledgements always are: never decided early.
        return []
    return [max(0.0, offered_per_s * at_s - records) / allowed for at_s, records in acked]
