"""The first load of a run: it grows from a small one until it shows where the limit lies.

A trial at a guess may be many times what the brokers of others can take. A climb begins with a
small share of what they take anyway, at most doubles every few seconds, and ends within two seconds
of a step that is too large. It bounds nothing; it tells the search where to begin. Cold brokers are
warmed by the load at which it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from jobs.console.events import PhaseProgress
from jobs.trials.context import RunContext
from jobs.trials.running_load import NOTICE_S, RunningLoad
from metrics.judging.running import LATE_S, SETTLE_S, Climbing, StepReading, lowest_idle
from metrics.sources.one_minute_rates import TICK_S
from metrics.sources.sample import BrokerSample
from metrics.traffic.axes import axis_named
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import Climb

STEP_S = 2.0
STEP_SAMPLES = 3
"""A step lasts `STEP_S`, and at least `STEP_SAMPLES` intervals of sampling [s]."""
READ_S = 4.0
"""Length of the load at which a climb stays, on warm brokers [s]."""
FIRST_SHARE = 0.05
"""The first step on brokers of others, as a share of what others write [ratio]."""
LOOK_S = 0.25
"""Interval between two looks at a climb [s]."""


def step_length_s(sample_interval_s: float, *, reads_rates: bool = False) -> float:
    """Length of a step [s].

    Args:
        sample_interval_s: time between two samples [s].
        reads_rates: whether the idle time follows from one-minute rates; a step then has a whole
            tick.
    """
    ticks_s = 2 * TICK_S + sample_interval_s if reads_rates else 0.0
    return max(STEP_S, STEP_SAMPLES * sample_interval_s, ticks_s)


def climb_within(
    most: int, load_max_s: float, stay_s: float, step_s: float, first_max: int | None
) -> tuple[Climb, int]:
    """The climb to at most a load that fits into a time, and its last load.

    Args:
        most: load of the last step, at most.
        load_max_s: longest time under load [s].
        stay_s: time after the last step [s].
        step_s: length of a step [s].
        first_max: load of the first step, at most; None for no bound.
    """
    steps = max(1, int((load_max_s - stay_s) / step_s))
    first = max(1, -(-most // (1 << steps - 1)))
    if first_max is not None:
        first = min(first, max(1, first_max))
    return Climb(first, step_s), min(most, first << steps - 1)


@dataclass(frozen=True)
class AtRest:
    """The brokers without the run's load, beside others who may use them.

    Attributes:
        written_per_s: bytes that others write [B/s].
        handler_idle: lowest idle fraction of any broker's handlers [ratio].
        polls: two polls of the brokers before the run, its first and its last.
    """

    written_per_s: float = 0.0
    handler_idle: float = 1.0
    polls: tuple[Sequence[BrokerSample], Sequence[BrokerSample]] = ((), ())


@dataclass
class ClimbWatch:
    """Watches a growing load, ends its growth, and ends the load.

    Args:
        pattern: the traffic of the last step.
        is_over: whether the load at which the climb stays has its answer; see `ends_once`.
        late_s: how long records may wait beside the producers' linger [s].
        idle_at_rest: lowest idle fraction of any broker's handlers before the run [ratio].

    Attributes:
        load: the load of the step, on the searched axis.
        same_since_s: since when the load is the same [s since the epoch]; None while it grows.
        is_short: whether the brokers took less than they were offered.
        was_too_large: whether the last step ended the load.
        idle: lowest idle fraction of any broker's handlers at the end of the load [ratio]; None
            where it is not known.
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
        """Whether the last step fell short although the handlers had room."""
        last = StepReading(self.idle, 0.0, idle_at_rest=self.idle_at_rest)
        return self.is_short and last.has_room(self._idle_min)

    def watch(self, running: RunningLoad) -> AbstractContextManager[None]:
        """Watch while the block lasts."""
        return running.looked_at("climb", partial(self.look, running), LOOK_S)

    def look(self, running: RunningLoad, now_s: float) -> float | None:
        """Look once, and return the time until the next look [s]; None once the end is set.

        Args:
            now_s: the driver's time [s since the epoch].
        """
        start_s = running.channel.start_s
        if start_s is None or now_s <= start_s:
            return LOOK_S
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
            return LOOK_S
        idle = "" if reading.idle is None else f", handlers idle {reading.idle:.2f}"
        self.context.reporter.report(PhaseProgress(f"{self.load_words}{idle}"))
        if decision is Climbing.STAY:
            running.channel.end_climb_after(now_s - start_s)
        if decision is Climbing.STAY or self.load == self.pattern.on_axis:
            self.same_since_s = begun_s
        return LOOK_S

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
    """How long the producers' linger lets records wait; in a mix, the mean over all records [s]."""
    waiting = sum(each.records_per_s * each.producer.options.linger_ms for each in pattern.loads)
    return waiting / pattern.records_per_s / 1000.0


def is_read(_load: RunningLoad, now_s: float, since_s: float) -> bool:
    """Whether a load has been the same for `READ_S`, for the reading of warm brokers."""
    return now_s - since_s >= READ_S - NOTICE_S
