"""A pipe by which another thread wakes an event loop."""

from __future__ import annotations

import os


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
            try:
                os.write(self._in, b"x")
            except BlockingIOError:
                return  # full of wake-ups already

    def clear(self) -> None:
        """Read all wake-ups."""
        while True:
            try:
                if not os.read(self._out, 4_096):
                    return
            except BlockingIOError:
                return

    def close(self) -> None:
        """Close both ends; later wake-ups do nothing."""
        self._closed = True
        os.close(self._out)
        os.close(self._in)
