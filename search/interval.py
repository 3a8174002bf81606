"""The interval of a limit, which contains the true limit in 90 % of all points."""

from __future__ import annotations

from dataclasses import dataclass

LEVEL = 0.90
"""Share of points whose interval contains the true limit."""


@dataclass(frozen=True)
class Interval:
    """The limit's interval at `LEVEL` [producers, or the load of the axis that is searched].

    `median` is the best estimate of the limit, above and below which it lies with the same
    probability; None where the trials show only the interval.
    """

    low: float
    high: float
    median: float | None = None

    @property
    def relative_width(self) -> float:
        """1 - low/high [ratio]."""
        return 1.0 - self.low / self.high
