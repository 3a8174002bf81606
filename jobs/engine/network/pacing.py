"""The pace of opening new connections to one broker. Pure.

Brokers and cloud services limit the number of connections and the rate of new ones. If some of
these limits are reached, a broker closes a new connection (max.connections.per.ip, rates per
address, MSK's IAM logins). If other limits are reached, a broker lets a new connection wait
(max.connection.creation.rate, max.connections). The pacer works like TCP's congestion window: its
limit is the number of connections that may be opening at the same time. The pacer raises its limit
while connections open quickly. If a broker closes a connection or lets it wait, the pacer halves
its limit. If a broker closes a connection, the pacer also pauses.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

Key = tuple[str, int]
"""Identity of a connection: (name of the client, broker id)."""

PATIENCE = 10
"""Time limit for opening all connections, divided by the time limit for one connection."""

WINDOW_START, WINDOW_MAX = 8, 64
"""First and largest limit for the number of connections that are being opened at the same time."""

SLOW_S = 1.0
"""A connection that takes longer than this to open has waited because of a broker's limit [s]."""

PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 2.0
"""Shortest and longest pause after a refusal [s]. A pause is twice as long as the pause before;
each opened connection multiplies the next pause by `PAUSE_DECAY`."""

RECONNECT_PAUSE_MAX_S = 1.0
"""Longest pause before a lost connection is tried again [s], as in reconnect.backoff.max.ms."""

PAUSE_DECAY = 0.7

SETBACKS_MAX, SETBACKS_MAX_UNOPENED = 8, 3
"""The pacer gives up after this number of consecutive refusals. The first number is for a broker
that has accepted connections, and the second for a broker that has accepted none."""


@dataclass
class Attempt:
    """A connection that is being opened. `began_s` is the time at which the opening of the
    connection began [s].
    """

    key: Key
    began_s: float


@dataclass
class ConnectPacer:
    """Pacer that decides when to open each connection to one broker.

    The caller starts the connections that `due` returns, and reports each result by `opened` or
    `refused`.

    Attributes:
        rng: source of the jitter.
        is_endless: whether the pacer never gives up. A task opens lost connections again with an
            endless pacer.
        took: number of opened connections.
        setbacks: number of consecutive refusals; refusals of connections that started together
            count once.
        window: largest number of connections that are being opened at the same time.
        progress_s: time of the last opened connection [s]; -inf before the first one.
    """

    rng: random.Random
    is_endless: bool = False
    took: int = 0
    setbacks: int = 0
    window: float = WINDOW_START
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
        """Number of connections that are not open yet."""
        return len(self._waiting) + self._running

    @property
    def has_given_up(self) -> bool:
        """Whether the broker has refused so often that the pacer gives up."""
        most = SETBACKS_MAX if self.took else SETBACKS_MAX_UNOPENED
        return self.setbacks >= most and not self.is_endless

    def due(self, now_s: float, most: int) -> list[Attempt]:
        """The connections to start now.

        Args:
            most: maximum number of connections to start. By this number the caller limits how many
                connections to all brokers together are being opened.
        """
        if now_s < self._pause_until_s or self.has_given_up:
            return []
        room = min(most, int(self.window) - self._running, len(self._waiting))
        started = [Attempt(self._waiting.popleft(), now_s) for _ in range(max(0, room))]
        self._running += len(started)
        return started

    def next_s(self) -> float:
        """Earliest time to start a waiting connection [s]. A call of `opened` or `refused` can
        change this time.
        """
        is_free = self._waiting and not self.has_given_up and self._running < int(self.window)
        return self._pause_until_s if is_free else math.inf

    def opened(self, attempt: Attempt, now_s: float) -> None:
        """Record that a connection is open."""
        self._running -= 1
        self.took += 1
        self.setbacks = 0
        self.progress_s = now_s
        self._pause_s = max(PAUSE_MIN_S, PAUSE_DECAY * self._pause_s)
        if now_s - attempt.began_s > SLOW_S:
            self._decrease(attempt, now_s)
        else:
            self.window += 1.0 if self._is_probing else 1.0 / self.window
            self.window = min(self.window, WINDOW_MAX)

    def refused(self, attempt: Attempt, now_s: float) -> None:
        """Record that the broker closed a connection, which will be opened again later."""
        self._running -= 1
        self._waiting.append(attempt.key)
        if self._decrease(attempt, now_s):
            if self.setbacks:  # no connection that started after the last pause was opened
                self.window = 1.0
            self.setbacks += 1
            self._pause_until_s = now_s + self._pause_s * self.rng.uniform(0.5, 1.5)
            most_s = RECONNECT_PAUSE_MAX_S if self.is_endless else PAUSE_MAX_S
            self._pause_s = min(2 * self._pause_s, most_s)

    def _decrease(self, attempt: Attempt, now_s: float) -> bool:
        """Halve the window, at most once for connections that started together.

        Return whether the window was halved.
        """
        if attempt.began_s <= self._decreased_s:
            return False
        self.window = max(1.0, self.window / 2)
        self._is_probing = False
        self._decreased_s = now_s
        return True
