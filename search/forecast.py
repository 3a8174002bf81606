"""The forecast of the cost of a boundary line, before and during its run.

The forecast measures the same line on simulated clusters. Before the run, the limits of these
clusters are random numbers from an eighth of load_start_max to twice load_start_max. During the
run, they are random numbers around the finished points, so the forecast becomes more precise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search.budget import Spent
from search.line import FinishedPoint, Line
from search.lines import run_line
from search.model import Done, Observation, Verdict
from search.simulate import ClusterSpec, LineSpec, SimulatedLine

TYPICAL_TRIALS = 4
"""Number of trials of a size that has not begun: the mean of a benchmark, rounded up."""


@dataclass(frozen=True)
class Spread:
    """The 10 %, 50 % and 90 % quantiles of a forecast quantity."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """The remaining cost of a line.

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


def forecast(
    line: Line,
    trial_s: float,
    finished: Sequence[FinishedPoint] = (),
    clusters: int = 40,
    seed: int = 1,
) -> Forecast:
    """Simulate the remaining part of a line, and return its cost.

    Args:
        line: the plan of the line, with its budget.
        trial_s: duration of one trial, all phases [s].
        finished: points that are already measured.
        clusters: number of simulated clusters.
        seed: equal seeds give equal forecasts.
    """
    checks = line.check_for_change
    line = replace(line, check_for_change=False)  # `_closing` adds this cost
    if line.limits.interval_max is None:  # no load depends on intervals
        line = replace(line, guide=replace(line.guide, states_interval=False))
    before = line.spent(finished)
    runs = []
    for number in range(clusters):
        simulated = SimulatedLine(_draw(line, finished, trial_s, seed * 7919 + number), number)
        points = run_line(line, simulated.cluster, finished=finished)
        spent = line.spent(points)
        new = points[len(finished) :]
        closing = _closing(line, points, trial_s) if checks else Spent()
        runs.append(
            (
                float(spent.trials - before.trials + closing.trials),
                spent.seconds - before.seconds + closing.seconds,
                spent.bytes - before.bytes + closing.bytes,
                max((line.spent([point]).bytes - line.before.bytes for point in new), default=0.0),
                max((_peak(line, point) for point in new), default=0.0),
            )
        )
    return Forecast(*(_spread(each) for each in zip(*runs, strict=True)))


def _closing(line: Line, points: Sequence[FinishedPoint], trial_s: float) -> Spent:
    """The cost of the closing trial, at the size that was measured first."""
    answered = [point for point in points if isinstance(point.result, Done)]
    is_checked = any(point.checked for point in points)
    if is_checked or not answered or line.is_used_up(points):
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


def _draw(line: Line, finished: Sequence[FinishedPoint], trial_s: float, seed: int) -> LineSpec:
    """A random simulated cluster that is consistent with the finished points."""
    chance = random.Random(seed)
    behavior = ClusterSpec(
        capacity=1.0,
        curve_power=chance.uniform(0.8, 2.0),
        noise=line.guide.noise,
        reading_noise=0.005,
        false_alarm=0.02,
        trial_s=trial_s,
    )
    model = line.model(finished)
    if model is not None:
        bends = [(bend, per_byte) for _, bend, per_byte in model.bends]
        weights = [weight for weight, _, _ in model.bends]
        bend, per_byte = chance.choices(bends, weights)[0]
        return LineSpec(line.brokers, line.rate, per_byte * bend, per_byte, 0.05, behavior)
    start = line.limits.load_start_max
    middle = sorted(line.sizes)[len(line.sizes) // 2]
    limit = min(
        start * math.exp(chance.uniform(math.log(0.125), math.log(2.0))), line.limits.load_cap
    )
    bend = math.exp(chance.uniform(math.log(30.0), math.log(3000.0)))
    unscaled = LineSpec(line.brokers, line.rate, bend, 1.0, 0.05, behavior)
    per_byte = unscaled.capacity(middle) / limit
    return replace(unscaled, per_batch_s=per_byte * bend, per_byte_s=per_byte)


def _spread(values: Sequence[float]) -> Spread:
    ranked = sorted(values)

    def at(share: float) -> float:
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]

    return Spread(at(0.1), at(0.5), at(0.9))
