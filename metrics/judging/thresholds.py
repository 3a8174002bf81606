"""The thresholds of a goal in conf/goals, and the judgement of the parts of a mix."""

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
    """Limits beyond which a trial is OVERLOADED. The value null switches a limit off.

    Attributes:
        request_handler_idle_min: lowest idle fraction of any broker's request handlers [ratio].
        isr_changed_share_max: highest share of samples in which at least one broker shows ISR
            changes or under-replicated partitions [ratio].
        achieved_min: lowest acknowledged share of the offered records [ratio].
        network_idle_min: lowest idle fraction of any network thread [ratio].
        produce_response_ms_max: highest mean response time [ms] of the produce requests of any
            broker. The response time lasts from a request's arrival to the last byte of its answer.
        latency_p50_ms_max: highest median [ms] of the produce latency, which counts from the
            intended send time.
        latency_p95_ms_max: highest 95th percentile [ms] of the produce latency, which counts from
            the intended send time.
        latency_p99_ms_max: highest 99th percentile [ms] of the produce latency, which counts from
            the intended send time.
        latency_p999_ms_max: highest 99.9th percentile [ms] of the produce latency, which counts
            from the intended send time.
        request_queue_max: highest number of waiting requests of any broker [requests].
        request_queue_share_max: highest number of waiting requests as a share of the broker's
            `queued.max.requests` [ratio].
        consumer_lag_growth_max: highest growth of any consumer group's lag, as a share of the
            offered records [ratio]. In a window longer than 40 s, the lag may grow by as many
            records as in a window of 40 s.
        follower_lag_growth_max: highest growth of the followers' lag, as a share of the load
            [ratio] (docs/gates-and-guards.md#followers-that-fall-behind). `follower_lag_growth_max`
            has no effect with one replica, or while a broker is offline on purpose.
        throttled_is_overload: true if a load that a quota throttles is OVERLOADED, so that the
            search finds the quota; false if such a load is INVALID. If `throttled_is_overload` is
            true, `validity.throttle_ms_max` has no effect, and `trial.measure_s` must be longer
            than the burst that quotas allow.
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
        """Quantile of the produce latency → objective [ms], for the objectives that are set."""
        found = {name: getattr(self, f"latency_{name}_ms_max") for name in LATENCY_QUANTILES}
        return {name: limit_ms for name, limit_ms in found.items() if limit_ms is not None}


@dataclass(frozen=True)
class Validity:
    """Limits beyond which a trial is INVALID.

    Attributes:
        missed_samples_max: highest share of a broker's samples that may be missing [ratio].
        generator_share_max: the generator itself must cause less than this share [ratio] of the
            missing records.
        loop_busy_max: highest busy share of a task's event loop [ratio]. If records are missing and
            a task reaches this share, the generator counts as the cause.
        others_share_max: highest rise of other clients' traffic over its level before the run, as
            a share of the brokers' traffic [ratio].
        throttle_ms_max: highest mean throttle time of produce requests, and of fetches of consumer
            groups [ms].
        standstill_s_max: longest time [s] for which a broker's process may answer no request. The
            time of garbage collections is subtracted. Pauses are measured only with JMX in the
            driver's JVM.
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
    """The reasons that a rule returns for the whole load and for each part of a mix.

    A part is judged separately, because a small part that falls behind hardly changes the sums of
    the mix.

    Args:
        rule: function that takes the evidence of a load and the limits, and returns the reasons.
        evidence: the evidence of the whole load.
        limits: the limits of the rule.
        judges_parts: True if the rule also judges each part of a mix. A reason from a part of the
            mix begins with the name of this part.
    """
    parts = evidence.by_part if judges_parts else {}
    return rule(evidence, limits) + [
        replace(reason, text=f"{part_label(name)}{reason.text}")
        for name, own in parts.items()
        for reason in rule(own, limits)
    ]
