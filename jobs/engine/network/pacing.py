"""The pace at which new connections to one broker are opened. Pure.

Brokers and services limit how many connections they take and how many new ones a second. Some
close what exceeds a limit (max.connections.per.ip, a rate for each address, MSK's logins by IAM),
others let it wait (max.connection.creation.rate, max.connections). So the number of connections
that are opened at the same time grows while they open quickly, and halves when one is closed or
waits, as TCP's window does; after a closed one there is a pause, too.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

Key = tuple[str, int]
"""(client id, broker id)."""

PATIENCE = 10
"""The longest time to open all connections, as a multiple of the time limit without a new one."""

WINDOW_START, WINDOW_MAX = 8, 64
"""Connections that are opened at the same time: at the beginning, and at most."""

SLOW_S = 1.0
"""A connection that takes longer to open than this waited for a slot or for the rate [s]."""

PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 2.0
"""Shortest and longest pause after a refusal; each is twice the last one, and each connection that
opens shortens it by `PAUSE_DECAY` [s]."""

RECONNECT_PAUSE_MAX_S = 1.0
"""Longest pause before a lost connection is tried again: reconnect.backoff.max.ms [s]."""

PAUSE_DECAY = 0.7

SETBACKS_MAX, SETBACKS_MAX_UNOPENED = 8, 3
"""Refusals in a row, each after a pause, that are an answer: of a broker that has taken
connections, and of one that has taken none."""


@dataclass
class Attempt:
    """A connection that is being opened, and the time of its start [s]."""

    key: Key
    began_s: float


@dataclass
class ConnectPacer:
    """Decides when which connection to one broker is opened.

    The caller starts what `due` returns, and reports the result by `opened` or `refused`.

    Attributes:
        rng: the source of the jitter.
        is_endless: whether refusals never are an answer, as for lost connections.
        took: connections that were opened.
        setbacks: refusals in a row, those of connections that were started together counted once.
        window: connections that may be opened at the same time.
        slowed: whether a connection had to wait.
        progress_s: time of the last opened connection [s]; -inf without one.
    """

    rng: random.Random
    is_endless: bool = False
    took: int = 0
    setbacks: int = 0
    window: float = WINDOW_START
    slowed: bool = False
    progress_s: float = -math.inf
    _waiting: deque[Key] = field(default_factory=deque)
    _running: int = 0
    _is_probing: bool = True
    _decreased_s: float = -math.inf
    _pause_s: float = PAUSE_MIN_S
    _pause_until_s: float = -math.inf

    def add(self, keys: Iterable[Key]) -> None:
        """Add connections to open."""
        self._waiting.extend(keys)

    @property
    def left(self) -> int:
        """Connections that are not open yet."""
        return len(self._waiting) + self._running

    @property
    def has_given_up(self) -> bool:
        """Whether refusals have become an answer."""
        most = SETBACKS_MAX if self.took else SETBACKS_MAX_UNOPENED
        return self.setbacks >= most and not self.is_endless

    def due(self, now_s: float, most: int) -> list[Attempt]:
        """The connections to start now.

        Args:
            most: largest number to start, as other brokers' connections are opened, too.
        """
        if now_s < self._pause_until_s or self.has_given_up:
            return []
        room = min(most, int(self.window) - self._running, len(self._waiting))
        started = [Attempt(self._waiting.popleft(), now_s) for _ in range(max(0, room))]
        self._running += len(started)
        return started

    def next_s(self) -> float:
        """The earliest time at which a waiting connection may start without another result [s]."""
        is_free = self._waiting and not self.has_given_up and self._running < int(self.window)
        return self._pause_until_s if is_free else math.inf

    def opened(self, attempt: Attempt, now_s: float) -> None:
        """Take note of a connection that is open."""
        self._running -= 1
        self.took += 1
        self.setbacks = 0
        self.progress_s = now_s
        self._pause_s = max(PAUSE_MIN_S, PAUSE_DECAY * self._pause_s)
        if now_s - attempt.began_s > SLOW_S:
            self.slowed = True
            self._decrease(attempt, now_s)
        else:
            self.window += 1.0 if self._is_probing else 1.0 / self.window
            self.window = min(self.window, WINDOW_MAX)

    def refused(self, attempt: Attempt, now_s: float) -> None:
        """Take note of a connection that the broker closed, which is opened again later."""
        self._running -= 1
        self._waiting.append(attempt.key)
        if self._decrease(attempt, now_s):
            if self.setbacks:  # none of those that were started after the last pause was taken
                self.window = 1.0
            self.setbacks += 1
            self._pause_until_s = now_s + self._pause_s * self.rng.uniform(0.5, 1.5)
            most_s = RECONNECT_PAUSE_MAX_S if self.is_endless else PAUSE_MAX_S
            self._pause_s = min(2 * self._pause_s, most_s)

    def _decrease(self, attempt: Attempt, now_s: float) -> bool:
        """Halve the window, once for all that was started before; returns whether it did."""
        if attempt.began_s <= self._decreased_s:
            return False
        self.window = max(1.0, self.window / 2)
        self._is_probing = False
        self._decreased_s = now_s
        return True
