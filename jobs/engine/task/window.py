"""The measured windows of a task. The driver can begin or end the first window early."""

from __future__ import annotations

import math
import os

from jobs.engine.task.control_channel import DriverChannel, OrphanedError
from metrics.common.errors import RedlineError
from metrics.traffic.pattern import Phases

CLOCK_INTERVAL_S = 5.0
"""Interval between comparisons of clocks in a load of several windows [s]."""


class EndMissedError(RedlineError):
    """The driver's message about the end of the window arrived after that end."""


class BeginMissedError(RedlineError):
    """The driver's message about the start of the window arrived after that start."""


class Window:
    """A window on the task's clock [s]. The driver can set an earlier start or an earlier end.

    Args:
        driver: control channel to the driver; None without a driver.
        left: number of later windows, which have the same length and follow without a gap.
        since_s: time from which the offered records of each producer are counted. For the first
            window, `since_s` is the start of the warm-up. The default of `since_s` is the start of
            the window.

    Attributes:
        number: number of the window in its load, from 1.
        load_end_s: end of the load, which is the end of the last window.
    """

    def __init__(
        self,
        start_s: float,
        end_s: float,
        driver: DriverChannel | None = None,
        left: int = 0,
        since_s: float | None = None,
        number: int = 1,
    ) -> None:
        self.start_s = start_s
        self.end_s = end_s
        self.load_end_s = end_s + left * (end_s - start_s) if left else end_s
        self.since_s = start_s if since_s is None else since_s
        self.number = number
        self._left = left
        self._driver = driver
        self._parent = os.getppid()
        # A load of one window compares the clocks before and after the window, not during it.
        self._compare_s = -math.inf if left or number > 1 else math.inf

    @classmethod
    def of(
        cls, phases: Phases, start_s: float, driver: DriverChannel | None = None, count: int = 1
    ) -> Window:
        """The first of `count` windows of a trial whose load begins at `start_s` [s]."""
        begin_s = start_s + phases.warmup_s
        return cls(begin_s, begin_s + phases.measure_s, driver, count - 1, start_s)

    def following(self) -> Window | None:
        """The window that begins at the end of this one; None after the last window."""
        if not self._left:
            return None
        end_s = self.end_s + self.duration_s
        return Window(self.end_s, end_s, self._driver, self._left - 1, number=self.number + 1)

    @property
    def duration_s(self) -> float:
        """Length of the window [s]."""
        return self.end_s - self.start_s

    def holds(self, now: float) -> bool:
        """Whether a time lies in the window."""
        return self.start_s <= now < self.end_s

    def check_in(
        self, now: float, acked: int | None = None, written: int = 0, refused: int = 0
    ) -> None:
        """Check that the load is still needed, apply the driver's decisions, and report progress.

        Args:
            acked: number of records that were acknowledged in the window; None if the task reports
                no progress.
            written: number of records that were acknowledged since the start of the load.
            refused: number of error responses since the start of the load; 0 if the client does not
                count errors.

        Raises:
            OrphanedError: the parent process or the driver has ended.
            BeginMissedError, EndMissedError: the driver's message about the start or end of the
                window arrived too late, after this start or end.
        """
        if os.getppid() != self._parent:
            raise OrphanedError("the process that started this load has ended, so the load ends")
        if self._driver is None:
            return
        self._driver.receive()
        if now >= self._compare_s:
            self._driver.ask_clock()
            self._compare_s = now + CLOCK_INTERVAL_S
        if now >= self.load_end_s:
            self._driver.report_over()
        if now >= self.end_s:
            return
        if self._driver.begin_after_s is not None and now < self.start_s:
            self._begin_at(self.since_s + self._driver.begin_after_s, now)
        if self._driver.end_after_s is not None:
            self._end_at(self.start_s + self._driver.end_after_s, now)
        if acked is None:
            self._driver.send()  # a heartbeat: this task runs
        elif now >= self.start_s:
            at_s = now - self.start_s
            self._driver.send(at_s=at_s, acked=acked, written=written, refused=refused)
        else:
            self._driver.send(written=written, refused=refused)

    def _begin_at(self, start_s: float, now: float) -> None:
        if start_s < min(now, self.start_s):
            raise BeginMissedError(_describe_delay("began", now - start_s))
        earlier_s = max(0.0, self.start_s - start_s)
        self.start_s -= earlier_s
        self.end_s -= earlier_s
        self.load_end_s -= earlier_s

    def _end_at(self, end_s: float, now: float) -> None:
        if end_s < min(now, self.end_s):
            raise EndMissedError(_describe_delay("ended", now - end_s))
        self.end_s = self.load_end_s = min(self.end_s, end_s)


def _describe_delay(action: str, delay_s: float) -> str:
    return (
        f"the driver {action} the window {delay_s:.2f} s before its message reached this task; "
        "expected the message before that time; look for load on the driver's host"
    )


NOT_YET = Window(math.inf, math.inf)
"""The window of a load whose start time is not known yet."""
