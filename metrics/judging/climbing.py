"""Whether a growing load goes on: by the idle time of the handlers, and by what is acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from metrics.sources.sample import BrokerSample
from metrics.windows.broker import broker_window
from metrics.windows.spans import good_samples
from search.signals import own_utilization

ENOUGH = 0.35
"""Utilization of what others leave, at which a reading shows where the limit lies [ratio]; one more
step may begin before the reading is known, and still lies below the limit."""
OVERLOAD = 1.0
"""Utilization of the handlers at the threshold of the goal [ratio]."""
SETTLE_S, LOOK_LEAST_S = 0.4, 0.9
"""The start of a step that a reading leaves out, and the shortest reading [s]."""
LATE_S, LATE_COLD_S = 0.75, 2.0
"""Records may wait for so long in addition to the producers' linger, on warm and on cold brokers;
beyond it, a step is too large [s]."""


class Climbing(Enum):
    """What a growing load does next."""

    GO_ON = "grow further"
    STAY = "stay at the producers that have begun"
    END = "end at once"


@dataclass(frozen=True)
class StepReading:
    """What a step shows so far.

    Attributes:
        idle: lowest idle fraction of the request handlers of any broker [ratio]; None where it is
            not known, or not yet.
        waiting_s: records that are due and not acknowledged, as seconds of the load of the step.
        late_s: how long records may wait [s].
        idle_at_rest: lowest idle fraction before the run, with the load of others alone [ratio].
    """

    idle: float | None
    waiting_s: float
    late_s: float = LATE_S
    idle_at_rest: float = 1.0

    def has_room(self, idle_min: float) -> bool:
        """Whether the handlers are used so little that the limit is far, as far as they show.

        Args:
            idle_min: the idle threshold of the goal [ratio].
        """
        return self.idle is not None and self._used(idle_min) < ENOUGH

    def _used(self, idle_min: float) -> float:
        """Share that the load takes of what others leave of the handlers, 1 at the threshold
        [ratio]; 0 where it is not known.
        """
        if self.idle is None:
            return 0.0
        used, at_rest = ((1.0 - each) / (1.0 - idle_min) for each in (self.idle, self.idle_at_rest))
        return own_utilization(used, at_rest)

    @property
    def is_short(self) -> bool:
        """Whether brokers take less than they are offered."""
        return self.waiting_s > self.late_s

    def next(self, idle_min: float) -> Climbing:
        """What the load does next.

        Args:
            idle_min: the idle threshold of the goal [ratio].
        """
        used = self._used(idle_min)
        if self.is_short or used >= OVERLOAD:
            return Climbing.END
        return Climbing.STAY if used >= ENOUGH else Climbing.GO_ON


def lowest_idle(
    samples: Sequence[BrokerSample], brokers: Iterable[int], from_s: float, to_s: float
) -> float | None:
    """The lowest idle fraction of any broker's handlers; None while a broker shows too little [s].

    Args:
        from_s, to_s: the time that counts [s since the epoch].
    """
    good, found = good_samples(samples), []
    for broker_id in brokers:
        inside = [each for each in good.get(broker_id, ()) if from_s <= each.at_s <= to_s]
        span_s = inside[-1].at_s - inside[0].at_s if inside else 0.0
        if span_s < LOOK_LEAST_S:
            return None
        first, last = inside[0], inside[-1]
        idle = broker_window((first, last), broker_id, first.at_s, last.at_s, span_s).handler_idle
        if idle is None:
            return None
        found.append(idle)
    return min(found, default=None)
