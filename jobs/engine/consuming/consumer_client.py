"""The interface of every consumer client: what it does for one task of a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.window import Window
from metrics.trial.consumption import GroupShare
from metrics.trial.sockets import SocketCounts

Targets = Callable[[], Mapping[int, int] | None]
"""Partition → offset to read to; None while more records may be acknowledged."""


@dataclass(frozen=True)
class TaskReading:
    """Account of the consumers of one task, for the task's row.

    Attributes:
        shares: one for each group with a member in this task.
        window: the measured window, on the clock of `run`.
        loop_busy: share of the window spent outside of waiting [ratio]; 0 when unknown.
        sockets: broker id → the sockets to it in the window; empty when unknown.
    """

    shares: tuple[GroupShare, ...]
    window: Window
    loop_busy: float
    sockets: dict[int, SocketCounts] = field(default_factory=dict)


class ConsumerClient(Protocol):
    """One task's members of a plan's groups, with the same account for every library."""

    def open(self) -> None:
        """Join the groups, and return when every member has its share of the partitions.

        Raises:
            RedlineError: a broker cannot be reached, or a group does not settle in time.
        """
        ...

    def run(
        self, start_s: float, wall_offset_s: float, driver: DriverChannel | None, targets: Targets
    ) -> TaskReading:
        """Read through warm-up and window, and then until the targets are reached.

        Args:
            start_s: when the load begins, on the monotonic clock [s].
            wall_offset_s: what to add to that clock for seconds since the epoch.
            driver: channel to the driver, which may end the window early; None without a driver.
            targets: offsets to read to once the window is over.

        Raises:
            RedlineError: the reading had to end; the row states why.
        """
        ...

    def close(self) -> None:
        """Leave the groups and close all connections; does nothing when none is open."""
        ...
