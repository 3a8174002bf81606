"""A load outside of trials, which is not judged and not stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from jobs.cluster.topic_set import TopicSet
from jobs.trials.context import RunContext
from jobs.trials.control_server import TaskChannel
from jobs.trials.early_end import NOTICE_S, overload_lasts
from jobs.trials.load import GeneratorError, StageFailedError, Target
from jobs.trials.replica_gauges import lacking_now
from jobs.trials.sampling import Samples
from jobs.trials.watching import watching
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import brokers_of, poll_interval_of
from metrics.traffic.climb import Climb
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow
from metrics.trial.task import merge
from metrics.windows.broker import BrokerWindow, broker_windows


@dataclass(frozen=True)
class UnscoredLoad:
    """A load that has ended.

    Attributes:
        windows: the window of each broker.
        client: the account of the producers.
    """

    windows: tuple[BrokerWindow, ...]
    client: ClientWindow


Watch = Callable[[TaskChannel, Sampler[BrokerSample]], AbstractContextManager[None]]
"""A watcher of a running load, with the channel to its tasks and the sampler of the brokers."""


def unwatched(
    _channel: TaskChannel, _sampler: Sampler[BrokerSample]
) -> AbstractContextManager[None]:
    """The watcher that does nothing."""
    return nullcontext()


def offer_unscored(
    context: RunContext,
    topics: TopicSet,
    pattern: TrafficPattern,
    name: str,
    watch: Watch = unwatched,
    since_s: Callable[[ClientWindow], float] = lambda window: window.start_s,
    climb: Climb | None = None,
) -> UnscoredLoad:
    """Offer this traffic under the run's guards, and return what clients and brokers counted.

    Args:
        name: name of this load, unique within the run.
        watch: watches the load, and may end it.
        since_s: returns the start of the windows, which end with the load [s since the epoch].
        climb: when producers begin; None where all begin at once.

    Raises:
        StageFailedError, GeneratorError: the load failed.
        GuardStopError: a guard tripped.
    """
    target = Target.of(topics, context.addresses)
    interval_s, guards = context.workload.trial.sample_interval_s, context.guards
    polled_s = poll_interval_of(context.source, interval_s)
    guards.admit(pattern)
    guards.require_room(pattern, topics.names)
    context.tables.settle()  # so that Spark does not append rows during the load
    with guards.required(), Sampler(context.source, polled_s) as sampler:

        @contextmanager
        def watched(channel: TaskChannel) -> Iterator[None]:
            lacking = partial(lacking_now, sampler, context)

            def look() -> float | None:
                now_s, start_s = time.time(), channel.start_s
                if start_s is None:
                    return interval_s
                samples = sampler.samples_taken()
                at_rest = {
                    each.broker_id: each.values.get("under_replicated_partitions", 0.0)
                    for each in samples
                    if each.at_s < start_s
                }
                facts = replace(context.facts, under_replicated_at_rest=at_rest)
                parts = (context, facts, pattern, channel, Samples(samples), now_s)
                if not overload_lasts(*parts, grows=climb is not None):
                    return interval_s
                channel.end_after(max(1.0, now_s - start_s - pattern.phases.warmup_s + NOTICE_S))
                return None

            with (
                guards.watch(pattern, channel, lacking),
                watching("overload", look, interval_s, channel.fail),
                watch(channel, sampler),
            ):
                yield

        try:
            rows = context.generator.offer(
                f"{context.run_id}-{name}", target, pattern, watched, climb=climb
            )
        except (StageFailedError, GeneratorError) as error:
            guards.settle(pattern, None)
            if guards.ends_load is not None:  # tasks only report that the driver ended the load
                raise GeneratorError(guards.ends_load) from error
            raise
        samples = sampler.stop()
    window = merge(rows)
    guards.settle(pattern, window)
    start_s = max(window.start_s, since_s(window))
    brokers = brokers_of(context.source)
    windows = broker_windows(samples, brokers, start_s, window.end_s, interval_s)
    return UnscoredLoad(windows, window)
