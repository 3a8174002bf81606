"""A load that is no trial: nobody judges it, and no table keeps it."""

from __future__ import annotations

from functools import partial

from jobs.cluster.topic_set import TopicSet
from jobs.trials.context import RunContext
from jobs.trials.load import GeneratorError, StageFailedError, Target
from metrics.sources.sampler import Sampler
from metrics.sources.source import brokers_of
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.task import merge
from metrics.windows.broker import BrokerWindow, broker_windows


def windows_under(
    context: RunContext, topics: TopicSet, pattern: TrafficPattern, name: str
) -> tuple[BrokerWindow, ...]:
    """Offer this traffic, under the run's guards, and say what each broker did meanwhile.

    Args:
        name: tells this load from others of the run.

    Raises:
        StageFailedError, GeneratorError: the load could not be made.
        GuardStopError: a guard tripped.
    """
    target = Target(topics.names, topics.leaders, context.addresses)
    interval_s, guards = context.workload.trial.sample_interval_s, context.guards
    guards.admit(pattern)
    guards.require_room(pattern, topics.names)
    context.tables.settle()  # so that what Spark appends does not load the machine meanwhile
    with guards.required(), Sampler(context.source, interval_s) as sampler:
        try:
            rows = context.generator.offer(
                f"{context.run_id}-{name}", target, pattern, partial(guards.watch, pattern)
            )
        except (StageFailedError, GeneratorError):
            guards.settle(pattern, None)
            raise
        samples = sampler.stop()
    window = merge(rows)
    guards.settle(pattern, window)
    return broker_windows(
        samples, brokers_of(context.source), window.start_s, window.end_s, interval_s
    )
