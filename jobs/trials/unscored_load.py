"""A load that is not a trial: it is neither judged nor stored. For example, an unscored load writes
the backlog of a consumer group before the trial that reads the backlog.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseStarted
from jobs.trials.context import RunContext
from jobs.trials.early_end import overload_lasts
from jobs.trials.load import GeneratorError, Load
from jobs.trials.running_load import RunningLoad, Watcher, ends_once, offer
from jobs.trials.sampling import LoadSampler
from metrics.sources.source import brokers_of
from metrics.traffic.clients import ConsumerOptions
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import Climb
from metrics.trial.client import ClientWindow, merge
from metrics.trial.evidence import Reason
from metrics.windows.broker import BrokerWindow, broker_windows


@dataclass(frozen=True)
class UnscoredLoad:
    """The result of a load that is not a trial.

    Attributes:
        windows: the window of each broker.
        client: the counts of the producers.
    """

    windows: tuple[BrokerWindow, ...]
    client: ClientWindow


def unscored(pattern: TrafficPattern, measure_s: float, begun_s: float = 0.0) -> TrafficPattern:
    """The pattern with a warm-up of `begun_s` [s] and then a window of `measure_s` [s]."""
    phases = replace(
        pattern.phases, ramp_up_s=0.0, warmup_s=begun_s, measure_s=measure_s, volume_bytes=None
    )
    return pattern.with_phases(phases)


def offer_unscored(
    context: RunContext,
    topics: TopicSet,
    pattern: TrafficPattern,
    name: str,
    watch: Watcher = nullcontext,
    since_s: Callable[[ClientWindow], float] = lambda window: window.start_s,
    climb: Climb | None = None,
) -> UnscoredLoad:
    """Offer a load under the run's guards, and return the counts of clients and brokers.

    Args:
        context: the open resources of the run.
        topics: the topics of the load.
        pattern: the traffic of the load.
        name: name of the load, unique within the run.
        watch: watches the load, and may end it.
        since_s: returns the start of the brokers' windows, which end with the load [s since the
            epoch].
        climb: the steps of a growing load; None if all producers begin at once.

    Raises:
        GeneratorError: the load failed.
        GuardStopError: a guard tripped.
    """
    interval_s = pattern.phases.sample_interval_s
    guards, sampler = context.guards, LoadSampler(context.source, interval_s)
    load = Load(f"{context.run_id}-{name}", topics, pattern, context.addresses, climb=climb)

    @contextmanager
    def watched(running: RunningLoad) -> Iterator[None]:
        with ended_by_overload(running), watch(running):
            yield

    guards.admit(pattern)
    guards.require_room(pattern, topics.names)
    context.tables.settle()  # Spark must not append rows during the load
    with guards.required(), sampler:
        try:
            rows = offer(context, load, sampler, context.facts, watched)
        except GeneratorError as error:
            guards.settle(pattern, None)
            if guards.ends_load is not None:  # the tasks do not know why the driver ended the load
                raise GeneratorError(guards.ends_load) from error
            raise
        samples = sampler.stop()
    window = merge(rows)
    guards.settle(pattern, window)
    windows = broker_windows(
        samples.nodes,
        brokers_of(context.source),
        max(window.start_s, since_s(window)),
        window.end_s,
        interval_s,
    )
    return UnscoredLoad(windows, window)


def ended_by_overload(load: RunningLoad) -> AbstractContextManager[object]:
    """End a load that has kept brokers overloaded for too long. Partitions that were
    under-replicated before the load do not count as an overload.
    """

    def is_over(load: RunningLoad, now_s: float, begun_s: float) -> bool:
        name, start_s = "under_replicated_partitions", load.channel.start_s or begun_s
        before = (each for each in load.samples.nodes if each.at_s < start_s)
        at_rest = {each.broker_id: each.values.get(name, 0.0) for each in before}
        facts = replace(load.facts, under_replicated_at_rest=at_rest)
        return overload_lasts(replace(load, facts=facts), now_s)

    return ends_once("overload", is_over, load.interval_s)(load)


LOADS_MAX = 10
"""Largest number of loads that build one backlog."""
SPARE_S = 1.0
"""Spare time of a load that builds a backlog [s]. The load lasts for the number of missing records
divided by the load's rate, plus this spare time.
"""
CLOSED_LOOP_S = 30.0
"""Length of a load of producers without a rate [s]."""
LOAD_MAX_S = 86_400.0


def build_backlog(
    context: RunContext, topics: TopicSet, pattern: TrafficPattern, number: int
) -> tuple[bool, Reason | None]:
    """Write records at the pattern's rate until the topics contain the pattern's backlog.

    Args:
        context: the open resources of the run.
        topics: the topics of the trial.
        pattern: the traffic of the trial.
        number: number of the trial that reads the backlog.

    Returns:
        Two values: whether a load was offered, and the reason why the backlog could not be built.
        The reason is None if the backlog was built.

    Raises:
        GuardStopError: a guard tripped.
    """
    is_loaded = False
    for (_, own), part in zip(topics.numbered, pattern.loads, strict=True):
        is_offered, problem = _backlog_of_part(context, own, part, number)
        is_loaded = is_loaded or is_offered
        if problem is not None:
            return is_loaded, problem
    return is_loaded, None


def _backlog_of_part(
    context: RunContext, topics: TopicSet, pattern: TrafficPattern, number: int
) -> tuple[bool, Reason | None]:
    """Build the backlog of one part of a mix, or of traffic without parts; see `build_backlog`."""
    wanted = pattern.consumers.backlog_records if pattern.consumers.groups else 0
    if not wanted:
        return False, None
    try:
        held = _held(context, topics)
        for load in range(LOADS_MAX):
            if held >= wanted:
                return load > 0, None
            named = f"{number}-{pattern.part}-{load}" if pattern.part else f"{number}-{load}"
            _write(context, topics, pattern, wanted - held, named)
            before, held = held, _held(context, topics)
            if held <= before:
                break
    except (GeneratorError, AdminError) as error:
        return True, Reason("task_failed", f"the backlog was not built: {error}", 1.0, 0.0)
    if held >= wanted:
        return True, None
    text = f"the backlog was not built: {held:,} of {wanted:,} messages are in the topics"
    return True, Reason("task_failed", text, 1.0, 0.0)


def _held(context: RunContext, topics: TopicSet) -> int:
    """The number of records in the run's topics, which were empty when the run created them."""
    return sum(context.topics.end_offsets(topics).values())


def _write(
    context: RunContext, topics: TopicSet, pattern: TrafficPattern, records: int, name: str
) -> None:
    length_s = CLOSED_LOOP_S
    if math.isfinite(pattern.records_per_s):
        length_s = min(LOAD_MAX_S, math.ceil(records / pattern.records_per_s) + SPARE_S)
    context.reporter.report(
        PhaseStarted(f"building a backlog of {records:,} messages, about {length_s:,.0f} s")
    )
    load = replace(unscored(pattern, length_s), consumers=ConsumerOptions(), profile=None)
    offer_unscored(context, topics, load, f"backlog-{name}")
