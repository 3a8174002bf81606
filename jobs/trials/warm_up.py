"""The loads before the first trial: a growing load (a climb), and the warm-up of cold brokers.

A guessed load for the first trial could be many times the limit of a shared cluster. A climb begins
with a load that is a small share of the other clients' load. Every few seconds, the load of the
climb grows, but at most to twice the previous load. The climb ends within two seconds after a step
that is too large. The growing load (the climb) determines only the first load of the search; no
limit is computed from its readings. On cold brokers, whose JVMs have just started, the climb stays
at its last load until the brokers no longer become faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from statistics import fmean, linear_regression

from jobs.cluster.topic_set import TopicSet
from jobs.console.events import PhaseProgress, PhaseStarted
from jobs.trials.context import RunContext
from jobs.trials.load import GeneratorError
from jobs.trials.running_load import NOTICE_S, RunningLoad, Watcher, ends_once
from jobs.trials.series_proof import SeriesProof, is_enough
from jobs.trials.unscored_load import offer_unscored, unscored
from metrics.judging.running import (
    LATE_COLD_S,
    LATE_S,
    SETTLE_S,
    Climbing,
    StepReading,
    lowest_idle,
)
from metrics.judging.thresholds import Validity
from metrics.sources.one_minute_rates import TICK_S, reads_rates
from metrics.sources.sample import BrokerSample
from metrics.traffic.axes import NP, SCALE, axis_named
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import Climb
from metrics.trial.client import ClientWindow
from metrics.trial.trial import WarmUp
from metrics.windows.broker import BrokerWindow, broker_window, good_samples
from search.signals import SATURATED_IDLE

STEP_S = 2.0
STEP_SAMPLES = 3
"""Length of a step of a growing load (a climb): the longer of two times, `STEP_S` [s] and
`STEP_SAMPLES` sampling intervals. If the idle time is computed from one-minute rates, a step can be
longer than both times.
"""
READ_S = 4.0
"""Length of the last step of a climb on warm brokers [s]."""
FIRST_SHARE = 0.05
"""Largest first step of a climb on a shared cluster, as a share of the bytes that other clients
write [ratio].
"""
CLIMB_LOOK_S = 0.25
"""Interval between two checks of a climb [s]."""


def step_length_s(sample_interval_s: float, *, reads_rates: bool = False) -> float:
    """Length of a step of a climb [s].

    Args:
        sample_interval_s: time between two samples [s].
        reads_rates: whether the idle time is computed from one-minute rates, so that each step must
            contain an update of these rates.
    """
    ticks_s = 2 * TICK_S + sample_interval_s if reads_rates else 0.0
    return max(STEP_S, STEP_SAMPLES * sample_interval_s, ticks_s)


def climb_within(
    most: int, load_max_s: float, stay_s: float, step_s: float, first_max: int | None
) -> tuple[Climb, int]:
    """The climb that fits into a given time, and the load of the climb's last step.

    Args:
        most: upper bound of the load of the last step.
        load_max_s: longest time under load [s].
        stay_s: time for which the load stays after the last step [s].
        step_s: length of a step [s].
        first_max: largest load of the first step; None for no bound.
    """
    steps = max(1, int((load_max_s - stay_s) / step_s))
    first = max(1, -(-most // (1 << steps - 1)))
    if first_max is not None:
        first = min(first, max(1, first_max))
    return Climb(first, step_s), min(most, first << steps - 1)


@dataclass(frozen=True)
class AtRest:
    """The brokers' readings without the run's load; other clients may load the brokers.

    Attributes:
        written_per_s: bytes that other clients write [B/s].
        handler_idle: lowest idle fraction of any broker's request handlers [ratio].
        polls: the first and the last poll of the brokers before the run.
    """

    written_per_s: float = 0.0
    handler_idle: float = 1.0
    polls: tuple[Sequence[BrokerSample], Sequence[BrokerSample]] = ((), ())


@dataclass
class ClimbWatch:
    """Watches a growing load, stops its growth, and ends the load.

    Args:
        context: the open resources of the run.
        pattern: the traffic of the last possible step.
        climb: the steps of the load.
        is_over: returns whether the load may end after its growth stopped; see `ends_once`.
        late_s: longest time [s] for which records may wait in addition to the producers' linger.
        idle_at_rest: lowest idle fraction of any broker's request handlers before the run [ratio].

    Attributes:
        load: the load of the current step, on the searched axis.
        same_since_s: the time at which the growth stopped [s since the epoch]; None while the load
            grows.
        is_short: whether the brokers acknowledged less than the offered load.
        was_too_large: whether the load ended because its last step was too large.
        idle: lowest idle fraction of any broker's request handlers at the end of the load [ratio];
            None if it is unknown.
    """

    context: RunContext
    pattern: TrafficPattern
    climb: Climb
    is_over: Callable[[RunningLoad, float, float], bool]
    late_s: float = LATE_S
    idle_at_rest: float = 1.0
    load: int = 0
    same_since_s: float | None = None
    is_short: bool = False
    was_too_large: bool = False
    idle: float | None = None
    _offered: float = 0.0
    _seen_s: float = 0.0

    @property
    def load_words(self) -> str:
        """The load in words: `64 producers`, or `0.64 times the mix`."""
        return axis_named(self.pattern.axis).amount(self.load)

    @property
    def _idle_min(self) -> float:
        return self.context.config.goal.indicators.request_handler_idle_min

    @property
    def is_stalled(self) -> bool:
        """Whether the brokers acknowledged too little in the last step although their handlers had
        idle time.
        """
        last = StepReading(self.idle, 0.0, idle_at_rest=self.idle_at_rest)
        return self.is_short and last.has_room(self._idle_min)

    def watch(self, running: RunningLoad) -> AbstractContextManager[None]:
        """Watch a load while the block lasts."""
        return running.looked_at("climb", partial(self.look, running), CLIMB_LOOK_S)

    def look(self, running: RunningLoad, now_s: float) -> float | None:
        """Check once, and decide whether the load grows, stays or ends.

        Args:
            running: the running load.
            now_s: the driver's time [s since the epoch].

        Returns:
            The time until the next check [s]; None once the end of the load is set.
        """
        start_s = running.channel.start_s
        if start_s is None or now_s <= start_s:
            return CLIMB_LOOK_S
        is_growing = self.same_since_s is None
        step = self.climb.step_at(now_s - start_s)
        if is_growing:
            self.load = self.climb.load_in(step, self.pattern.on_axis)
        begun_s = self.same_since_s or start_s + step * self.climb.step_s
        reading = self._read(running, start_s, begun_s, now_s)
        decision = reading.next(self._idle_min)
        if decision is Climbing.END:
            self.is_short, self.was_too_large = reading.is_short, True
            self.same_since_s = begun_s
        if decision is Climbing.END or (not is_growing and self.is_over(running, now_s, begun_s)):
            running.end_soon(now_s)
            return None
        if not is_growing:
            return CLIMB_LOOK_S
        idle = "" if reading.idle is None else f", handlers idle {reading.idle:.2f}"
        self.context.reporter.report(PhaseProgress(f"{self.load_words}{idle}"))
        if decision is Climbing.STAY:
            running.channel.end_climb_after(now_s - start_s)
        if decision is Climbing.STAY or self.load == self.pattern.on_axis:
            self.same_since_s = begun_s
        return CLIMB_LOOK_S

    def _read(
        self, running: RunningLoad, start_s: float, begun_s: float, now_s: float
    ) -> StepReading:
        """The reading of the current step."""
        per_s = self.load * self.pattern.records_per_s / self.pattern.on_axis
        passed_s = now_s - max(self._seen_s, start_s)
        self._seen_s, self._offered = now_s, self._offered + per_s * passed_s
        waiting = max(0.0, self._offered - running.channel.written)
        samples, since_s = running.samples.nodes, begun_s + SETTLE_S
        idle = lowest_idle(samples, running.brokers, since_s, now_s)
        late_s = _linger_s(self.pattern) + self.late_s
        return StepReading(idle, waiting / per_s, late_s, self.idle_at_rest)


def _linger_s(pattern: TrafficPattern) -> float:
    """The linger of the producers [s]; for a mix, the mean over all records."""
    waiting = sum(each.records_per_s * each.producer.options.linger_ms for each in pattern.loads)
    return waiting / pattern.records_per_s / 1000.0


def is_read(_load: RunningLoad, now_s: float, since_s: float) -> bool:
    """Whether the load on warm brokers has been constant for `READ_S`."""
    return now_s - since_s >= READ_S - NOTICE_S


STEADY_S = 12.0
"""Brokers are warm once the cost of a request has been steady for this time [s]."""
FALL_MOST, FALL_OVER_S = 0.05, 10.0
"""The cost of a request is steady if it falls by at most the share `FALL_MOST` [ratio] within
`FALL_OVER_S` [s].
"""
COSTS_LEAST = 4
"""Minimum number of measured request costs that are necessary to call the cost steady. This minimum
matters only if samples are rare.
"""

SHORT_S = 10.0
"""Length of a load that cannot wait for a steady cost, because the time is short or the cost is
unknown [s]. The readings of each load are taken over the last `SHORT_S` of the load.
"""
SHARE, SHARE_SHORT = 0.5, 0.25
"""Share of `search.load_start_max` that the warm-up offers [ratio]. `SHARE_SHORT` is for a short
warm-up. A short warm-up has only one reading, which has to show how far away the limit is.
"""

LOOK_S, LOOK_BEGUN_S = 4.0, 2.0
LOOKS_MAX = 3
"""If the handlers had no idle time under the load, up to `LOOKS_MAX` readings follow, at 1/2, 1/4
and 1/8 of the load. A reading takes `LOOK_S` [s] and begins at most `LOOK_BEGUN_S` [s] after the
start of its load. Each of these readings makes a trial of the search unnecessary.
"""

BUSY_LEAST = 0.2
"""The highest load that the generator can offer is estimated only if the generator's busiest task
was busy for at least this share of the time [ratio].
"""

FAILED_MAX = 2
"""Number of loads that may fail, for example because an executor is lost, before the run ends."""


class FirstLoads:
    """Offers the loads of a run before its trials.

    Args:
        context: the open resources of the run.
        load_max_s: longest time under load [s].
        climbs: whether a climb determines the first load of the search even if the brokers are
            warm.

    Attributes:
        proof: the test whether the exporters' series change as expected under the first load.
    """

    def __init__(self, context: RunContext, load_max_s: float, climbs: bool = False) -> None:
        self._context = context
        self._load_max_s = load_max_s
        self._climbs = climbs
        self.proof = SeriesProof(context)

    def _report(self, text: str) -> None:
        self._context.reporter.report(PhaseStarted(text))

    def light(self, topics: TopicSet, at_rest: AtRest) -> bool:
        """Offer a light load on warm brokers if such a load is due; return whether a load was
        offered.

        Args:
            topics: the topics of the load.
            at_rest: the brokers' readings without the run's load. On a shared cluster, the first
                step of a growing load is bounded by the bytes that other clients write.

        Raises:
            ConfigError: a series of an exporter disagrees with the load.
            GuardStopError: a guard tripped.
        """
        context = self._context
        if self._climbs:
            self._climbs = False
            if can_climb(context, topics.message_bytes):
                self._report("a growing load shows where the search begins")
                try:
                    self._climb(topics, "climb", at_rest)
                except GeneratorError as error:  # the first trial shows it
                    self._report(f"the growing load ended early: {error}")
                return True
            axis = context.config.axis.name
            self._report(f"a load cannot grow along {axis}, so the first trial is the first load")
        if not self.proof.is_due:
            return False
        self._report("proving the exporters' series by a light load")
        pattern = proof_pattern(context, topics.message_bytes)
        before = self.proof.poll()
        try:
            load = offer_unscored(context, topics, pattern, "proof")
        except GeneratorError as error:
            self.proof.skip(f"the load that tests the exporters' series failed: {error}")
        else:
            self.proof.examine((*at_rest.polls, before), load.client, topics, pattern)
        return True

    def warm(self, topics: TopicSet, at_rest: AtRest) -> None:
        """Load cold brokers until their cost per request is steady.

        At the end of the load, the brokers are read; the history of the run keeps this reading. If
        the handlers had no idle time under the load, short loads follow until a reading shows how
        far away the limit is. Each short load is half as large as the previous load.

        The load has no fixed length: a cold JVM reaches less than half of its speed, and on few
        cores its compilers need a minute or more. If an executor is lost, the load is repeated.

        Raises:
            ConfigError: a series of an exporter disagrees with the load.
            GeneratorError: more than `FAILED_MAX` loads failed.
            GuardStopError: a guard tripped.
        """
        self._climbs = False
        context, size, load_max_s = self._context, topics.message_bytes, self._load_max_s
        self._report("warming up the brokers' JVMs")
        failed, names, loaded_s = 0, (f"warm-up-{number}" for number in count(1)), 0.0
        climbs = can_climb(context, size)
        while True:
            try:
                if climbs:
                    loaded_s, has_stayed = self._climb(topics, next(names), at_rest, is_cold=True)
                    if has_stayed or load_max_s - loaded_s < SHORT_S:
                        break
                    climbs = False  # the load was too large, and the brokers are still cold
                if loaded_s:
                    half = context.pattern(size, max(1, (context.history.warm_up.load or 1) // 2))
                    pattern = unscored(half, load_max_s - loaded_s)
                else:
                    pattern = warm_up_pattern(context, size, load_max_s)
                watch = ends_once("warm-up", is_warm, pattern.phases.sample_interval_s)
                loaded_s += self._offer(topics, pattern, next(names), at_rest, watch)
                break
            except GeneratorError as error:
                failed += 1
                if failed > FAILED_MAX:
                    raise
                self._report(f"warming up the brokers again: {error}")
        looks = min(LOOKS_MAX, int((load_max_s - loaded_s) / (LOOK_S + LOOK_BEGUN_S)))
        try:
            for _ in range(looks):  # halve the load until the handlers have some idle time
                load, idle = context.history.warm_up.load or 0, context.history.warm_up.handler_idle
                if load <= 1 or idle is None or idle > SATURATED_IDLE:
                    return
                begun_s = min(LOOK_BEGUN_S, context.workload.trial.warmup_s)
                pattern = unscored(context.pattern(size, load // 2), LOOK_S, begun_s)
                self._offer(topics, pattern, next(names), at_rest)
        except GeneratorError as error:  # the first trial will show the limit
            self._report(f"the warm-up ends without its last reading: {error}")

    def _offer(
        self,
        topics: TopicSet,
        pattern: TrafficPattern,
        name: str,
        at_rest: AtRest,
        watch: Watcher = nullcontext,
        climbing: ClimbWatch | None = None,
    ) -> float:
        """Offer a load, keep the reading of its last seconds, and test the exporters' series with
        this load if the test is due.

        Args:
            topics: the topics of the load.
            pattern: the traffic of the load.
            name: name of the load, unique within the run.
            at_rest: the readings without the run's load.
            watch: watches the load.
            climbing: watches the load if the load grows, and then replaces `watch`.

        Returns:
            The length of the load [s].
        """
        history = self._context.history

        def since_s(window: ClientWindow) -> float:
            last_s = window.end_s - SHORT_S
            if climbing is None:
                return last_s
            return max(last_s, (climbing.same_since_s or window.start_s) + SETTLE_S)

        before, climb = self.proof.poll(), climbing.climb if climbing else None
        watch = watch if climbing is None else climbing.watch
        load = offer_unscored(self._context, topics, pattern, name, watch, since_s, climb)
        known = [each.handler_idle for each in load.windows if each.handler_idle is not None]
        idle = min(known, default=None)
        offers = generator_load(pattern, load.client, self._context.config.goal.validity)
        if climbing is None:
            idle_at_rest = history.warm_up.idle_at_rest
            history.warm_up = WarmUp(pattern.on_axis, idle, None, idle_at_rest, offers)
        else:
            climbing.idle = idle
            seen = (climbing.load, idle, climbing.is_short, climbing.idle_at_rest)
            history.warm_up = WarmUp(*seen, offers)
        self.proof.examine((*at_rest.polls, before), load.client, topics, pattern)
        return load.client.duration_s

    def _climb(
        self, topics: TopicSet, name: str, at_rest: AtRest, is_cold: bool = False
    ) -> tuple[float, bool]:
        """Offer a growing load, and keep its reading.

        If brokers acknowledge too little in a step although their handlers have idle time, a short
        pause of cold brokers or of tasks may be the reason. In this case, a second growing load
        follows. The second load grows at most to the load of the step in which brokers acknowledged
        too little.

        Args:
            topics: the topics of the load.
            name: name of the load, unique within the run.
            at_rest: the readings without the run's load.
            is_cold: whether brokers are cold, so that the last step lasts until the cost of a
                request is steady.

        Returns:
            The time under load [s], and whether the brokers could take the last step: False if the
                load of the last step was too large.
        """
        loaded_s, watch = self._climb_once(topics, name, at_rest, self._load_max_s, None, is_cold)
        left_s = self._load_max_s - loaded_s
        if watch.is_stalled and left_s >= SHORT_S:
            self._report(
                f"brokers acknowledged too little of {watch.load_words} although their request "
                "handlers have idle time: the load grows once more"
            )
            name = f"{name}-again"
            again_s, watch = self._climb_once(topics, name, at_rest, left_s, watch.load, is_cold)
            loaded_s += again_s
        return loaded_s, not watch.was_too_large

    def _climb_once(
        self,
        topics: TopicSet,
        name: str,
        at_rest: AtRest,
        load_max_s: float,
        load_most: int | None,
        is_cold: bool,
    ) -> tuple[float, ClimbWatch]:
        """Offer a growing load once.

        Args:
            topics: the topics of the load.
            name: name of the load, unique within the run.
            at_rest: the readings without the run's load.
            load_max_s: longest time under load [s].
            load_most: upper bound of the load of the last step; None if the largest load of a
                warm-up is the only bound.
            is_cold: see `_climb`.

        Returns:
            The length of the load [s], and the `ClimbWatch` that has watched the load.
        """
        context, size = self._context, topics.message_bytes
        heaviest = warm_up_pattern(context, size, load_max_s).on_axis
        heaviest = min(heaviest, load_most or heaviest)
        interval_s, rates = (
            context.workload.trial.sample_interval_s,
            reads_rates(context.source.nodes),
        )
        step_s = step_length_s(interval_s, reads_rates=rates)
        load_s = share_and_length(load_max_s)[1] if is_cold else load_max_s
        stay_s = min(STEADY_S if is_cold else READ_S, load_s / 3)
        first_max = None  # without other clients, any first step is allowed
        if not context.config.cluster.is_exclusive:
            one_per_s = context.pattern(size, 1).mb_per_s * 1e6
            first_max = int(FIRST_SHARE * at_rest.written_per_s / one_per_s)
        climb, most = climb_within(heaviest, load_s, stay_s, step_s, first_max)
        longest_s = load_s if is_cold else climb.steps(most) * step_s + stay_s
        pattern = unscored(context.pattern(size, most), longest_s)
        is_over, late_s = (is_warm, LATE_COLD_S) if is_cold else (is_read, LATE_S)
        watch = ClimbWatch(context, pattern, climb, is_over, late_s, at_rest.handler_idle)
        return self._offer(topics, pattern, name, at_rest, climbing=watch), watch


def proof_pattern(context: RunContext, message_bytes: int) -> TrafficPattern:
    """The traffic of the lightest load that is large enough to test the exporters' series. This
    load is at most the load of a warm-up.
    """
    heaviest = warm_up_pattern(context, message_bytes, 2 * SHORT_S).on_axis
    load = 1
    while True:
        pattern = unscored(context.pattern(message_bytes, load), SHORT_S)
        if load >= heaviest or is_enough(pattern, context.brokers):
            return pattern
        load = min(2 * load, heaviest)


def is_steady(costs: Sequence[float], interval_s: float) -> bool:
    """Whether the cost of a request has been steady for `STEADY_S`.

    Steadiness is judged by the slope of a straight line through the costs, because the costs of
    consecutive seconds differ by 10 % even on warm brokers.

    Args:
        costs: the cost of a request in each interval, oldest first, in any unit.
        interval_s: length of an interval [s].
    """
    number = max(COSTS_LEAST, math.ceil(STEADY_S / interval_s))
    last = costs[-number:]
    if len(last) < number:
        return False
    fall = -linear_regression(range(number), last).slope / interval_s
    return fall * FALL_OVER_S <= FALL_MOST * fmean(last)


def is_warm(load: RunningLoad, now_s: float, since_s: float) -> bool:
    """Whether brokers are warm, because the cost of a request is steady. The function also reports
    the progress.

    If the cost is unknown, brokers are warm after `SHORT_S` of load.

    Args:
        load: the running load.
        now_s: the driver's time [s since the epoch].
        since_s: the time of the last change of the load [s since the epoch].
    """
    loaded_s = now_s - (load.channel.start_s or since_s)
    costs_ms = costs_between(load.samples.nodes, load.brokers, since_s)
    cost = f", {costs_ms[-1]:.2f} ms a request" if costs_ms else ""
    load.context.reporter.report(PhaseProgress(f"{loaded_s:.0f} s of load{cost}"))
    if not costs_ms and now_s - since_s >= SHORT_S:
        return True
    return is_steady(costs_ms, load.interval_s)


def costs_between(
    samples: Sequence[BrokerSample], brokers: Iterable[int], start_s: float
) -> list[float]:
    """The cost of a request [ms] in each interval between two samples, as the mean over all
    brokers.

    Intervals without requests are left out. The result ends with the last interval that has samples
    of every broker.

    Args:
        samples: samples of the nodes, oldest first.
        brokers: ids of the brokers.
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
    """The highest load that the generator can offer, computed from the busy share of its busiest
    task.

    The result is None if the busiest task was busy for a smaller share of the time than
    `BUSY_LEAST`. A task that is mostly idle spends little of its time on records, so its busy share
    does not show the highest load.
    """
    busy = client.counts.loop_busy
    if busy < BUSY_LEAST or client.duration_s <= 0:
        return None
    offered = client.counts.sent_records / client.duration_s / pattern.records_per_s
    return max(1, int(pattern.on_axis * offered * validity.loop_busy_max / busy))


def can_climb(context: RunContext, message_bytes: int) -> bool:
    """Whether a load can grow by adding producers: the searched axis is the number of producers or
    the scale of a mix, and the producers have a fixed rate.
    """
    axis = context.config.axis
    return axis in {NP, SCALE} and not context.pattern(message_bytes, 1).producer.closed_loop


def share_and_length(load_max_s: float) -> tuple[float, float]:
    """The share of `search.load_start_max` that a warm-up offers, and the longest time of this load
    [s].

    Args:
        load_max_s: longest time under load, all readings included [s].
    """
    room_s = max(load_max_s / 2, load_max_s - LOOK_BEGUN_S - LOOK_S)
    if load_max_s >= 2 * SHORT_S:
        return SHARE, room_s
    return SHARE_SHORT, min(SHORT_S, room_s)


def warm_up_pattern(context: RunContext, message_bytes: int, load_max_s: float) -> TrafficPattern:
    """The first load of a warm-up: a share of `search.load_start_max`, or less if the guards allow
    less.

    Args:
        context: the open resources of the run.
        message_bytes: message size [B].
        load_max_s: longest time under load, all readings included [s].
    """
    share, load_s = share_and_length(load_max_s)
    load = max(1, int(context.config.goal.search.load_start_max * share))
    while True:
        pattern = unscored(context.pattern(message_bytes, load), load_s)
        if load == 1 or context.guards.cap_violation(pattern) is None:
            return pattern
        load //= 2


def handler_cost_ms(window: BrokerWindow) -> float | None:
    """The busy time of a broker's request handlers for each produce request [ms]: the sum over all
    handlers, divided by the number of handlers.

    The busy time includes the work for the followers' fetch requests.
    """
    idle, rate = window.handler_idle, window.produce.per_s
    if idle is None or not rate:
        return None
    return 1000.0 * max(0.0, 1.0 - idle) / rate
