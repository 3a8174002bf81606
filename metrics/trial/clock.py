"""The clocks of the machines with tasks, compared with the driver's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from metrics.columns import Flat

OFFSET_MAX_S = 0.25
"""Largest accepted offset of an executor's clock from the driver's [s].

Tasks start their load at a wall-clock time, and the brokers' samples have the driver's time. An
offset of this size moves a window's edges no more than the brokers' own meters, which are updated
when a request handler's poll of up to 0.3 s ends.
"""


@dataclass(frozen=True)
class ClockOffset:
    """The offset of a clock from the driver's, measured by a round trip to the driver.

    Attributes:
        offset_s: time by which the clock is ahead [s].
        error_s: half of the round trip, which bounds the error [s].
    """

    offset_s: float
    error_s: float

    @property
    def least_s(self) -> float:
        """The smallest possible distance from the driver's clock, in either direction [s]."""
        return max(0.0, abs(self.offset_s) - self.error_s)

    @property
    def text(self) -> str:
        """The offset in words, such as `1.300 s ahead of the driver's (± 0.002 s)`."""
        way = "ahead of" if self.offset_s > 0 else "behind"
        return f"{abs(self.offset_s):.3f} s {way} the driver's (± {self.error_s:.3f} s)"


@dataclass(frozen=True)
class HostClock:
    """The largest clock offset of one host in a trial.

    Attributes:
        host: name of the machine.
        clock: its offset from the driver's clock.
    """

    host: str
    clock: Annotated[ClockOffset, Flat()]


def furthest(offsets: Iterable[ClockOffset]) -> ClockOffset | None:
    """The offset with the largest `least_s`; None without any."""
    return max(offsets, key=lambda each: each.least_s, default=None)


def host_clocks(offsets_by_task: Iterable[tuple[str, ClockOffset | None]]) -> tuple[HostClock, ...]:
    """The clock of each host that was compared, from the offsets of its tasks."""
    by_host: dict[str, list[ClockOffset]] = {}
    for host, offset in offsets_by_task:
        if offset is not None:
            by_host.setdefault(host, []).append(offset)
    worst = ((host, furthest(offsets)) for host, offsets in sorted(by_host.items()))
    return tuple(HostClock(host, clock) for host, clock in worst if clock is not None)
