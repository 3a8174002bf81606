"""What every producer client does for one task of a trial, whatever library sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jobs.engine.producing.account import Account
from jobs.engine.producing.producer import Producer
from jobs.engine.task.control_channel import DriverChannel


class TaskLoad(Protocol):
    """What the producers of one task did, for the task's row.

    Attributes:
        account: where every record of the last window ended up, and that window on the clock of
            `run`.
    """

    account: Account

    @property
    def producers(self) -> Sequence[Producer]:
        """The schedules that were followed."""
        ...


class ProducerClient(Protocol):
    """Offers one task's share of a plan: the same pattern and the same account by any library."""

    def open(self) -> None:
        """Make everything ready that must not cost time later; nothing is sent yet.

        Raises:
            RedlineError: the library is missing, cannot do what the plan asks for, or a
                broker cannot be reached.
        """
        ...

    def run(self, start_s: float, wall_offset_s: float, driver: DriverChannel | None) -> TaskLoad:
        """Offer the load from `start_s` on, through warm-up and windows, then drain.

        The driver is told of each window that is over, but for the last.

        Args:
            start_s: when the schedule begins, on the monotonic clock [s].
            wall_offset_s: what to add to that clock for seconds since the epoch.
            driver: channel to the driver, which may end the window early; None without a driver.

        Raises:
            RedlineError: the load had to end; the row says why.
        """
        ...

    def close(self) -> None:
        """Close all connections; harmless when nothing is open."""
        ...
