"""Latencies that the generator itself explains: it sent late, or a CPU quota stopped it.

Latency counts from the intended send time, so the generator's own delays are part of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from metrics.judging.indicators import INDICATORS, LATENCIES, ProduceLatency
from metrics.judging.thresholds import Thresholds
from metrics.trial.evidence import Evidence
from metrics.trial.judgement import GENERATOR_LIMITED, Reason

LATE_SHARE_LEAST = 0.1
"""Least own delay of the generator over a latency objective from which it explains an excess
[ratio]."""
_BEYOND = {"p50": 0.5, "p95": 0.05, "p99": 0.01, "p999": 0.001}
"""Share of the records beyond each quantile [ratio]."""


def lateness_reasons(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """One reason for each latency objective, where the generator explains every excess.

    An indicator other than the latency shows an overload that the generator does not explain.
    """
    limits = thresholds.indicators
    is_slow = any(each.reasons(evidence, limits) for each in LATENCIES)
    if not is_slow or evidence.client.duration_s <= 0:
        return []
    exceeded = [
        (each, reason)
        for each in INDICATORS
        if each.is_on(limits, evidence.cluster)
        for reason in each.reasons(evidence, limits)
    ]
    found = []
    for each, reason in exceeded:
        if not isinstance(each, ProduceLatency):
            return []
        explained = next(_explanations(evidence, each.quantile, reason), None)
        if explained is None:
            return []
        found.append(explained)
    return found


def _explanations(evidence: Evidence, quantile: str, reason: Reason) -> Iterator[Reason]:
    """The reasons that explain a latency beyond its objective, the strongest first."""
    excess_ms = reason.value - reason.threshold
    late_ms = evidence.client.lateness_ms(quantile)
    if late_ms >= max(excess_ms, LATE_SHARE_LEAST * reason.threshold):
        text = (
            f"the generator was the limit: it sent records up to {late_ms:.1f} ms late at "
            f"{quantile}, and {reason.text}; use more executors or cores"
        )
        yield Reason(GENERATOR_LIMITED, text, late_ms, excess_ms)
    quota = evidence.client.quota
    share, stopped_ms = quota.throttled_share or 0.0, quota.throttled_ms or 0.0
    if share > _BEYOND[quantile] and stopped_ms >= excess_ms:
        text = (
            f"the generator was the limit: the CPU quota of its control group on host {quota.host} "
            f"stopped it in {share:.0%} of the periods for {stopped_ms:.0f} ms each, and "
            f"{reason.text}; raise the quota of executors, or use more of them"
        )
        yield Reason(GENERATOR_LIMITED, text, share, _BEYOND[quantile])
