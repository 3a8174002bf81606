"""The interface of every producer client: what it does for one task of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jobs.engine.producing.account import Account
from jobs.engine.producing.producer import Producer
from jobs.engine.task.control_channel import DriverChannel


class TaskLoad(Protocol):
    """Account of the producers of one task, for the task's row.

    Attributes:
        account: counts of what became of every record of the last window, on the clock of `run`.
    """

    account: Account

    @property
    def producers(self) -> Sequence[Producer]:
        """The schedules that were followed."""
        ...


class ProducerClient(Protocol):
    """Producers of one task, with the same pattern and account for every library."""

    def open(self) -> None:
        """Prepare everything that must not take time under load; nothing is sent yet.

        Raises:
            RedlineError: the library is missing or cannot do what the plan requires, or a broker
                cannot be reached.
        """
        ...

    def run(self, start_s: float, wall_offset_s: float, driver: DriverChannel | None) -> TaskLoad:
        """Offer the load from `start_s` on, through warm-up and windows, then drain.

        Each window but the last is reported to the driver when it is over.

        Args:
            start_s: when the schedule begins, on the monotonic clock [s].
            wall_offset_s: what to add to that clock for seconds since the epoch.
            driver: channel to the driver, which may end the window early; None without a driver.

        Raises:
            RedlineError: the load had to end; the row states why.
        """
        ...

    def close(self) -> None:
        """Close all connections; does nothing when none is open."""
        ...
