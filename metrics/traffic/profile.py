"""The change of a load over time: a share of its full rate, linear between points."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class RateProfile:
    """The share of the full rate over time, such as steps, ramps, spikes or a day.

    It repeats at its end. Two points at one time are a step.

    Attributes:
        name: name of the profile.
        points: (time from the start [s], share of the rate [ratio]), with times ascending from 0.
    """

    name: str
    points: tuple[tuple[float, float], ...]

    @property
    def length_s(self) -> float:
        """Length of the profile, after which it repeats [s]."""
        return self.points[-1][0]

    @property
    def peak(self) -> float:
        """The highest share [ratio]."""
        return max(share for _, share in self.points)

    @property
    def mean(self) -> float:
        """The mean share over its whole length [ratio]."""
        return self._passed[-1] / self.length_s

    @cached_property
    def _times(self) -> list[float]:
        return [at_s for at_s, _ in self.points]

    @cached_property
    def _passed(self) -> list[float]:
        """Seconds of the full rate that have passed at each point [s]."""
        areas = (
            (later - earlier) * (first + second) / 2
            for (earlier, first), (later, second) in itertools.pairwise(self.points)
        )
        return [0.0, *itertools.accumulate(areas)]

    def passed_s(self, time_s: float) -> float:
        """Seconds of the full rate that have passed; before the start by the first share [s]."""
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
        """The first time at which `passed_s` seconds of the full rate have passed [s]."""
        first = self.points[0][1]
        if passed_s <= 0:
            return passed_s / first if first else 0.0
        cycles, rest = divmod(passed_s, self._passed[-1])
        if cycles and rest < _ROUNDING_S:  # the end of a cycle, before the next one's first record
            cycles, rest = cycles - 1, self._passed[-1]
        index = max(1, bisect_left(self._passed, rest)) - 1
        (begin_s, share), (end_s, later) = self.points[index], self.points[index + 1]
        wanted = rest - self._passed[index]
        slope = (later - share) / (end_s - begin_s)
        # The root of a·t + b·t²/2 = wanted in the form that also holds for b = 0 and for a = 0.
        root = max(0.0, share**2 + 2 * slope * wanted) ** 0.5
        into_s = 2 * wanted / (share + root) if share + root else 0.0
        return cycles * self.length_s + begin_s + min(into_s, end_s - begin_s)
