"""The channel between the owner of a testbed and its supervisor: one JSON message per line.

The channel is a pair of connected sockets; the supervisor inherits one end. The kernel closes the
owner's end whenever the owner ends, kill -9 included, and the supervisor notices it.

The events that wake the supervisor: messages of its owner, signals, and ends of children.
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


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Inbox:
    """Waits for messages and signals together, without polling.

    Attributes:
        terminations: number of signals that requested the end.
        is_owner_gone: True once the other end of the channel is closed, or the parent process,
            which is the owner, has changed.
        is_detached: True once the testbed runs on without its owner.
    """

    def __init__(self, channel: MessageChannel) -> None:
        self.terminations = 0
        self.is_owner_gone = False
        self.is_detached = False
        self._channel = channel
        self._parent = os.getppid()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._wakeup, ours = socket.socketpair()
        self._writer = ours
        self._wakeup.setblocking(False)
        ours.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
        self._handlers = {
            signum: signal.signal(signum, self._note)
            for signum in _ENDING
            if signum == signal.SIGTERM or signal.getsignal(signum) is not signal.SIG_IGN
        }
        # A handler is needed for the wake-up; polling the children shows which one has ended.
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)

    @property
    def is_orphaned(self) -> bool:
        """Whether the owner ended although the testbed is not detached."""
        return self.is_owner_gone and not self.is_detached

    def wait(self, timeout_s: float) -> list[Message]:
        """The messages that have arrived; returns after `timeout_s`, earlier on any event."""
        messages: list[Message] = []
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._wakeup:
                # Empty: the handlers have counted all signals.
                with suppress(BlockingIOError):
                    while self._wakeup.recv(4096):
                        continue
            else:
                messages += self._read()
        if os.getppid() != self._parent:
            # Another process may have inherited the owner's end and keep it open.
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
            while True:
                message = self._channel.receive(timeout_s=0)
                if message is None:
                    break
                messages.append(message)
        except ChannelClosedError:
            self.is_owner_gone = True
            self._selector.unregister(self._channel)
        return messages

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.terminations += 1
