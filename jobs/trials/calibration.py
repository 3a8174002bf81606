"""What brokers with a planted limit spend a request's time on, besides what is stated of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseStarted
from jobs.trials.context import RunContext
from jobs.trials.unjudged import windows_under
from metrics.planning.planted import HandlerTime, completed, planted_np
from metrics.traffic.pattern import TrafficPattern

LIGHT_S = 6.0
"""Length of the window under a light load [s]."""
IDLE_LEAST = 0.9
"""Idle fraction that a light load leaves the handlers at least."""


def calibrate(
    context: RunContext, topics: TopicSet, planted: Mapping[int, HandlerTime]
) -> tuple[HandlerTime, ...]:
    """The handler times of all brokers, with their small terms from a window at a light load.

    Args:
        topics: what the light load writes to.
        planted: broker id → what is stated of it.

    Raises:
        StageFailedError, GeneratorError: the load could not be made.
        GuardStopError: a guard tripped.
        ValueError: as `completed` raises.
    """
    context.reporter.report(PhaseStarted("measuring what a request takes at a light load"))
    light = windows_under(context, topics, _light(context, topics, planted), "calibration")
    return completed(planted, light)


def _light(
    context: RunContext, topics: TopicSet, planted: Mapping[int, HandlerTime]
) -> TrafficPattern:
    """The heaviest load that leaves the handlers idle enough, by what is stated of them."""
    phases = replace(context.workload.trial, ramp_up_s=0.0, warmup_s=1.0, measure_s=LIGHT_S)
    one = context.pattern(topics.message_bytes, 1)
    load = int(planted_np(tuple(planted.values()), one.producer, IDLE_LEAST))
    return replace(context.pattern(topics.message_bytes, max(1, load)), phases=phases)
