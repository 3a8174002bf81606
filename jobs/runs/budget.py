"""The time budget of a run with many cases: which case fits, and how long its search lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from jobs.config import Configuration
from metrics.units import format_duration


@dataclass(frozen=True)
class TimeBudget:
    """The time within which every begun case must end.

    Attributes:
        total_s: the length of the budget; None without one [s].
        began_s: its start [s since the epoch].
        clock: wall clock [s since the epoch].
    """

    total_s: float | None
    began_s: float = field(default_factory=time.time)
    clock: Callable[[], float] = time.time

    @property
    def left_s(self) -> float | None:
        """The time that is left; None without a budget [s]."""
        if self.total_s is None:
            return None
        return max(0.0, self.total_s - (self.clock() - self.began_s))

    def share(self, share: float) -> TimeBudget:
        """The first part of the budget [share]."""
        return self if self.total_s is None else replace(self, total_s=share * self.total_s)

    def refusal(self, needed_s: float) -> str:
        """The reason why a case with this estimated duration is not begun; empty if it fits."""
        left_s = self.left_s
        if left_s is None or needed_s <= left_s:
            return ""
        return (
            f"it takes about {format_duration(needed_s)}, and the budget has "
            f"{format_duration(left_s)} left"
        )


def ending_within(config: Configuration, left_s: float | None) -> Configuration:
    """The configuration whose search ends in this time at the latest; None for any time [s]."""
    if left_s is None:
        return config
    budget, own_s = config.goal.search.budget, config.goal.search.budget.duration_s
    left_s = left_s if own_s is None else min(left_s, own_s)
    return config.with_search(budget=replace(budget, duration_s=left_s))
