"""Reopening of lost connections, on threads outside of the event loop, which a pipe wakes."""

from __future__ import annotations

import os
import queue
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from jobs.engine.network.pacing import Key
from jobs.engine.network.transport import Transport
from metrics.common.errors import RedlineError

Opener = Callable[[Sequence[Key]], Mapping[Key, Transport]]
"""A function that opens all of these connections to one broker, or raises a `RedlineError`."""

_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 1.0
_AT_ONCE = 64


class Waker:
    """A pipe that a selector listens to; `wake` may be called from any thread."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._closed = False

    def fileno(self) -> int:
        """The descriptor that the selector listens to."""
        return self._out

    def wake(self) -> None:
        """Make the selector return."""
        if not self._closed:
            with suppress(BlockingIOError):  # full of wake-ups already
                os.write(self._in, b"x")

    def clear(self) -> None:
        """Read all wake-ups."""
        with suppress(BlockingIOError):
            while os.read(self._out, 65_536):
                continue

    def close(self) -> None:
        """Close both ends; later wake-ups do nothing."""
        self._closed = True
        os.close(self._out)
        os.close(self._in)


class Reopener:
    """Threads that open connections until they are closed, one for each broker.

    So a silent broker delays the connections to no other one. While a broker is down, its thread
    tries one connection at a time, with Kafka's reconnect back-off (50 ms, doubled up to 1 s, with
    a fifth of jitter); when one succeeds, the waiting ones follow. A thread starts with the first
    lost connection to its broker, and ends with its owner.

    Args:
        opener: opens connections, and may block; several threads call it.
        rng: the source of the jitter.
    """

    def __init__(self, opener: Opener, rng: random.Random | None = None) -> None:
        self._opener = opener
        self._rng = rng or random.Random()
        self._wanted: dict[int, queue.SimpleQueue[Key | None]] = {}
        self._opened: queue.SimpleQueue[tuple[Key, Transport]] = queue.SimpleQueue()
        self._requested: set[Key] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._waker = Waker()

    def fileno(self) -> int:
        """The descriptor that is readable when `take` has connections to return."""
        return self._waker.fileno()

    def request(self, key: Key) -> None:
        """Request this connection as soon as possible; a second request does nothing."""
        if key in self._requested:
            return
        self._requested.add(key)
        broker = key[1]
        if broker not in self._wanted:
            wanted = self._wanted[broker] = queue.SimpleQueue()
            name = f"reopener-{broker}"
            threading.Thread(target=self._run, args=(wanted,), name=name, daemon=True).start()
        self._wanted[broker].put(key)

    def take(self) -> list[tuple[Key, Transport]]:
        """Take the connections opened since the last call."""
        self._waker.clear()
        taken = []
        while not self._opened.empty():
            key, transport = self._opened.get()
            self._requested.discard(key)
            taken.append((key, transport))
        return taken

    def close(self) -> None:
        """Stop without waiting; connections that are still being opened are closed at once."""
        with self._lock:
            self._closed.set()
        for wanted in self._wanted.values():
            wanted.put(None)
        for _, transport in self.take():
            transport.close()
        self._waker.close()

    # --- in the thread of a broker ------------------------------------------

    def _run(self, wanted: queue.SimpleQueue[Key | None]) -> None:
        waiting: list[Key] = []
        backoff_s = 0.0
        while not self._closed.wait(backoff_s * self._rng.uniform(0.8, 1.2)):
            while not waiting or not wanted.empty():
                key = wanted.get()
                if key is None:
                    return
                waiting.append(key)
            first = waiting[: 1 if backoff_s else _AT_ONCE]
            if self._try(first):
                backoff_s = 0.0
                del waiting[: len(first)]
            else:
                backoff_s = min(max(2 * backoff_s, _BACKOFF_MIN_S), _BACKOFF_MAX_S)

    def _try(self, keys: Sequence[Key]) -> bool:
        try:
            opened = self._opener(keys)
        except (RedlineError, OSError):  # the waiting batches show the effect
            return False
        with self._lock:
            if self._closed.is_set():
                for transport in opened.values():
                    transport.close()
            else:
                for item in opened.items():
                    self._opened.put(item)
                self._waker.wake()
        return True
