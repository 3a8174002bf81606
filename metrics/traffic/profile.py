"""The change of a load over time: a profile of the rate, or the steps of a growing load.

In a growing load, producers begin one after the other. A load is a number of producers, or the
scale of a mix. In each step, the first producers of a part offer their whole rate, and the next
producer offers the remaining rate. So in each step, each part of a mix offers exactly its share of
the mix's traffic at the scale of the step.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from functools import cached_property

_ROUNDING = 1e-9


@dataclass(frozen=True)
class RateProfile:
    """The share of the full rate over time. Examples are steps, ramps, spikes and the course of a
    day.

    The share is linear between points. The profile repeats after its last point. Two points at the
    same time make a step.

    Attributes:
        name: name of the profile.
        points: (time from the start [s], share of the rate [ratio]), with times ascending from 0.
    """

    name: str
    points: tuple[tuple[float, float], ...]

    @property
    def length_s(self) -> float:
        """Length of the profile [s]. The profile repeats after this time."""
        return self.points[-1][0]

    @property
    def peak(self) -> float:
        """The highest share [ratio]."""
        return max(share for _, share in self.points)

    @property
    def mean(self) -> float:
        """The mean share of the rate over the whole length of the profile [ratio]."""
        return self._passed[-1] / self.length_s

    @cached_property
    def _times(self) -> list[float]:
        return [at_s for at_s, _ in self.points]

    @cached_property
    def _passed(self) -> list[float]:
        """For each point, the integral of the share over the time from the start to the point [s of
        the full rate].
        """
        areas = (
            (later - earlier) * (first + second) / 2
            for (earlier, first), (later, second) in itertools.pairwise(self.points)
        )
        return [0.0, *itertools.accumulate(areas)]

    def passed_s(self, time_s: float) -> float:
        """Integral of the share over the time from 0 to `time_s` [s of the full rate].

        Before the start, the share is constant and equal to the share of the first point.
        """
        if time_s <= 0:
            return time_s * self.points[0][1]
        cycles, rest_s = divmod(time_s, self.length_s)
        index = min(bisect_right(self._times, rest_s), len(self.points) - 1) - 1
        (begin_s, share), (end_s, later) = self.points[index], self.points[index + 1]
        into_s = rest_s - begin_s
        slope = (later - share) / (end_s - begin_s) if end_s > begin_s else 0.0
        inside = share * into_s + slope * into_s**2 / 2
        return cycles * self._passed[-1] + self._passed[index] + inside

    def time_s(self, passed_s: float) -> float:
        """The first time [s] at which the integral of the share over time reaches `passed_s`."""
        first = self.points[0][1]
        if passed_s <= 0:
            return passed_s / first if first else 0.0
        cycles, rest = divmod(passed_s, self._passed[-1])
        if cycles and rest < _ROUNDING:  # the end of a cycle
            cycles, rest = cycles - 1, self._passed[-1]
        index = max(1, bisect_left(self._passed, rest)) - 1
        (begin_s, share), (end_s, later) = self.points[index], self.points[index + 1]
        wanted = rest - self._passed[index]
        slope = (later - share) / (end_s - begin_s)
        # The root of a·t + b·t²/2 = wanted, in the form that is also valid for b = 0 and for a = 0.
        root = max(0.0, share**2 + 2 * slope * wanted) ** 0.5
        into_s = 2 * wanted / (share + root) if share + root else 0.0
        return cycles * self.length_s + begin_s + min(into_s, end_s - begin_s)


@dataclass(frozen=True)
class Climb:
    """The steps of a growing load. The load doubles with each step.

    Attributes:
        first: load of the first step.
        step_s: length of a step [s].
        load_each: load that each producer adds; 1 if a load is a number of producers.
    """

    first: int
    step_s: float
    load_each: float = 1.0

    def of_part(self, producers: int, most: int) -> Climb:
        """The steps of this growing load for the producers of one part of a mix.

        Args:
            producers: number of producers of the part at the heaviest load.
            most: the heaviest load, as a scale of the mix.
        """
        return replace(self, load_each=most / producers)

    def start_s(self, producer: int) -> float:
        """The time from the start of the load to the start of a producer [s]."""
        load_before = producer * self.load_each
        if load_before < self.first:
            return 0.0
        return self.step_s * (1 + math.floor(math.log2(load_before / self.first) + _ROUNDING))

    def shares(self, producer: int, last_step: int | None = None) -> list[tuple[float, float]]:
        """The share of a producer's rate in each step until the producer offers its whole rate.

        Args:
            producer: number of the producer, from 0.
            last_step: number of the last step, after which the load is constant; None if the load
                grows without an end.

        Returns:
            (time from the start of the load [s], share of the rate [ratio]) for each step, from the
            step in which the producer begins.
        """
        step = self.step_at(self.start_s(producer))
        found: list[tuple[float, float]] = []
        while not found or (found[-1][1] < 1.0 and (last_step is None or step <= last_step)):
            share = (self.first << step) / self.load_each - producer
            found.append((step * self.step_s, 1.0 if share > 1.0 - _ROUNDING else share))
            step += 1
        return found

    def step_at(self, load_s: float) -> int:
        """The number of the step, from 0, at a time after the start of the load [s]."""
        return max(0, int(load_s / self.step_s + _ROUNDING))

    def load_in(self, step: int, most: int) -> int:
        """The load of a step. If the load is above `most`, the result is `most`."""
        return min(most, self.first << step)

    def steps(self, most: int) -> int:
        """The number of steps until the load reaches `most`."""
        return 1 + max(0, math.ceil(math.log2(most / self.first) - _ROUNDING))
