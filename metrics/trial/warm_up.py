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
    """

    load: int | None = None
    handler_idle: float | None = None

    def hint(self, idle_min: float) -> Observation | None:
        """The reading as an observation for the search; None without a reading.

        Args:
            idle_min: the idle threshold of the goal [ratio].
        """
        if self.load is None or self.handler_idle is None:
            return None
        used = (1.0 - self.handler_idle) / (1.0 - idle_min)
        verdict = Verdict.OVERLOADED if used > 1.0 else Verdict.SUSTAINED
        return Observation(self.load, verdict, {"request_handler_idle": used})
