"""The numbers that judge a trial. Thresholds are data; a goal in conf/goals maps onto them."""

from __future__ import annotations

from dataclasses import dataclass


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
        latency_p50_ms_max, latency_p95_ms_max, latency_p99_ms_max: produce latency from
            the intended send time [ms].
        request_queue_max: most waiting requests of any broker [requests].

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
    request_queue_max: float | None = None
    missed_samples_max: float = 0.25
    generator_share_max: float = 0.5
    loop_busy_max: float = 0.95
    throttle_ms_max: float = 0.0
    window_min_s: float | None = None
