"""The measured window as a consumer task sees it, which the driver may end early."""

from __future__ import annotations

from jobs.engine.conversation import EndMissedError
from jobs.engine.driver_line import DriverLine
from jobs.engine.pattern import TrialPlan


class WindowClock:
    """Start and end of the window on the engine's clock [s]; the end may come nearer.

    Args:
        start_s: when the load begins [s].
        line: to the driver, or None.
    """

    def __init__(self, plan: TrialPlan, start_s: float, line: DriverLine | None) -> None:
        self.start_s = start_s + plan.warmup_s
        self.end_s = self.start_s + plan.measure_s
        self._line = line

    def listen(self, now: float) -> None:
        """Hear the driver.

        Raises:
            OrphanedError: it is gone.
            EndMissedError: it ended the window at a moment that had passed here.
        """
        if self._line is None:
            return
        self._line.listen()
        if self._line.end_after_s is None:
            return
        end_s = self.start_s + self._line.end_after_s
        if end_s >= self.end_s:
            return
        if end_s < now:
            raise EndMissedError(
                f"the driver ended the window {now - end_s:.2f} s before this task heard of it"
            )
        self.end_s = end_s
