"""The measured windows of a task; the driver may move the first one forward, or end it early."""

from __future__ import annotations

import math
import os

from jobs.engine.task.control_channel import DriverChannel, OrphanedError
from metrics.common.errors import RedlineError
from metrics.traffic.pattern import Phases

CLOCK_INTERVAL_S = 5.0
"""Interval between two comparisons of clocks in a load of several windows [s]."""


class EndMissedError(RedlineError):
    """The driver ended the window at a moment that has already passed in this task."""


class BeginMissedError(RedlineError):
    """The driver began the window at a moment that has already passed in this task."""


class Window:
    """Start and end of a window on the task's clock [s]; the driver may move both forward.

    Args:
        driver: control channel to the driver; None without one.
        left: number of windows of the same length that follow without a gap.
        since_s: when the account of this window begins, warm-up included; by default the start of
            the window.

    Attributes:
        number: number of the window in its load, from 1.
        load_end_s: when the load ends, with this window or a later one.
    """

    __slots__ = (
        "_compare_s", "_driver", "_left", "_parent", "end_s", "load_end_s", "number", "since_s",
        "start_s",
    )  # fmt: skip

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
        # A load of one window compares the clocks before and after it, and not in between.
        self._compare_s = -math.inf if left or number > 1 else math.inf

    @classmethod
    def of(
        cls, phases: Phases, start_s: float, driver: DriverChannel | None = None, count: int = 1
    ) -> Window:
        """The first of `count` windows of a trial whose load begins at `start_s` [s]."""
        begin_s = start_s + phases.warmup_s
        return cls(begin_s, begin_s + phases.measure_s, driver, count - 1, start_s)

    def following(self) -> Window | None:
        """The window that begins where this one ends; None after the last one."""
        if not self._left:
            return None
        end_s = self.end_s + self.duration_s
        return Window(self.end_s, end_s, self._driver, self._left - 1, number=self.number + 1)

    @property
    def duration_s(self) -> float:
        """Length of the window [s]."""
        return self.end_s - self.start_s

    def holds(self, now: float) -> bool:
        """True inside of the window."""
        return self.start_s <= now < self.end_s

    def check_in(
        self, now: float, acked: int | None = None, written: int = 0, refused: int = 0
    ) -> None:
        """Check that the load is still needed, apply a new end of the window, and report progress.

        Args:
            acked: records acknowledged inside the window; None reports nothing.
            written: records acknowledged since the start of the load.
            refused: answers that were errors since then; 0 where the client does not count them.

        Raises:
            OrphanedError: the parent process or the driver is gone.
            BeginMissedError, EndMissedError: the driver began or ended the window at a moment
                that has already passed.
        """
        if os.getppid() != self._parent:
            raise OrphanedError("the process that started this load has ended, so it stops too")
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
            self._driver.send()  # so that the driver knows that this task runs
        elif now >= self.start_s:
            at_s = now - self.start_s
            self._driver.send(at_s=at_s, acked=acked, written=written, refused=refused)
        else:
            self._driver.send(written=written, refused=refused)

    def _begin_at(self, start_s: float, now: float) -> None:
        if start_s < min(now, self.start_s):
            raise BeginMissedError(
                f"the driver began the window {now - start_s:.2f} s before its message reached "
                "this task"
            )
        earlier_s = max(0.0, self.start_s - start_s)
        self.start_s -= earlier_s
        self.end_s -= earlier_s
        self.load_end_s -= earlier_s

    def _end_at(self, end_s: float, now: float) -> None:
        if end_s < min(now, self.end_s):
            raise EndMissedError(
                f"the driver ended the window {now - end_s:.2f} s before its message reached this "
                "task"
            )
        self.end_s = self.load_end_s = min(self.end_s, end_s)


NOT_YET = Window(math.inf, math.inf)
"""The window of a load that has no start yet."""
