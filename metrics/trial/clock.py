"""The clocks of the machines with tasks, against the driver's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from metrics.columns import Flat

OFFSET_MAX_S = 0.25
"""How far an executor's clock may be from the driver's [s].

Tasks start their load at a moment that is agreed on by wall clocks, and the brokers' samples
are taken in the driver's time. So much moves a window's edges no more than the brokers' own
meters do, which follow a request handler's last poll of up to 0.3 s.
"""


@dataclass(frozen=True)
class ClockOffset:
    """A clock against the driver's, as a round trip to the driver shows it.

    Attributes:
        offset_s: by how much it is ahead [s].
        error_s: half of the round trip, which bounds the error [s].
    """

    offset_s: float
    error_s: float

    @property
    def least_s(self) -> float:
        """How far it is off at least, either way [s]."""
        return max(0.0, abs(self.offset_s) - self.error_s)

    @property
    def text(self) -> str:
        """For people: `1.300 s ahead of the driver's (± 0.002 s)`."""
        way = "ahead of" if self.offset_s > 0 else "behind"
        return f"{abs(self.offset_s):.3f} s {way} the driver's (± {self.error_s:.3f} s)"


@dataclass(frozen=True)
class HostClock:
    """The clock of one host, when it was the furthest off in a trial.

    Attributes:
        host: name of the machine.
        clock: against the driver's.
    """

    host: str
    clock: Annotated[ClockOffset, Flat()]


def furthest(offsets: Iterable[ClockOffset]) -> ClockOffset | None:
    """The one that is surely the furthest off; None of none."""
    return max(offsets, key=lambda each: each.least_s, default=None)


def host_clocks(seen: Iterable[tuple[str, ClockOffset | None]]) -> tuple[HostClock, ...]:
    """One for each host that was compared, from what its tasks saw."""
    by_host: dict[str, list[ClockOffset]] = {}
    for host, offset in seen:
        if offset is not None:
            by_host.setdefault(host, []).append(offset)
    worst = ((host, furthest(offsets)) for host, offsets in sorted(by_host.items()))
    return tuple(HostClock(host, clock) for host, clock in worst if clock is not None)
