"""The numbers that judge a trial. Thresholds are data; a goal in conf/goals is read into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from metrics.common.bounds import Number

LATENCY_QUANTILES = ("p50", "p95", "p99", "p999")
Latency = Annotated[float, Number(0, 600_000, "milliseconds", above=True)]


@dataclass(frozen=True)
class Indicators:
    """Limits beyond which a trial is OVERLOADED; null switches one off.

    Attributes:
        request_handler_idle_min: least idle fraction of any broker's request handlers [ratio].
        isr_changed_share_max: share of samples with ISR changes or under-replicated
            partitions that is still sustained [ratio].
        achieved_min: achieved over offered records [ratio].
        network_idle_min: least idle fraction of any network thread [ratio].
        produce_response_ms_max: mean response time of the produce requests of any broker, from a
            request's arrival to the last byte of its answer [ms].
        latency_p50_ms_max, latency_p95_ms_max, latency_p99_ms_max, latency_p999_ms_max:
            produce latency from the intended send time [ms].
        request_queue_max: most waiting requests of any broker [requests].
        request_queue_share_max: the same as a share of the broker's queued.max.requests
            [ratio].
        consumer_lag_growth_max: growth of any consumer group's lag over the offered
            records, where groups read along [ratio].
    """

    request_handler_idle_min: Annotated[float, Number(0, 1, below=True)] = 0.20
    isr_changed_share_max: Annotated[float, Number(0, 1)] = 0.5
    achieved_min: Annotated[float, Number(0, 1, above=True)] = 0.99
    network_idle_min: Annotated[float, Number(0, 1, below=True)] | None = None
    produce_response_ms_max: Latency | None = None
    latency_p50_ms_max: Latency | None = None
    latency_p95_ms_max: Latency | None = None
    latency_p99_ms_max: Latency | None = None
    latency_p999_ms_max: Latency | None = None
    request_queue_max: Annotated[float, Number(0, 100_000, "requests")] | None = None
    request_queue_share_max: Annotated[float, Number(0, 1, above=True)] | None = None
    consumer_lag_growth_max: Annotated[float, Number(0, 1)] | None = 0.05

    @property
    def latency_objectives(self) -> dict[str, float]:
        """Quantile of the produce latency → its objective [ms], where there is one."""
        found = {name: getattr(self, f"latency_{name}_ms_max") for name in LATENCY_QUANTILES}
        return {name: limit_ms for name, limit_ms in found.items() if limit_ms is not None}


@dataclass(frozen=True)
class Validity:
    """Limits beyond which a trial is INVALID, which is no answer.

    Attributes:
        missed_samples_max: share of a broker's samples that may be missing [ratio].
        generator_share_max: share of a shortfall that may be the generator's own [ratio].
        loop_busy_max: share of time that a task's event loop may be busy before a
            shortfall is called its own [ratio].
        others_share_max: share of what the brokers took that others may write beyond their level
            before the run [ratio].
        throttle_ms_max: mean throttle time of produce requests, and of fetches of groups [ms].
        standstill_s_max: time for which a broker's process may stand still, other than to collect
            its heap [s].
    """

    missed_samples_max: Annotated[float, Number(0, 1, below=True)] = 0.25
    generator_share_max: Annotated[float, Number(0, 1)] = 0.5
    loop_busy_max: Annotated[float, Number(0, 1, above=True)] = 0.95
    others_share_max: Annotated[float, Number(0, 1)] = 0.05
    standstill_s_max: Annotated[float, Number(0, 600, "seconds", above=True)] = 0.5
    throttle_ms_max: Annotated[float, Number(0, 60_000, "milliseconds")] = 0.0


@dataclass(frozen=True)
class Thresholds:
    """What a goal judges by."""

    indicators: Indicators = field(default_factory=Indicators)
    validity: Validity = field(default_factory=Validity)
