"""The loads before the first trial: a climb, and the warm-up of brokers whose JVMs have just
started, until more load makes them no faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from statistics import fmean, linear_regression

from jobs.cluster.health import ClusterHealth
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseProgress, PhaseStarted, warn
from jobs.trials.climb import (
    FIRST_SHARE,
    READ_S,
    AtRest,
    ClimbWatch,
    climb_within,
    read_and_end,
    step_length_s,
)
from jobs.trials.context import RunContext
from jobs.trials.control_server import TaskChannel
from jobs.trials.early_end import NOTICE_S
from jobs.trials.gates import Gates
from jobs.trials.load import GeneratorError, StageFailedError
from jobs.trials.others_harm import knows_own_errors
from jobs.trials.recovery import WriteBack
from jobs.trials.series_proof import SeriesProof, is_enough
from jobs.trials.unscored_load import Watch, offer_unscored
from jobs.trials.watching import watching
from metrics.judging.running import LATE_COLD_S, LATE_S, SETTLE_S
from metrics.judging.thresholds import Validity
from metrics.sources.one_minute_rates import reads_rates
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import brokers_of
from metrics.traffic.axes import NP, SCALE
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow
from metrics.trial.others import MESSAGES_LEAST_PER_S, Level
from metrics.trial.trial import WarmUp
from metrics.windows.broker import BrokerWindow, broker_window, good_samples
from search.signals import SATURATED_IDLE

STEADY_S = 12.0
"""Brokers are warm once the cost of a request has been steady for so long [s]."""
FALL_MOST, FALL_OVER_S = 0.05, 10.0
"""The cost is steady when it falls by less than the share `FALL_MOST` in `FALL_OVER_S` [s]."""
COSTS_LEAST = 4
"""Smallest number of costs that show a steady cost, for samples that are far apart."""

SHORT_S = 10.0
"""Length of a load when the time is too short to wait for a steady cost, or brokers do not show
their costs; and length of the end of a load from which readings are taken [s]."""
SHARE, SHARE_SHORT = 0.5, 0.25
"""Share of the search's first guess above the limit, which mostly is too much, that the warm-up
offers. The second one is for a short warm-up, whose only reading has to show how far the limit
is."""

LOOK_S, LOOK_BEGUN_S = 4.0, 2.0
LOOKS_MAX = 3
"""When the load left no idle time, up to `LOOKS_MAX` readings follow at a half, a quarter and an
eighth of it. Each takes `LOOK_S`, after at most `LOOK_BEGUN_S` of the same load [s], and saves a
trial."""

BUSY_LEAST = 0.2
"""Busy share of the generator's busiest task from which it shows what the generator can offer
[ratio]."""

_ROOM = "the brokers' request handlers have room"

FAILED_MAX = 2
"""Number of loads that may fail, for example as an executor is lost, before the run ends."""


@dataclass
class FirstLoads:
    """The loads of a run before its trials.

    Attributes:
        proof: proves the exporters' series by the first load.
        load_max_s: longest time under load [s].
        climbs: whether a search begins near what a climb shows on warm brokers, too.
        at_rest: returns what others do without the run's load, which bounds the first step.
    """

    context: RunContext
    proof: SeriesProof
    load_max_s: float
    climbs: bool = False
    at_rest: Callable[[], AtRest] = AtRest

    def light(self, topics: TopicSet) -> bool:
        """A light load on warm brokers, where one is due; returns whether there was one.

        Raises:
            ConfigError: a series of an exporter disagrees with the load.
            GuardStopError: a guard tripped.
        """
        report = self.context.reporter.report
        if self.climbs and self.load_max_s > 0:
            self.climbs = False
            if can_climb(self.context, topics.message_bytes):
                report(PhaseStarted("a load that grows shows where the search begins"))
                try:
                    self._climb(topics, "climb")
                except (StageFailedError, GeneratorError) as error:  # the first trial shows it
                    report(PhaseStarted(f"the growing load ended early: {error}"))
                return True
            axis = self.context.config.axis.name
            text = f"no load that grows: along {axis} the first trial is the first load"
            report(PhaseStarted(text))
        if not self.proof.is_due:
            return False
        report(PhaseStarted("proving the exporters' series by a light load"))
        pattern = proof_pattern(self.context, topics.message_bytes)
        before = self.proof.poll()
        try:
            load = offer_unscored(self.context, topics, pattern, "proof")
        except (StageFailedError, GeneratorError) as error:
            self.proof.skip(f"the load for it failed: {error}")
        else:
            self.proof.examine(before, load.client, topics, pattern)
        return True

    def warm(self, topics: TopicSet) -> None:
        """Load cold brokers until their cost per request is steady.

        The history of the run keeps the reading at the end of the load. If that left the handlers
        no idle time, short loads of half the size follow, so that the reading shows how far the
        limit is.

        A cold JVM reaches less than half of its speed, and its compilers take a minute or more on
        few cores, so a fixed time would be a guess. A load whose executor is lost is repeated, as a
        trial would be.

        Raises:
            ConfigError: a series of an exporter disagrees with the load.
            StageFailedError, GeneratorError: more than `FAILED_MAX` loads failed.
            GuardStopError: a guard tripped.
        """
        self.climbs = False
        context, size, load_max_s = self.context, topics.message_bytes, self.load_max_s
        context.reporter.report(PhaseStarted("warming up the brokers' JVMs"))
        failed, names, loaded_s = 0, (f"warm-up-{number}" for number in count(1)), 0.0
        climbs = can_climb(context, size)
        while True:
            try:
                if climbs:
                    loaded_s, has_stayed = self._climb(topics, next(names), is_cold=True)
                    if has_stayed or load_max_s - loaded_s < SHORT_S:
                        break
                    climbs = False  # it was too large, and the brokers are cold still
                if loaded_s:
                    half = context.pattern(size, max(1, (context.history.warm_up.load or 1) // 2))
                    pattern = _unscored(context, half, load_max_s - loaded_s)
                else:
                    pattern = warm_up_pattern(context, size, load_max_s)
                steady = SteadyCostWatch(context, pattern)
                self._offer(topics, pattern, next(names), steady.watch)
                loaded_s += steady.loaded_s
                break
            except (StageFailedError, GeneratorError) as error:
                failed += 1
                if failed > FAILED_MAX:
                    raise
                context.reporter.report(PhaseStarted(f"warming up the brokers again: {error}"))
        looks = min(LOOKS_MAX, int((load_max_s - loaded_s) / (LOOK_S + LOOK_BEGUN_S)))
        try:
            self._read_lower_loads(topics, looks, names)
        except (StageFailedError, GeneratorError) as error:  # the first trial will show the limit
            text = f"the warm-up ends without its last reading: {error}"
            context.reporter.report(PhaseStarted(text))

    def _read_lower_loads(self, topics: TopicSet, looks: int, names: Iterator[str]) -> None:
        """Halve the load until it leaves the handlers some idle time."""
        context = self.context
        for _ in range(looks):
            load, idle = context.history.warm_up.load or 0, context.history.warm_up.handler_idle
            if load <= 1 or idle is None or idle > SATURATED_IDLE:
                return
            pattern = context.pattern(topics.message_bytes, load // 2)
            begun_s = min(LOOK_BEGUN_S, context.workload.trial.warmup_s)
            self._offer(topics, _unscored(context, pattern, LOOK_S, begun_s), next(names))

    def _offer(
        self,
        topics: TopicSet,
        pattern: TrafficPattern,
        name: str,
        watch: Watch | None = None,
        climbing: ClimbWatch | None = None,
    ) -> ClientWindow:
        """Offer a load, record the reading of its last seconds, and prove the series by it.

        Args:
            name: name of the load, unique within the run.
            climbing: watches a load that grows.

        Returns:
            The account of the producers.
        """
        history = self.context.history

        def since_s(window: ClientWindow) -> float:
            last_s = window.end_s - SHORT_S
            if climbing is None:
                return last_s
            same_since_s = climbing.same_since_s
            same_s = window.start_s if same_since_s is None else same_since_s
            return max(last_s, same_s + SETTLE_S)

        before, climb = self.proof.poll(), None if climbing is None else climbing.climb
        load = offer_unscored(self.context, topics, pattern, name, watch, since_s, climb)
        known = [each.handler_idle for each in load.windows if each.handler_idle is not None]
        idle = min(known, default=None)
        offers = generator_load(pattern, load.client, self.context.config.goal.validity)
        if climbing is None:
            at_rest = history.warm_up.idle_at_rest
            history.warm_up = WarmUp(pattern.on_axis, idle, None, at_rest, offers)
        else:
            climbing.idle = idle
            seen = (climbing.load, idle, climbing.is_short, climbing.idle_at_rest)
            history.warm_up = WarmUp(*seen, offers)
        self.proof.examine(before, load.client, topics, pattern)
        return load.client

    def _climb(self, topics: TopicSet, name: str, is_cold: bool = False) -> tuple[float, bool]:
        """Offer a load that grows, and record its reading.

        A step that falls short although the handlers have room may have met a moment in which
        brokers or tasks stood still, as cold ones do. So the load grows once more, up to that step.

        Args:
            is_cold: whether the load then stays the same until the cost of a request is steady.

        Returns:
            The length of the load [s], and whether it was not too large.
        """
        offer = partial(self._climb_once, topics, is_cold=is_cold)
        loaded_s, watch = offer(name, self.load_max_s)
        left_s = self.load_max_s - loaded_s
        if watch.is_stalled and left_s >= SHORT_S:
            words = f"{watch.load_words} fell short of the rate although {_ROOM}: once more"
            self.context.reporter.report(PhaseStarted(words))
            again_s, watch = offer(f"{name}-again", left_s, watch.load)
            loaded_s += again_s
        return loaded_s, not watch.was_too_large

    def _climb_once(
        self,
        topics: TopicSet,
        name: str,
        load_max_s: float,
        load_most: int | None = None,
        is_cold: bool = False,
    ) -> tuple[float, ClimbWatch]:
        """Offer a load that grows once.

        Returns:
            The length of the load [s], and what its watch found.

        Args:
            load_max_s: longest time under load [s].
            load_most: the last step, at most; None for that of a warm-up.
        """
        context, at_rest = self.context, self.at_rest()
        heaviest = warm_up_pattern(context, topics.message_bytes, load_max_s).on_axis
        heaviest = min(heaviest, load_most or heaviest)
        step_s = step_length_s(
            context.workload.trial.sample_interval_s, reads_rates=reads_rates(context.source.nodes)
        )
        load_s = share_and_length(load_max_s)[1] if is_cold else load_max_s
        stay_s = min(STEADY_S if is_cold else READ_S, load_s / 3)
        first_max = None  # no first step harms brokers without others
        if not context.config.cluster.is_exclusive:
            one_per_s = context.pattern(topics.message_bytes, 1).mb_per_s * 1e6
            first_max = int(FIRST_SHARE * at_rest.written_per_s / one_per_s)
        climb, most = climb_within(heaviest, load_s, stay_s, step_s, first_max)
        longest_s = load_s if is_cold else climb.steps(most) * step_s + stay_s
        pattern = _unscored(context, context.pattern(topics.message_bytes, most), longest_s)
        has_ended = SteadyCostWatch(context, pattern).has_ended if is_cold else read_and_end
        late_s = LATE_COLD_S if is_cold else LATE_S
        watch = ClimbWatch(context, pattern, climb, has_ended, late_s, at_rest.handler_idle)
        return self._offer(topics, pattern, name, watch.watch, watch).duration_s, watch


def open_gates(context: RunContext, warm_up_max_s: float, *, climbs: bool = False) -> Gates:
    """The gates of a run, after a first measurement of the brokers without its load.

    Args:
        warm_up_max_s: longest warm-up of cold brokers [s]; 0 for no load before the first trial.
        climbs: whether a load grows on warm brokers, too, to show where a search begins.
    """
    proof = SeriesProof(context)
    first = FirstLoads(context, proof, warm_up_max_s, climbs)
    if not warm_up_max_s:
        proof.skip("the cluster's warm_up_max_s is 0")
    gates = Gates(
        context.source,
        context.topics.check,
        context.reporter,
        first.warm if warm_up_max_s else None,
        last_load=context.cluster.last_load,
        prove=first.light,
        write_back=WriteBack(context.hosts),
        reassigns=lambda: ClusterHealth(context.cluster.admin).is_reassigning(),
        is_shared=not context.config.cluster.is_exclusive,
    )
    first.at_rest = lambda: _at_rest(gates)
    context.reporter.report(PhaseStarted("measuring the brokers at rest"))
    rests_since_s = time.time()
    gates.take_baseline()
    if gates.is_shared:
        context.history.warm_up = WarmUp(idle_at_rest=gates.idle_at_rest)
        _report_unguarded(context, gates.level)
    if context.canaries is not None:
        unseen = context.canaries.take_rest(rests_since_s)
        if unseen is not None:
            warn(context.reporter, unseen)
    proof.at_rest = gates.polls_at_rest
    short = gates.under_replicated_at_rest
    if any(short.values()):
        listed = ", ".join(
            f"{count:.0f} on broker {broker}" for broker, count in short.items() if count
        )
        context.reporter.report(
            PhaseStarted(
                f"partitions of other topics are under-replicated already ({listed}); only further "
                "ones count against the load"
            )
        )
    return gates


def _report_unguarded(context: RunContext, level: Level | None) -> None:
    """State which harm to others no guard sees, and why; require it where limits fail closed."""
    limits, report = context.guards.limits, context.reporter.report
    if limits.others_fall_max and level and level.is_notable and not level.is_guarded:
        report(
            PhaseStarted(
                f"other clients write {level.messages.mean:,.0f} messages/s: the guard of their "
                f"throughput (guards.others_fall_max) is off up to {MESSAGES_LEAST_PER_S:.0f}"
            )
        )
    known = level or Level()
    has_quorum = all(each.has_quorum for each in context.source.nodes.values())
    lacks = []
    if limits.others_fall_max and level is None:
        lacks.append("how much others write (others_fall_max), which the metrics do not show")
    if limits.others_errors_per_s_max and not knows_own_errors(
        each.producer for each in context.workload.parts
    ):
        lacks.append(
            "the errors that others get (others_errors_per_s_max), as producers of a client "
            "library, or with acks 0, do not count those of the run"
        )
    elif limits.others_errors_per_s_max and known.errors is None:
        lacks.append(
            "the errors that others get (others_errors_per_s_max), which the metrics do not show"
        )
    if limits.controller_queue_ms_max and has_quorum and known.controller_queue_ms is None:
        lacks.append(
            "the controller's queue (controller_queue_ms_max), which no controller's metrics show"
        )
    if not lacks:
        return
    text = f"no guard watches {'; nor '.join(lacks)}"
    if limits.fail_closed:
        context.guards.require_or_warn(text)
    report(PhaseStarted(text))


def _at_rest(gates: Gates) -> AtRest:
    level = gates.level
    return AtRest(0.0 if level is None else level.written.mean, gates.idle_at_rest)


def proof_pattern(context: RunContext, message_bytes: int) -> TrafficPattern:
    """The lightest load that proves the exporters' series, at most that of a warm-up."""
    heaviest = warm_up_pattern(context, message_bytes, 2 * SHORT_S).on_axis
    load = 1
    while True:
        pattern = _unscored(context, context.pattern(message_bytes, load), SHORT_S)
        if load >= heaviest or is_enough(pattern, context.brokers):
            return pattern
        load = min(2 * load, heaviest)


def is_steady(costs: Sequence[float], interval_s: float) -> bool:
    """Whether the cost of a request has been steady for `STEADY_S`.

    The slope of a straight line through the costs decides, as one second differs from the next
    by 10 % on brokers that have been warm for a long time.

    Args:
        costs: the cost in each interval, oldest first, in any unit.
        interval_s: length of an interval [s].
    """
    number = max(COSTS_LEAST, math.ceil(STEADY_S / interval_s))
    last = costs[-number:]
    if len(last) < number:
        return False
    fall = -linear_regression(range(number), last).slope / interval_s
    return fall * FALL_OVER_S <= FALL_MOST * fmean(last)


class SteadyCostWatch:
    """Ends a load once the cost of a request is steady.

    Attributes:
        loaded_s: length of the load, once it has ended [s].
    """

    def __init__(self, context: RunContext, pattern: TrafficPattern) -> None:
        self._context = context
        self._phases = pattern.phases
        self.loaded_s = self._phases.measure_s

    def watch(
        self, channel: TaskChannel, sampler: Sampler[BrokerSample]
    ) -> AbstractContextManager[None]:
        """Watch while the block lasts; check after each sample, and end the load once."""
        interval_s = self._phases.sample_interval_s

        def look() -> float | None:
            has_ended = self.has_ended(channel, sampler.samples_taken(), time.time())
            return None if has_ended else interval_s

        return watching("warm-up", look, interval_s, channel.fail)

    def has_ended(
        self,
        channel: TaskChannel,
        samples: Sequence[BrokerSample],
        now_s: float,
        since_s: float | None = None,
    ) -> bool:
        """Whether the load ends now, by the samples up to `now_s` [s since the epoch].

        Args:
            since_s: since when the load is the same; since its start by default.
        """
        if channel.start_s is None or now_s <= channel.start_s:
            return False
        since_s = channel.start_s if since_s is None else since_s
        loaded_s = now_s - channel.start_s
        costs_ms = costs_between(samples, brokers_of(self._context.source), since_s)
        cost = f", {costs_ms[-1]:.2f} ms a request" if costs_ms else ""
        self._context.reporter.report(PhaseProgress(f"{loaded_s:.0f} s of load{cost}"))
        is_blind = not costs_ms and now_s - since_s >= SHORT_S  # brokers do not show their costs
        if not is_blind and not is_steady(costs_ms, self._phases.sample_interval_s):
            return False
        end_s = loaded_s + NOTICE_S
        if end_s < self._phases.measure_s:
            channel.end_after(end_s)
            self.loaded_s = end_s
        return True


def costs_between(
    samples: Sequence[BrokerSample], brokers: Iterable[int], start_s: float
) -> list[float]:
    """The mean cost of a request over the brokers, between each sample and the next [ms].

    Intervals without requests are left out. The last interval is the last one that every broker
    shows.

    Args:
        start_s: earlier samples are left out [s since the epoch].
    """
    good, by_broker = good_samples(samples), []
    for broker_id in brokers:
        inside = [each for each in good.get(broker_id, ()) if each.at_s >= start_s]
        by_broker.append([_cost_ms(broker_id, *edges) for edges in pairwise(inside)])
    known = ([cost for cost in each if cost is not None] for each in zip(*by_broker, strict=False))
    return [fmean(costs) for costs in known if costs]


def _cost_ms(broker_id: int, first: BrokerSample, last: BrokerSample) -> float | None:
    span_s = last.at_s - first.at_s
    window = broker_window((first, last), broker_id, first.at_s, last.at_s, span_s)
    return handler_cost_ms(window)


def generator_load(pattern: TrafficPattern, client: ClientWindow, validity: Validity) -> int | None:
    """The highest load that the generator can offer, by the busy share of its busiest task.

    None where the task was hardly busy, as most of its time is then not that of records.
    """
    busy = client.counts.loop_busy
    if busy < BUSY_LEAST or client.duration_s <= 0:
        return None
    offered = client.counts.sent_records / client.duration_s / pattern.records_per_s
    return max(1, int(pattern.on_axis * offered * validity.loop_busy_max / busy))


def can_climb(context: RunContext, message_bytes: int) -> bool:
    """Whether a load can grow by its producers: their number, or the scale of a mix, is the
    searched axis, and they keep a rate.
    """
    axis = context.config.axis
    return axis in {NP, SCALE} and not context.pattern(message_bytes, 1).producer.closed_loop


def share_and_length(load_max_s: float) -> tuple[float, float]:
    """The share of the first guess above the limit to offer, and its longest time [s].

    Args:
        load_max_s: longest time under load, all readings included [s].
    """
    room_s = max(load_max_s / 2, load_max_s - LOOK_BEGUN_S - LOOK_S)
    if load_max_s >= 2 * SHORT_S:
        return SHARE, room_s
    return SHARE_SHORT, min(SHORT_S, room_s)


def warm_up_pattern(context: RunContext, message_bytes: int, load_max_s: float) -> TrafficPattern:
    """The first load of a warm-up: a share of the search's first guess above the limit, or less
    where the guards allow less.

    Args:
        load_max_s: longest time under load, all readings included [s].
    """
    share, load_s = share_and_length(load_max_s)
    load = max(1, int(context.config.goal.search.load_start_max * share))
    while True:
        pattern = _unscored(context, context.pattern(message_bytes, load), load_s)
        if load == 1 or context.guards.cap_violation(pattern) is None:
            return pattern
        load //= 2


def _unscored(
    context: RunContext, pattern: TrafficPattern, measure_s: float, begun_s: float = 0.0
) -> TrafficPattern:
    """The same pattern, measured for `measure_s` after `begun_s` of the same load [s]."""
    trial = context.workload.trial
    phases = replace(trial, ramp_up_s=0.0, warmup_s=begun_s, measure_s=measure_s, volume_bytes=None)
    return pattern.with_phases(phases)


def handler_cost_ms(window: BrokerWindow) -> float | None:
    """Busy time of one handler for a produce request, divided by the number of handlers [ms].

    It includes the fetches of followers.
    """
    idle, rate = window.handler_idle, window.produce.per_s
    if idle is None or not rate:
        return None
    return 1000.0 * max(0.0, 1.0 - idle) / rate
