"""Simulated time, which advances only while an event loop waits.

The loop under test and its sockets are real. Its waits end at once, and events come in the same
order in each run, however busy the machine is.
"""

from __future__ import annotations

import math
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from jobs.engine.network import sockets
from jobs.engine.network.pacing import Key
from jobs.engine.network.transport import Transport
from jobs.engine.producing import network_client
from metrics.common.errors import RedlineError

_LOOK_S = 20e-6
"""Simulated time between two readings of the clock, for the work of the caller [s]."""

_RECONNECT_S = 0.05
"""Back-off of a connection that cannot be opened [s]."""

Actor = Callable[[float], float]
"""Gets the time [s], does what is due, and returns the time of its next work, or infinity."""


class SimulatedTime:
    """A simulated clock, and the actors that follow it besides the event loop."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.actors: list[Actor] = []

    def clock(self) -> float:
        """The time [s], a little later than at the last call."""
        self.now_s += _LOOK_S
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @contextmanager
    def passing(self) -> Iterator[SimulatedTime]:
        """Make event loops that are created in this context wait in simulated time."""
        time_here = self

        class Selector(selectors.DefaultSelector):
            def select(
                self, timeout: float | None = None
            ) -> list[tuple[selectors.SelectorKey, int]]:
                assert timeout is not None, "a loop always knows when to look again"
                return time_here._pass(timeout, super().select)

        with (
            mock.patch.object(sockets, "selectors", SimpleNamespace(DefaultSelector=Selector)),
            mock.patch.object(sockets, "sleep", self.sleep),
            mock.patch.object(network_client, "Reopener", partial(Reopening, self)),
        ):
            yield self

    def _pass(
        self, wait_s: float, select: Callable[[float], list[tuple[selectors.SelectorKey, int]]]
    ) -> list[tuple[selectors.SelectorKey, int]]:
        end_s = self.now_s + wait_s
        while True:
            next_s = min((act(self.now_s) for act in tuple(self.actors)), default=math.inf)
            events = select(0)
            if events or self.now_s >= end_s:
                return events
            self.now_s = min(end_s, next_s)


class Reopening:
    """A `Reopener` in simulated time, which tries each connection until it opens."""

    def __init__(self, time: SimulatedTime, connector: Any, wake: Callable[[], None]) -> None:
        self._time, self._connector, self._wake = time, connector, wake
        self._wanted: dict[Key, float] = {}
        self._opened: list[tuple[Key, Transport]] = []
        time.actors.append(self._act)

    def request(self, key: Key) -> None:
        self._wanted.setdefault(key, self._time.now_s)

    def _act(self, now_s: float) -> float:
        for key in [key for key, from_s in self._wanted.items() if from_s <= now_s]:
            try:
                self._opened.append((key, self._connector.open([key])[key]))
                del self._wanted[key]
                self._wake()
            except RedlineError:
                self._wanted[key] = now_s + _RECONNECT_S
        return min(self._wanted.values(), default=math.inf)

    def take(self) -> list[tuple[Key, Transport]]:
        taken, self._opened = self._opened, []
        return taken

    def close(self) -> None:
        self._wanted.clear()
