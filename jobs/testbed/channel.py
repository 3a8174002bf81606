"""The channel between the owner of a testbed and its supervisor: one JSON message per line.

The channel is a pair of connected sockets; the supervisor inherits one end. The kernel closes the
owner's end whenever the owner ends, kill -9 included, and the supervisor notices it.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any

Message = Mapping[str, Any]
_CHUNK_BYTES = 65_536


class ChannelClosedError(Exception):
    """The other end is closed: its process has ended, or has closed the channel."""


class MessageChannel:
    """One end of the channel."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._received = b""

    def fileno(self) -> int:
        """The descriptor, for selectors and for inheritance."""
        return self._end.fileno()

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            ChannelClosedError: the other end is closed.
        """
        try:
            self._end.settimeout(None)
            self._end.sendall(json.dumps(message).encode() + b"\n")
        except (BrokenPipeError, ConnectionError) as error:
            raise ChannelClosedError from error

    def receive(self, timeout_s: float) -> Message | None:
        """The next message; None when none arrived within the timeout [s].

        Raises:
            ChannelClosedError: the other end is closed and all its messages have been received.
        """
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            # A timeout of zero would mean non-blocking, which raises another error.
            self._end.settimeout(max(1e-3, deadline_s - time.monotonic()))
            try:
                chunk = self._end.recv(_CHUNK_BYTES)
            except TimeoutError:
                return None
            except ConnectionError as error:
                raise ChannelClosedError from error
            if not chunk:
                raise ChannelClosedError
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end; the other end notices it."""
        self._end.close()


def channel_pair() -> tuple[MessageChannel, socket.socket]:
    """A new channel: this process's end, and the socket that the other process inherits."""
    ours, theirs = socket.socketpair()
    return MessageChannel(ours), theirs
