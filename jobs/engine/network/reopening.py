"""A thread that opens lost connections again, outside of the event loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jobs.engine.network.connections import Aim, Connector, Opening
from jobs.engine.network.pacing import Key
from jobs.engine.network.transport import Transport


class Reopener:
    """A thread that opens several connections at the same time, until `close` is called.

    A `ConnectPacer` sets the pace for each broker, with Kafka's reconnect back-off. A broker that
    is down therefore does not delay the connections to other brokers. The thread starts with the
    first requested connection, and ends with the process.

    Args:
        wake: makes the event loop call `take`.
    """

    def __init__(self, connector: Connector, wake: Callable[[], None]) -> None:
        self._connector = connector
        self._wake = wake
        self._wanted: queue.SimpleQueue[Key | None] = queue.SimpleQueue()
        self._opened: queue.SimpleQueue[tuple[Key, Transport]] = queue.SimpleQueue()
        self._requested: set[Key] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="reopener", daemon=True)

    def request(self, key: Key) -> None:
        """Request a connection; a second request for the same connection is ignored."""
        if key in self._requested:
            return
        self._requested.add(key)
        self._wanted.put(key)
        if self._thread.ident is None:
            self._thread.start()

    def take(self) -> list[tuple[Key, Transport]]:
        """Take the connections that were opened since the last call."""
        taken = []
        while not self._opened.empty():
            taken.append(self._opened.get())
            self._requested.discard(taken[-1][0])
        return taken

    def close(self) -> None:
        """Stop without waiting. Connections that open after this call are closed at once."""
        with self._lock:
            self._is_closed = True
        self._wanted.put(None)
        for _, transport in self.take():
            transport.close()

    # --- in the thread ------------------------------------------------------

    def _run(self) -> None:
        with Opening(self._connector, Aim.LOST) as opening:
            while not self._is_closed:
                while not opening.is_running or not self._wanted.empty():
                    key = self._wanted.get()
                    if key is None:
                        break
                    opening.add([key])
                else:
                    opening.step()
                    self._hand_over(opening.take())

    def _hand_over(self, opened: dict[Key, Transport]) -> None:
        with self._lock:
            for key, transport in opened.items():
                if self._is_closed:
                    transport.close()
                else:
                    self._opened.put((key, transport))
                    self._wake()
