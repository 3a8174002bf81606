"""A load that grows step by step: producers begin one after the other in a running load.

A load is a number of producers, or the scale of a mix. Producers of a part of a mix share its load
out: the first of them offer their whole rate, the next one what is left, so that each part offers
the scale of the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Climb:
    """The steps of a growing load; each has twice the load of the one before.

    Attributes:
        first: load of the first step.
        step_s: length of a step [s].
        load_each: load that each producer stands for; 1 where a load is a number of producers.
    """

    first: int
    step_s: float
    load_each: float = 1.0

    def of_part(self, producers: int, most: int) -> Climb:
        """The same steps for the producers of a part of a mix.

        Args:
            producers: producers of the part at the heaviest load.
            most: this load, the scale of the mix.
        """
        return replace(self, load_each=most / producers)

    def start_s(self, producer: int) -> float:
        """When a producer begins, after the start of the load [s]."""
        load_before = producer * self.load_each
        if load_before < self.first:
            return 0.0
        return self.step_s * (1 + math.floor(math.log2(load_before / self.first) + _ROUNDING))

    def shares(self, producer: int, last_step: int | None = None) -> list[tuple[float, float]]:
        """(time after the start of the load [s], share of its rate [ratio]) of each step of a
        producer, from the one in which it begins to the one in which it offers its whole rate.

        Args:
            last_step: the step at which the load stays; None while it grows.
        """
        step = self.step_at(self.start_s(producer))
        found: list[tuple[float, float]] = []
        while not found or (found[-1][1] < 1.0 and (last_step is None or step <= last_step)):
            share = (self.first << step) / self.load_each - producer
            found.append((step * self.step_s, 1.0 if share > 1.0 - _ROUNDING else share))
            step += 1
        return found

    def step_at(self, load_s: float) -> int:
        """The number of the step, from 0, so many seconds after the start of the load."""
        return max(0, int(load_s / self.step_s + _ROUNDING))

    def load_in(self, step: int, most: int) -> int:
        """Load of a step, of at most `most`."""
        return min(most, self.first << step)

    def steps(self, most: int) -> int:
        """Number of steps until the load is `most`."""
        return 1 + max(0, math.ceil(math.log2(most / self.first) - _ROUNDING))
