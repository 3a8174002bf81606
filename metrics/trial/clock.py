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

    def since(self, earlier: ClockOffset) -> ClockOffset:
        """The change of the offset since an earlier measurement."""
        return ClockOffset(self.offset_s - earlier.offset_s, self.error_s + earlier.error_s)


CHANGE_MAX = 0.01
"""Largest accepted change of a clock's offset within a load, as a share of the measured window.

A clock that gains 1 % on the driver's may have run faster by as much, and a load that is paced by
it is larger by as much: less than the resolution of any search.
"""


@dataclass(frozen=True)
class HostClock:
    """The largest clock offset of one host in a trial.

    Attributes:
        host: name of the machine.
        clock: its offset from the driver's clock.
    """

    host: str
    clock: Annotated[ClockOffset, Flat()]


@dataclass(frozen=True)
class ClockChange:
    """The largest change of a host's clock within a load, measured before and after it.

    Attributes:
        host: name of the machine.
        gained_s: time that its clock gained on the driver's; below 0 where it lost [s].
        error_s: bound of the error [s].
    """

    host: str
    gained_s: float
    error_s: float

    @property
    def least_s(self) -> float:
        """The smallest possible change, in either direction [s]."""
        return max(0.0, abs(self.gained_s) - self.error_s)

    @property
    def text(self) -> str:
        """The change in words, such as `gained 0.400 s on the driver's (± 0.002 s)`."""
        verb = "gained" if self.gained_s > 0 else "lost"
        return f"{verb} {abs(self.gained_s):.3f} s on the driver's (± {self.error_s:.3f} s)"


def furthest(offsets: Iterable[ClockOffset]) -> ClockOffset | None:
    """The offset with the largest `least_s`; None without any."""
    return max(offsets, key=lambda each: each.least_s, default=None)


def host_clocks(offsets_by_task: Iterable[tuple[str, ClockOffset | None]]) -> tuple[HostClock, ...]:
    """The clock of each host that was compared, from the offsets of its tasks."""
    return tuple(HostClock(host, clock) for host, clock in _furthest_by_host(offsets_by_task))


def clock_changes(
    changes_by_task: Iterable[tuple[str, ClockOffset | None]],
) -> tuple[ClockChange, ...]:
    """The largest change of each host's clock, from the changes that its tasks saw."""
    return tuple(
        ClockChange(host, change.offset_s, change.error_s)
        for host, change in _furthest_by_host(changes_by_task)
    )


def _furthest_by_host(
    offsets_by_task: Iterable[tuple[str, ClockOffset | None]],
) -> list[tuple[str, ClockOffset]]:
    by_host: dict[str, list[ClockOffset]] = {}
    for host, offset in offsets_by_task:
        if offset is not None:
            by_host.setdefault(host, []).append(offset)
    worst = ((host, furthest(offsets)) for host, offsets in sorted(by_host.items()))
    return [(host, offset) for host, offset in worst if offset is not None]
