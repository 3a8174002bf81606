"""The numbers that judge a trial. Thresholds are data; a goal in conf/goals maps onto them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Thresholds:
    """Limits of the indicators and of validity; None switches a rule off.

    Indicators, beyond which a trial is OVERLOADED:

    Attributes:
        request_handler_idle_min: least idle fraction of any broker's request handlers [ratio].
        isr_changed_share_max: share of samples with ISR changes or under-replicated
            partitions that is still sustained [ratio].
        achieved_min: achieved over offered records [ratio].
        network_idle_min: least idle fraction of any network thread [ratio].
        latency_p50_ms_max, latency_p95_ms_max, latency_p99_ms_max, latency_p999_ms_max:
            produce latency from the intended send time [ms].
        request_queue_max: most waiting requests of any broker [requests].
        request_queue_share_max: the same as a share of `queued_max_requests` [ratio].
        consumer_lag_growth_max: growth of any consumer group's lag over the offered
            records [ratio].
        queued_max_requests: broker id → its `queued.max.requests`, as read from it.
        client_only: the cluster shows no metrics, so that none can be missing.

    Validity, beyond which a trial is INVALID:

    Attributes:
        missed_samples_max: share of a broker's samples that may be missing [ratio].
        generator_share_max: share of a shortfall that may be the generator's own [ratio].
        loop_busy_max: share of time that a task's event loop may be busy before a
            shortfall is called its own [ratio].
        throttle_ms_max: mean throttle time of produce requests [ms].
        window_min_s: least window in which an ISR change can show, from the brokers'
            `replica.lag.time.max.ms` [s].
    """

    request_handler_idle_min: float = 0.20
    isr_changed_share_max: float = 0.5
    achieved_min: float = 0.99
    network_idle_min: float | None = None
    latency_p50_ms_max: float | None = None
    latency_p95_ms_max: float | None = None
    latency_p99_ms_max: float | None = None
    latency_p999_ms_max: float | None = None
    request_queue_max: float | None = None
    request_queue_share_max: float | None = None
    consumer_lag_growth_max: float | None = None
    missed_samples_max: float = 0.25
    generator_share_max: float = 0.5
    loop_busy_max: float = 0.95
    throttle_ms_max: float = 0.0
    window_min_s: float | None = None
    queued_max_requests: Mapping[int, float] = field(default_factory=dict)
    client_only: bool = False

    def latency_ms_max(self) -> dict[str, float]:
        """Quantile, such as `p99`, → the latency objective that is set for it [ms]."""
        limits = {
            "p50": self.latency_p50_ms_max,
            "p95": self.latency_p95_ms_max,
            "p99": self.latency_p99_ms_max,
            "p999": self.latency_p999_ms_max,
        }
        return {quantile: limit for quantile, limit in limits.items() if limit is not None}

    def queue_max(self, broker_id: int) -> float | None:
        """Most requests that may wait at a broker; None when no limit is set or known."""
        limits = [] if self.request_queue_max is None else [self.request_queue_max]
        room = self.queued_max_requests.get(broker_id)
        if self.request_queue_share_max is not None and room is not None:
            limits.append(self.request_queue_share_max * room)
        return min(limits, default=None)
