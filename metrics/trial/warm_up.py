"""The reading of the warm-up of cold brokers, which determines only where the search begins."""

from __future__ import annotations

from dataclasses import dataclass

from search.model import Observation, Verdict
from search.signals import AT_REST, HANDLER_IDLE


@dataclass(frozen=True)
class WarmUp:
    """The last load of a warm-up; all values are None where brokers were warm.

    Attributes:
        load: the offered load on the searched axis.
        handler_idle: lowest idle fraction of the request handlers of any broker [ratio].
        is_short: whether the brokers took less than they were offered, so that the limit is lower
            whatever their handlers show; None in rows of older versions.
        idle_at_rest: lowest idle fraction of the request handlers of any broker before the run,
            which others may load [ratio]; None in rows of older versions.
        generator_load: highest load that the generator can offer, by the busy share of its busiest
            task; None where that is too small to tell, and in rows of older versions [load].
    """

    load: int | None = None
    handler_idle: float | None = None
    is_short: bool | None = None
    idle_at_rest: float | None = None
    generator_load: int | None = None

    def hint(self, idle_min: float) -> Observation | None:
        """The reading as an observation for the search; None without a reading.

        Args:
            idle_min: the idle threshold of the goal [ratio].
        """
        if self.load is None or (self.handler_idle is None and not self.is_short):
            return None
        used = 1.0 if self.is_short else 1.0 - (self.handler_idle or 0.0)
        used /= 1.0 - idle_min
        verdict = Verdict.OVERLOADED if used > 1.0 else Verdict.SUSTAINED
        readings = {HANDLER_IDLE: used}
        if self.idle_at_rest is not None:
            readings[AT_REST] = (1.0 - self.idle_at_rest) / (1.0 - idle_min)
        return Observation(self.load, verdict, readings)
