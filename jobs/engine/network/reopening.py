"""Reopening of lost connections, on a thread outside of the event loop."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from jobs.engine.network.pacing import Key
from jobs.engine.network.transport import Transport
from metrics.common.errors import RedlineError

Opener = Callable[[Sequence[Key]], Mapping[Key, Transport]]
"""A function that opens all of these connections, or raises a `RedlineError`."""

_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 1.0
_AT_ONCE = 64


class Reopener:
    """A thread that opens connections until it is closed.

    While a broker is down, the thread tries one connection at a time, with Kafka's reconnect
    back-off (50 ms, doubled up to 1 s, with a fifth of jitter); when one succeeds, the waiting
    ones follow. The thread starts with the first lost connection, and ends with its owner.

    Args:
        opener: opens connections, and may block.
        rng: the source of the jitter.
    """

    def __init__(self, opener: Opener, rng: random.Random | None = None) -> None:
        self._opener = opener
        self._rng = rng or random.Random()
        self._wanted: queue.SimpleQueue[Key | None] = queue.SimpleQueue()
        self._opened: queue.SimpleQueue[tuple[Key, Transport]] = queue.SimpleQueue()
        self._requested: set[Key] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)

    def fileno(self) -> int:
        """The descriptor that is readable when `take` has connections to return."""
        return self._wake_read

    def request(self, key: Key) -> None:
        """Request this connection as soon as possible; a second request does nothing."""
        if key in self._requested:
            return
        self._requested.add(key)
        self._wanted.put(key)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="reopener", daemon=True)
            self._thread.start()

    def take(self) -> list[tuple[Key, Transport]]:
        """Take the connections opened since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 65_536)
        taken = []
        while not self._opened.empty():
            key, transport = self._opened.get()
            self._requested.discard(key)
            taken.append((key, transport))
        return taken

    def close(self) -> None:
        """Stop without waiting; connections that are still being opened are closed at once."""
        with self._lock:
            self._is_closed = True
        self._wanted.put(None)
        for _, transport in self.take():
            transport.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # --- in the thread ------------------------------------------------------

    def _run(self) -> None:
        waiting: dict[int, list[Key]] = {}
        backoff_s: dict[int, float] = {}
        next_s: dict[int, float] = {}
        while not self._is_closed:
            self._collect(waiting, next_s)
            for broker, keys in list(waiting.items()):
                if not keys or time.monotonic() < next_s.get(broker, 0.0):
                    continue
                first = keys[: 1 if broker in backoff_s else _AT_ONCE]
                if self._try(first):
                    backoff_s.pop(broker, None)
                    del keys[: len(first)]
                else:
                    backoff_s[broker] = min(
                        2 * backoff_s.get(broker, _BACKOFF_MIN_S / 2), _BACKOFF_MAX_S
                    )
                    jitter = self._rng.uniform(0.8, 1.2)
                    next_s[broker] = time.monotonic() + backoff_s[broker] * jitter

    def _collect(self, waiting: dict[int, list[Key]], next_s: Mapping[int, float]) -> None:
        """Collect new requests, and wait for one while nothing can be tried."""
        times = [next_s.get(broker, 0.0) for broker, keys in waiting.items() if keys]
        wait_s = max(0.0, min(times) - time.monotonic()) if times else None
        try:
            key = self._wanted.get(timeout=wait_s)
            while key is not None:
                waiting.setdefault(key[1], []).append(key)
                key = self._wanted.get_nowait()
        except queue.Empty:
            return

    def _try(self, keys: Sequence[Key]) -> bool:
        try:
            opened = self._opener(keys)
        except (RedlineError, OSError):  # the waiting batches show the effect
            return False
        with self._lock:
            if self._is_closed:
                for transport in opened.values():
                    transport.close()
            else:
                for item in opened.items():
                    self._opened.put(item)
                os.write(self._wake_write, b"x")
        return True
