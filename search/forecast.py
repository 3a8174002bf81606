"""The forecast of the cost of a boundary line, and an estimate of the remaining trials during the
run.

The forecast measures the line on simulated clusters. The limit of each simulated cluster is a
random number between load_start_max / 8 and 2 x load_start_max.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from search.budget import Spent
from search.line import FinishedPoint, Line
from search.lines import run_lines
from search.model import Done, Observation, Verdict
from search.signals import HANDLER_IDLE

TYPICAL_TRIALS = 4
"""Expected number of trials at a message size that has no trial yet. This number is the mean number
of trials for each message size in a benchmark, rounded up."""
IDLE_MIN, ACHIEVED_MIN = 0.20, 0.99
"""A simulated trial is overloaded if its idle fraction is below the first value or its acknowledged
share is below the second value [ratio]."""
_USED_AT_REST, _IDLE_LEAST, _DELIVERED_MOST = 0.02, 0.02, 1.15
_READING_NOISE, _FALSE_ALARM, _MISFIT = 0.005, 0.02, 0.05
_GOAL = "goal"


@dataclass(frozen=True)
class Spread:
    """The 10 %, 50 % and 90 % quantiles of a quantity that the forecast predicts."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """The cost of the measurement of a boundary line.

    Attributes:
        trials: number of trials.
        seconds: duration [s].
        bytes: offered payload, without replicas [B].
        point_bytes: offered payload of the message size with the most payload [B].
        peak_bytes_per_s: payload rate of the heaviest trial [B/s].
    """

    trials: Spread
    seconds: Spread
    bytes: Spread
    point_bytes: Spread
    peak_bytes_per_s: Spread


def forecast(line: Line, trial_s: float, clusters: int = 40) -> Forecast:
    """Simulate the measurement of a boundary line, and return the cost of the measurement. Equal
    arguments give equal forecasts.

    Args:
        line: the message sizes, the bounds of the searches, and the budget.
        trial_s: duration of one trial, all phases [s].
        clusters: number of simulated clusters.
    """
    checks = line.check_for_change
    line = replace(line, check_for_change=False)  # `_closing` adds this cost
    if line.limits.interval_max is None:  # no load depends on intervals
        line = replace(line, guide=replace(line.guide, states_interval=False))
    before = line.before
    runs = []
    for number in range(clusters):
        at_size = partial(SimulatedSize, draw_brokers(line, number), trial_s=trial_s, seed=number)
        points = run_lines({_GOAL: line}, at_size)[_GOAL]
        spent = line.spent(points)
        closing = _closing(line, points, trial_s) if checks else Spent()
        runs.append(
            (
                float(spent.trials - before.trials + closing.trials),
                spent.seconds - before.seconds + closing.seconds,
                spent.bytes - before.bytes + closing.bytes,
                max(line.spent([point]).bytes - before.bytes for point in points),
                max(_peak(line, point) for point in points),
            )
        )
    return Forecast(*(_spread(each) for each in zip(*runs, strict=True)))


def _closing(line: Line, points: Sequence[FinishedPoint], trial_s: float) -> Spent:
    """The cost of the closing trial, which repeats an early load to check whether the limit
    changed. The closing trial is at the message size that was measured first.
    """
    answered = [point for point in points if isinstance(point.result, Done)]
    if not answered or line.is_used_up(points):
        return Spent()
    load = max(1, answered[0].result.bracket.sustained)
    rate = line.rate.bytes(answered[0].message_bytes)
    return Spent().plus([Observation(load, Verdict.SUSTAINED, duration_s=trial_s)], rate)


def _peak(line: Line, point: FinishedPoint) -> float:
    """Payload rate of the heaviest trial of a point [B/s]."""
    each = line.rate.bytes(point.message_bytes)
    return max((trial.load * each for trial in point.history), default=0.0)


def trials_left(line: Line, finished: Sequence[FinishedPoint], begun: Sequence[Observation]) -> int:
    """A quick estimate of the remaining trials of a line, without simulation.

    Args:
        line: the plan of the line.
        finished: points that are already measured.
        begun: the trials of the present point, oldest first.
    """
    message_bytes = line.next_message_bytes(finished)
    is_unchecked = line.check_for_change and not any(point.checked for point in finished)
    if message_bytes is None:
        return int(is_unchecked and not line.checks_at_once)
    others = len(set(line.sizes) - {point.message_bytes for point in finished} - {message_bytes})
    typical = TYPICAL_TRIALS + line.confirmation.windows
    left = line.searcher(message_bytes, finished).trials_left(begun) + others * typical
    left += is_unchecked and not line.checks_at_once
    if line.budget.trials is None:
        return left
    return max(0, min(left, line.budget.trials - line.spent(finished).trials - len(begun)))


@dataclass(frozen=True)
class SimulatedBrokers:
    """Simulated brokers, which need a fixed time for each batch and for each byte.

    Attributes:
        line: the plan of the line, with the number of brokers, the rate and the noise.
        per_batch_s: cost of a batch [s of one broker].
        per_byte_s: cost of a byte [s of one broker].
        curve_power: p in utilization ∝ load^p.
    """

    line: Line
    per_batch_s: float
    per_byte_s: float
    curve_power: float

    def capacity(self, message_bytes: int) -> float:
        """The limit [producers] at a message size, without scatter."""
        rate = self.line.rate
        batches_s = self.per_batch_s * rate.batches(message_bytes)
        return self.line.brokers / (batches_s + self.per_byte_s * rate.bytes(message_bytes))


def draw_brokers(line: Line, number: int) -> SimulatedBrokers:
    """Brokers with random properties. Equal random numbers give equal brokers."""
    chance = random.Random(7919 + number)
    power = chance.uniform(0.8, 2.0)
    start = line.limits.load_start_max
    middle = sorted(line.sizes)[len(line.sizes) // 2]
    limit = min(
        start * math.exp(chance.uniform(math.log(0.125), math.log(2.0))), line.limits.load_cap
    )
    bend = math.exp(chance.uniform(math.log(30.0), math.log(3000.0)))
    per_byte = SimulatedBrokers(line, bend, 1.0, power).capacity(middle) / limit
    return SimulatedBrokers(line, per_byte * bend, per_byte, power)


class SimulatedSize:
    """A simulated cluster at one message size, as a `GoalsMeasurer` of a single goal.

    Trials have noise and false alarms. `tests.support.simulated_clusters` has clusters that are
    more difficult to measure.

    Args:
        brokers: properties of the simulated cluster.
        message_bytes: the message size [B].
        trial_s: duration of one trial, all phases [s].
        seed: seed of all random numbers.
    """

    def __init__(
        self, brokers: SimulatedBrokers, message_bytes: int, *, trial_s: float, seed: int
    ) -> None:
        own = random.Random(seed * 1_000_003 + message_bytes)
        self._capacity = brokers.capacity(message_bytes) * math.exp(_MISFIT * own.gauss(0.0, 1.0))
        self._noise = brokers.line.guide.noise
        self._power = brokers.curve_power
        self._trial_s = trial_s
        self._random = random.Random(own.getrandbits(32))

    def measure(self, load: int) -> dict[str, Observation]:
        """Make one simulated trial."""
        chance = self._random
        gauss, reading = chance.gauss(0.0, 1.0), chance.gauss(0.0, 1.0)
        # Some numbers are unused, so that clusters of tests with equal seeds have equal trials.
        alarm, *_, flap, which = (chance.random() for _ in range(6))
        ratio = load / (self._capacity * math.exp(self._noise * gauss))
        used = (1.0 - IDLE_MIN) * (_USED_AT_REST + (1.0 - _USED_AT_REST) * ratio**self._power)
        used = min(used, 1.0 - _IDLE_LEAST) + _READING_NOISE * reading
        indicators = {
            HANDLER_IDLE: min(max(0.0, used), 1.0) / (1.0 - IDLE_MIN),
            "achieved": (1.0 - min(1.0, _DELIVERED_MOST / ratio)) / (1.0 - ACHIEVED_MIN),
            "isr": 0.0,
        }
        if alarm < _FALSE_ALARM and max(indicators.values()) < 1.0:
            if which < 0.7:
                indicators["isr"] = 1.05 + 0.95 * flap
            else:
                indicators["achieved"] = 1.05 + 6.0 * flap
        is_over = max(indicators.values()) >= 1.0
        verdict = Verdict.OVERLOADED if is_over else Verdict.SUSTAINED
        return {_GOAL: Observation(load, verdict, indicators, self._trial_s)}

    hold = measure


def _spread(values: Sequence[float]) -> Spread:
    ranked = sorted(values)

    def at(share: float) -> float:
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]

    return Spread(at(0.1), at(0.5), at(0.9))
