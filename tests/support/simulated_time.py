"""Simulated time, which advances only while an event loop waits.

The loop under test and its sockets are real. Its waits end at once, and events come in the same
order in each run, however busy the machine is.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

from jobs.engine.network import transport as sockets
from jobs.engine.network.pacing import Key
from jobs.engine.network.reopening import Opener, Reopener
from jobs.engine.network.transport import Transport
from jobs.engine.producing import loop
from metrics.common.errors import RedlineError
from tests.support.processes import PATIENCE_S

_LOOK_S = 20e-6
"""Simulated time between two readings of the clock, for the work of the caller [s]."""

Actor = Callable[[float], float]
"""Gets the time [s], does what is due, and returns the time of its next work, or infinity."""


class SimulatedTime:
    """A simulated clock, and the actors that follow it besides the event loop."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.actors: list[Actor] = []
        self._opening: set[Key] = set()

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

        class Reopening(Reopener):
            def __init__(self, opener: Opener) -> None:
                super().__init__(time_here._with_failures(opener))

            def request(self, key: Key) -> None:
                time_here._opening.add(key)
                super().request(key)

            def take(self) -> list[tuple[Key, Transport]]:
                taken = super().take()
                time_here._opening.difference_update(key for key, _ in taken)
                return taken

        with (
            mock.patch.object(sockets, "selectors", SimpleNamespace(DefaultSelector=Selector)),
            mock.patch.object(sockets, "sleep", self.sleep),
            mock.patch.object(loop, "Reopener", Reopening),
        ):
            yield self

    def _pass(
        self, wait_s: float, select: Callable[[float], list[tuple[selectors.SelectorKey, int]]]
    ) -> list[tuple[selectors.SelectorKey, int]]:
        end_s = self.now_s + wait_s
        patient_until_s = time.monotonic() + PATIENCE_S
        while True:
            next_s = min((act(self.now_s) for act in self.actors), default=math.inf)
            events = select(0)
            if events or self.now_s >= end_s:
                return events
            if self._opening:  # a thread opens a connection, in real time
                assert time.monotonic() < patient_until_s, f"{self._opening} never opened"
                select(0.01)
                continue
            self.now_s = min(end_s, next_s)

    def _with_failures(self, opener: Opener) -> Opener:
        def opened(keys: Sequence[Key]) -> Mapping[Key, Transport]:
            try:
                return opener(keys)
            except (RedlineError, OSError):
                self._opening.difference_update(keys)
                raise

        return opened
