"""The rules that make a trial INVALID because the idle time is inexact, or because the generator
was late.

The idle time of the request handlers is known only within a range in two cases. Before Kafka 4.2, a
broker and a controller in one process share one metric (`metrics.sources.beans`). Some exporters
show only one-minute rates (`metrics.sources.one_minute_rates`). A trial is INVALID if the minimum
idle time of the goal lies within the range of possible idle times, and no indicator other than the
idle time shows an overload.

A latency counts from the intended send time, so it includes the generator's own delays. A trial
with a latency above its objective is INVALID if the generator sent late, or if a CPU quota stopped
the generator.
"""

from __future__ import annotations

from collections.abc import Iterator

from metrics.judging.indicators import LATENCIES, ProduceLatency, RequestHandlerIdle, exceeded
from metrics.judging.thresholds import Thresholds
from metrics.sources.one_minute_rates import SEES_EACH_TICK_S
from metrics.trial.evidence import GENERATOR_LIMITED, Evidence, Reason
from metrics.windows.broker import BrokerWindow


def reasons_of_doubt(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """One reason for each broker whose range of possible idle times contains the goal's minimum.

    The list is empty if the overload is certain. An overload is certain if an indicator other than
    the idle time shows the overload. An overload is also certain if all possible idle times of one
    broker lie below the goal's minimum.
    """
    limits, least = thresholds.indicators, thresholds.indicators.request_handler_idle_min
    doubtful = [
        window
        for window in evidence.brokers
        if (idle := window.handler_idle) is not None
        and window.idle_error > 0
        and idle - window.idle_error < least <= idle + window.idle_error
    ]
    if not doubtful or evidence.cluster.is_blind:
        return []
    ids = {window.broker_id for window in doubtful}
    is_certain = any(
        reason.indicator != RequestHandlerIdle.name or reason.broker_id not in ids
        for _, reason in exceeded(evidence, limits)
    )
    return [] if is_certain else [_reason(window, least) for window in doubtful]


def _reason(window: BrokerWindow, least: float) -> Reason:
    idle, error = window.handler_idle or 0.0, window.idle_error
    text = (
        f"broker {window.broker_id}: request handlers idle {idle - error:.3f} to "
        f"{idle + error:.3f}, a range that contains the limit {least:.2f}: "
    )
    if (window.handler_idle_rate_error or 0.0) > (window.handler_idle_error or 0.0):
        text += (
            f"the idle time is computed from one-minute rates over {window.ticked_s or 0.0:.0f} s, "
            f"and the rates were rounded or an update was missed; sample every "
            f"{SEES_EACH_TICK_S:g} s or more often, measure longer, or configure the exporter to "
            f"show the Count"
        )
        return Reason("rate_in_doubt", text, idle, least, window.broker_id)
    text += (
        "the process is also a controller, and before Kafka 4.2 the controller's handlers share "
        "the broker's metric; run the controller in a separate process, or use Kafka 4.2 or later"
    )
    return Reason("controller_in_doubt", text, idle, least, window.broker_id)


LATE_SHARE_LEAST = 0.1
"""A delay of the generator can explain a latency above the objective only if the delay, divided by
the objective, is at least this value [ratio]."""
_BEYOND = {"p50": 0.5, "p95": 0.05, "p99": 0.01, "p999": 0.001}
"""Share of the records beyond each quantile [ratio]."""


def lateness_reasons(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """One reason for each exceeded latency objective, if the generator's delays explain every
    excess.

    The list is empty if another indicator shows an overload, because the generator's delays do not
    explain this overload.
    """
    limits = thresholds.indicators
    is_slow = any(each.reasons(evidence, limits) for each in LATENCIES)
    if not is_slow or evidence.client.duration_s <= 0:
        return []
    found = []
    for each, reason in exceeded(evidence, limits):
        if not isinstance(each, ProduceLatency):
            return []
        explained = next(_explanations(evidence, each.quantile, reason), None)
        if explained is None:
            return []
        found.append(explained)
    return found


def _explanations(evidence: Evidence, quantile: str, reason: Reason) -> Iterator[Reason]:
    """One reason for each proof that the generator made a latency exceed its objective, the
    strongest reason first. The result is empty if the generator did not cause the excess.
    """
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
            f"stopped it in {share:.0%} of the quota periods for {stopped_ms:.0f} ms each, and "
            f"{reason.text}; raise the CPU quota of the executors, or use more executors"
        )
        yield Reason(GENERATOR_LIMITED, text, share, _BEYOND[quantile])
