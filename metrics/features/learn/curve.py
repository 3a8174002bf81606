"""The curve of a topic's number of records over days and weeks, from offsets at given times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

HOUR_S, DAY_S, WEEK_S = 3_600.0, 86_400.0, 604_800.0
STEPS_MIN = 12
"""Minimum number of steps in the curve of a topic with less than three hours of data."""
YOUNG_STEPS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0)
"""Possible distances between two points of a curve, for topics with less than three hours of data
[s]. Fixed values give topics of similar age equal distances.
"""


@dataclass(frozen=True)
class PartitionLog:
    """The log of a partition, as its leader reports it.

    Attributes:
        first_offset, end_offset: the first offset of the log, and the offset after the last record.
        first_s: time of the first record in the log [s since the epoch]; None without a record.
    """

    first_offset: int
    end_offset: int
    first_s: float | None

    @property
    def records(self) -> int:
        """Number of offsets in the log."""
        return self.end_offset - self.first_offset

    @property
    def known_from_s(self) -> float | None:
        """The time since which the log contains all written records [s since the epoch].

        The time is 0 if no record of the log has been deleted, and None if the log has no record.
        """
        if self.first_offset == 0:
            return 0.0
        return self.first_s


def times_of(
    logs: Sequence[PartitionLog], now_s: float, step_min_s: float = HOUR_S
) -> tuple[float, ...]:
    """The times at which offsets are looked up, oldest first; the last time is now [s since the
    epoch].

    The distances between successive times (steps) are equal. The times cover at most a week. A
    time is left out if retention has already deleted records that were written at this time. The
    result is empty if the covered time is shorter than a second.

    Args:
        logs: the logs of the partitions whose offsets are looked up.
        now_s: the time of the logs' end offsets [s since the epoch].
        step_min_s: distance [s] between the times if the logs cover at least 3 × `step_min_s`. If
            the logs cover less than 3 × `step_min_s`, the distance is a value of `YOUNG_STEPS_S`.
    """
    begins = [log.first_s for log in logs if log.records and log.first_s is not None]
    known = [log.known_from_s for log in logs if log.known_from_s is not None]
    if not begins:
        return ()
    from_s = max(*known, min(begins), now_s - WEEK_S) if known else min(begins)
    age_s = now_s - from_s
    if age_s < 1.0:
        return ()
    step_s = step_min_s
    if age_s < 3 * step_min_s:
        step_s = next((each for each in YOUNG_STEPS_S if each >= age_s / STEPS_MIN), step_min_s)
    steps = math.floor(age_s / step_s + 1e-9)
    return tuple(now_s - step * step_s for step in range(steps, -1, -1))


@dataclass(frozen=True)
class Curve:
    """The number of records of a topic over time.

    Attributes:
        times_s: times in even steps, oldest first [s since the epoch].
        counts: number of written records at each time; the first count is arbitrary.
    """

    times_s: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @property
    def step_s(self) -> float:
        """Time between two values [s]; 0 for fewer than two values."""
        return self.times_s[1] - self.times_s[0] if len(self.times_s) > 1 else 0.0

    @property
    def span_s(self) -> float:
        """Time that the curve covers [s]."""
        return self.times_s[-1] - self.times_s[0] if self.times_s else 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """The records per second of each step [1/s]."""
        return tuple(
            max(0.0, after - before) / self.step_s for before, after in pairwise(self.counts)
        )

    @property
    def today(self) -> Curve:
        """The last day of the curve, or the whole curve if it is shorter."""
        keep = 1 + math.floor(DAY_S / self.step_s + 1e-9) if self.step_s else 0
        return Curve(self.times_s[-keep:], self.counts[-keep:]) if keep else self

    @property
    def mean(self) -> float:
        """The mean rate over the whole curve [1/s]; 0 without steps."""
        return (self.counts[-1] - self.counts[0]) / self.span_s if self.span_s else 0.0

    @property
    def peak(self) -> float:
        """The rate of the busiest step [1/s]; 0 without steps."""
        return max(self.rates, default=0.0)

    @property
    def peak_at_s(self) -> float | None:
        """The start of the busiest step [s since the epoch]; None without steps."""
        rates = self.rates
        return self.times_s[rates.index(max(rates))] if rates else None

    def scaled(self, factor: float) -> Curve:
        """The curve with all counts multiplied by a factor."""
        return Curve(self.times_s, tuple(factor * each for each in self.counts))

    @classmethod
    def of_offsets(cls, times_s: Sequence[float], offsets: Mapping[int, Sequence[int]]) -> Curve:
        """The curve that is computed from the offsets of partitions at the given times.

        Args:
            offsets: partition → its offset at each of the times.
        """
        sums = [float(sum(each)) for each in zip(*offsets.values(), strict=True)]
        return cls(tuple(times_s), tuple(sums)) if len(sums) > 1 else cls()


def sum_of(curves: Sequence[Curve]) -> Curve:
    """The sum of several curves. The step of the sum is the longest step among the curves. Before a
    curve begins, it adds no records to the sum.
    """
    known = [curve for curve in curves if curve.step_s]
    if not known:
        return Curve()
    step_s = max(curve.step_s for curve in known)
    end_s = min(curve.times_s[-1] for curve in known)
    from_s = min(curve.times_s[0] for curve in known)
    steps = math.floor((end_s - from_s) / step_s + 1e-9)
    times_s = tuple(end_s - step * step_s for step in range(steps, -1, -1))
    return Curve(times_s, tuple(sum(_at(curve, each) for curve in known) for each in times_s))


def _at(curve: Curve, at_s: float) -> float:
    """The number of records of a curve at any time.

    The number is interpolated linearly between the curve's times. Before the first time and after
    the last time, the number is constant.
    """
    place = (at_s - curve.times_s[0]) / curve.step_s
    if place <= 0:
        return curve.counts[0]
    index = math.floor(place)
    if index >= len(curve.counts) - 1:
        return curve.counts[-1]
    before, after = curve.counts[index], curve.counts[index + 1]
    return before + (place - index) * (after - before)


def profile_points(curve: Curve, full_per_s: float) -> tuple[tuple[float, float], ...]:
    """The points of a profile: pairs (time from the start [s], rate / `full_per_s` [ratio]).

    The profile has one point for each step of the curve. A last point repeats the ratio of the
    first point. A profile interpolates ratios linearly between points. The mean ratio of the
    profile equals the mean ratio of the steps.

    Args:
        full_per_s: the rate at which the profile has the ratio 1 [1/s].
    """
    rates = curve.rates
    if not rates or full_per_s <= 0:
        return ()
    points = [(step * curve.step_s, rate / full_per_s) for step, rate in enumerate(rates)]
    return (*points, (len(rates) * curve.step_s, points[0][1]))
