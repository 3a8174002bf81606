"""The channel between the owner of a testbed and its supervisor: one JSON message per line.

The channel is a pair of connected sockets; the supervisor inherits one socket. If the owner ends,
even by kill -9, the kernel closes the owner's socket, which the supervisor detects. The module also
waits for the events that wake the supervisor: messages of the owner, signals, and ends of children.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

Message = Mapping[str, Any]
_CHUNK_BYTES = 65_536


class ChannelClosedError(Exception):
    """The process at the other end has ended, or has closed the channel."""


class MessageChannel:
    """One end of a channel."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._received = b""

    def fileno(self) -> int:
        """The file descriptor of the socket, for selectors and for inheritance."""
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
        """Receive the next message; None if no message arrives within the timeout [s].

        Raises:
            ChannelClosedError: the other end is closed, and no received message is left.
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
        """Close this end; the other end then raises `ChannelClosedError`."""
        self._end.close()


def channel_pair() -> tuple[MessageChannel, socket.socket]:
    """Create a channel; return this process's end, and the socket for the other process."""
    ours, theirs = socket.socketpair()
    return MessageChannel(ours), theirs


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Inbox:
    """Waits for messages and signals at the same time, without polling.

    Attributes:
        terminations: number of received signals that request the end of the testbed.
        is_owner_gone: True once the owner has ended, that is, once the other end of the channel is
            closed or this process has another parent.
        is_detached: True once the testbed continues without its owner.
    """

    def __init__(self, channel: MessageChannel) -> None:
        self.terminations = 0
        self.is_owner_gone = False
        self.is_detached = False
        self._channel = channel
        self._parent = os.getppid()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._wakeup, self._writer = socket.socketpair()
        self._wakeup.setblocking(False)
        self._writer.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._handlers = {
            signum: signal.signal(signum, self._note)
            for signum in _ENDING
            if signum == signal.SIGTERM or signal.getsignal(signum) is not signal.SIG_IGN
        }
        # Without a handler SIGCHLD does not wake; the supervisor polls which child has ended.
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)

    @property
    def is_orphaned(self) -> bool:
        """Whether the owner ended although the testbed is not detached."""
        return self.is_owner_gone and not self.is_detached

    def wait(self, timeout_s: float) -> list[Message]:
        """Wait for an event, at most `timeout_s` [s]; return the messages that have arrived."""
        messages: list[Message] = []
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._wakeup:
                # Empty the socket; the handlers have counted all signals.
                with suppress(BlockingIOError):
                    while self._wakeup.recv(4096):
                        continue
            else:
                messages += self._read()
        if os.getppid() != self._parent:
            # Another process may have inherited the owner's socket, so that it stays open.
            self.is_owner_gone = True
        return messages

    def close(self) -> None:
        """Restore the earlier signal handlers."""
        signal.set_wakeup_fd(-1)
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        self._selector.close()
        self._wakeup.close()
        self._writer.close()

    def _read(self) -> list[Message]:
        messages = []
        try:
            while (message := self._channel.receive(timeout_s=0)) is not None:
                messages.append(message)
        except ChannelClosedError:
            self.is_owner_gone = True
            self._selector.unregister(self._channel)
        return messages

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.terminations += 1
