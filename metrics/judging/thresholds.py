"""The thresholds by which a trial is judged: data that a goal in conf/goals is read into.

The judgement of each part of a mix by the rules for clients.

A part that falls behind may be too small to show in the sums of the mix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar

from metrics.common.bounds import Number
from metrics.trial.evidence import Evidence, Reason, part_label

LATENCY_QUANTILES = ("p50", "p95", "p99", "p999")
Limits = TypeVar("Limits")
Latency = Annotated[float, Number(0, 600_000, "milliseconds", above=True)]


@dataclass(frozen=True)
class Indicators:
    """Limits beyond which a trial is OVERLOADED; null switches one off.

    Attributes:
        request_handler_idle_min: lowest idle fraction of any broker's request handlers [ratio].
        isr_changed_share_max: highest share of samples in which at least one broker shows ISR
            changes or under-replicated partitions [ratio].
        achieved_min: lowest share of the offered records that is acknowledged [ratio].
        network_idle_min: lowest idle fraction of any network thread [ratio].
        produce_response_ms_max: highest mean response time of the produce requests of any broker,
            from a request's arrival to the last byte of its answer [ms].
        latency_p50_ms_max: highest median of the produce latency from the intended send time [ms].
        latency_p95_ms_max: highest 95th percentile of this latency [ms].
        latency_p99_ms_max: highest 99th percentile of this latency [ms].
        latency_p999_ms_max: highest 99.9th percentile of this latency [ms].
        request_queue_max: highest number of waiting requests of any broker [requests].
        request_queue_share_max: highest number of waiting requests as a share of the broker's
            `queued.max.requests` [ratio].
        consumer_lag_growth_max: highest growth of any consumer group's lag, as a share of the
            offered records [ratio]. A window longer than 40 s may leave no more records than one of
            40 s.
        follower_lag_growth_max: highest growth of the followers' lag, as a share of the load
            [ratio] (docs/gates-and-guards.md#followers-that-fall-behind). Without effect with one
            replica, and in an outage on purpose.
        throttled_is_overload: whether a load that a quota throttles is OVERLOADED, so that the
            search finds the quota; otherwise it is INVALID. `validity.throttle_ms_max` then has no
            effect, and `trial.measure_s` has to cover the burst that quotas allow.
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
    follower_lag_growth_max: Annotated[float, Number(0, 1)] | None = 0.05
    throttled_is_overload: bool = False

    @property
    def latency_objectives(self) -> dict[str, float]:
        """Objectives that are set: quantile of the produce latency → objective [ms]."""
        found = {name: getattr(self, f"latency_{name}_ms_max") for name in LATENCY_QUANTILES}
        return {name: limit_ms for name, limit_ms in found.items() if limit_ms is not None}


@dataclass(frozen=True)
class Validity:
    """Limits beyond which a trial is INVALID and not an answer.

    Attributes:
        missed_samples_max: highest share of a broker's samples that may be missing [ratio].
        generator_share_max: highest share of a shortfall that the generator itself may cause
            [ratio].
        loop_busy_max: highest busy share of a task's event loop with which a shortfall is not
            attributed to the generator [ratio].
        others_share_max: highest share of the brokers' input that other producers may write beyond
            their level before the run [ratio].
        throttle_ms_max: highest mean throttle time of produce requests, and of fetches of groups
            [ms].
        standstill_s_max: longest pause of a broker's process, except for garbage collection [s];
            needs JMX in the driver's JVM.
    """

    missed_samples_max: Annotated[float, Number(0, 1, below=True)] = 0.25
    generator_share_max: Annotated[float, Number(0, 1)] = 0.5
    loop_busy_max: Annotated[float, Number(0, 1, above=True)] = 0.95
    others_share_max: Annotated[float, Number(0, 1)] = 0.05
    standstill_s_max: Annotated[float, Number(0, 600, "seconds", above=True)] = 0.5
    throttle_ms_max: Annotated[float, Number(0, 60_000, "milliseconds")] = 0.0


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of a goal."""

    indicators: Indicators = field(default_factory=Indicators)
    validity: Validity = field(default_factory=Validity)


def reasons_of_all(
    rule: Callable[[Evidence, Limits], list[Reason]],
    evidence: Evidence,
    limits: Limits,
    judges_parts: bool,
) -> list[Reason]:
    """The reasons by the account of all clients, and those of each part of a mix, which name it.

    Args:
        rule: returns the reasons by the account of some clients and the limits.
        judges_parts: whether the parts of a mix are judged, too.
    """
    parts = evidence.by_part if judges_parts else {}
    return rule(evidence, limits) + [
        replace(reason, text=f"{part_label(name)}{reason.text}")
        for name, own in parts.items()
        for reason in rule(own, limits)
    ]
