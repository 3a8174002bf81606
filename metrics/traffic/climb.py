"""A load that grows step by step: producers begin one after the other in a running load."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Climb:
    """The steps of a growing load; each begins with twice the producers of the one before.

    Attributes:
        first: producers of the first step.
        step_s: length of a step [s].
    """

    first: int
    step_s: float

    def start_s(self, producer: int) -> float:
        """When a producer begins, after the start of the load [s]."""
        if producer < self.first:
            return 0.0
        return self.step_s * math.ceil(math.log2((producer + 1) / self.first) - 1e-9)

    def step_at(self, load_s: float) -> int:
        """The number of the step, from 0, so many seconds after the start of the load."""
        return max(0, int(load_s / self.step_s + 1e-9))

    def producers_in(self, step: int, most: int) -> int:
        """Producers of a step, of `most` producers."""
        return min(most, self.first << step)

    def steps(self, most: int) -> int:
        """Number of steps until all of `most` producers have begun."""
        return 1 + max(0, math.ceil(math.log2(most / self.first) - 1e-9))
