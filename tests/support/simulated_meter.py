"""A meter of Yammer's metrics 2.2, with the arithmetic of its Java code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

ALPHA = 1 - math.exp(-5 / 60.0 / 1)
INTERVAL_NS = 5e9
PERIOD_S = 5.0


@dataclass
class SimulatedMeter:
    """A meter with its one-minute rate; its scheduled thread ticks each 5 s after its creation.

    Attributes:
        begun_s: time of its creation [s].
        rate_unit_ns: unit of the rates: 1e9 for events each second, 1 for nanoseconds each one.
        alpha: weight of a tick in the average.
        late_s: number of a tick → time by which it is late [s].
    """

    begun_s: float
    rate_unit_ns: float = 1e9
    late_s: dict[int, float] = field(default_factory=dict)
    alpha: float = ALPHA
    count: int = 0
    ticks: int = 0
    counted: list[int] = field(default_factory=list)
    _uncounted: int = 0
    _rate: float = 0.0
    _is_initialized: bool = False

    @property
    def one_minute_rate(self) -> float:
        """The attribute `OneMinuteRate`."""
        return self._rate * self.rate_unit_ns

    @property
    def next_tick_s(self) -> float:
        """The moment of the next tick [s]."""
        number = self.ticks + 1
        return self.begun_s + number * PERIOD_S + self.late_s.get(number, 0.0)

    def mark(self, events: int) -> None:
        """Count some events."""
        self.count += events
        self._uncounted += events

    def tick(self) -> None:
        """Take the events since the last tick, as `EWMA.tick` does."""
        events, self._uncounted = self._uncounted, 0
        self.counted.append(events)
        instant = events / INTERVAL_NS
        if self._is_initialized:
            self._rate += self.alpha * (instant - self._rate)
        else:
            self._rate = instant
            self._is_initialized = True
        self.ticks += 1
