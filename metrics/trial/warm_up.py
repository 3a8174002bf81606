"""The reading of the warm-up of cold brokers, which determines only where the search begins."""

from __future__ import annotations

from dataclasses import dataclass

from search.model import Observation, Verdict


@dataclass(frozen=True)
class WarmUp:
    """The last load of a warm-up; all values are None where brokers were warm.

    Attributes:
        load: the offered load on the searched axis.
        handler_idle: lowest idle fraction of the request handlers of any broker [ratio].
        is_short: whether the brokers took less than they were offered, so that the limit is lower
            whatever their handlers show; None in rows of older versions.
    """

    load: int | None = None
    handler_idle: float | None = None
    is_short: bool | None = None

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
        return Observation(self.load, verdict, {"request_handler_idle": used})
