"""Trials that the error of the request handlers' idle time would decide.

Before Kafka 4.2 the handlers of a broker and a controller in one process share one metric, so the
broker's idle time is known within a range (`metrics.sources.shared_handlers`). So it is where it
follows from one-minute rates (`metrics.sources.one_minute_rates`).
"""

from __future__ import annotations

from metrics.judging.indicators import INDICATORS, RequestHandlerIdle
from metrics.judging.thresholds import Thresholds
from metrics.sources.one_minute_rates import SEES_EACH_TICK_S
from metrics.trial.evidence import Evidence
from metrics.trial.judgement import Reason
from metrics.windows.broker import BrokerWindow


def reasons_of_doubt(evidence: Evidence, thresholds: Thresholds) -> list[Reason]:
    """One reason for each broker whose range holds the limit, where nothing else decides.

    A trial is OVERLOADED beyond doubt when another indicator shows it, or a broker whose whole
    range lies below the limit.
    """
    limits, least = thresholds.indicators, thresholds.indicators.request_handler_idle_min
    doubtful = [window for window in evidence.brokers if _is_in_doubt(window, least)]
    if not doubtful or evidence.cluster.is_blind:
        return []
    ids = {window.broker_id for window in doubtful}
    certain = [
        reason
        for each in INDICATORS
        if each.is_on(limits, evidence.cluster)
        for reason in each.reasons(evidence, limits)
        if not (reason.indicator == RequestHandlerIdle.name and reason.broker_id in ids)
    ]
    return [] if certain else [_reason(window, least) for window in doubtful]


def _is_in_doubt(window: BrokerWindow, least: float) -> bool:
    idle, error = window.handler_idle, window.idle_error
    return idle is not None and error > 0 and idle - error < least <= idle + error


def _reason(window: BrokerWindow, least: float) -> Reason:
    idle, error = window.handler_idle or 0.0, window.idle_error
    text = (
        f"broker {window.broker_id}: request handlers idle {idle - error:.3f} to "
        f"{idle + error:.3f}, on both sides of {least:.2f}: "
    )
    if (window.handler_idle_rate_error or 0.0) > (window.handler_idle_error or 0.0):
        text += (
            f"the idle time follows from one-minute rates over {window.ticked_s or 0.0:.0f} s, and "
            f"ticks were missed or digits rounded; sample every {SEES_EACH_TICK_S:g} s or more "
            f"often, measure longer, or have the exporter show the Count"
        )
        return Reason("rate_in_doubt", text, idle, least, window.broker_id)
    text += (
        "the process is a controller, too, and before Kafka 4.2 its handlers share the broker's "
        "metric; run the controller in a process of its own, or use Kafka 4.2 or later"
    )
    return Reason("controller_in_doubt", text, idle, least, window.broker_id)
