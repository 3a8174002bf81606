"""The sockets of an event loop: a selector, and the channels that it drives."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from contextlib import suppress
from time import sleep, time
from typing import Generic, Protocol, TypeVar

from jobs.engine.network.transport import Buffer, PlainTransport, Transport, drop_bytes

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_WORTH_A_CALL_BYTES = 65_536
"""A separate system call drops unneeded bytes if there are at least this number of them [B]. A
smaller number of bytes is read with the needed bytes and ignored, which is faster."""
_PEEK_BYTES = 4_096
"""Size of the first read after dropped records [B]. A read of 4,096 bytes has room for the headers
of a partition and of a batch. The read is short because the records after these headers will
probably be dropped, too."""
_NOTHING = memoryview(b"")


class Waker:
    """A pipe that wakes a selector. Any thread may call `wake`."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._closed = False

    def fileno(self) -> int:
        """The descriptor to register at the selector."""
        return self._out

    def wake(self) -> None:
        """Make the selector return."""
        if not self._closed:
            with suppress(BlockingIOError):  # the pipe is full, so the selector wakes anyway
                os.write(self._in, b"x")

    def clear(self) -> None:
        """Read all wake-ups from the pipe."""
        with suppress(BlockingIOError):
            while os.read(self._out, 65_536):
                continue

    def close(self) -> None:
        """Close both ends. After the pipe is closed, calls of `wake` do nothing."""
        if not self._closed:
            self._closed = True
            os.close(self._out)
            os.close(self._in)


class Channel:
    """A connection that a `Sockets` drives.

    Attributes:
        transport: the transport to the broker; None while the connection is lost.
        successor: an open transport that will replace `transport`; None if there is none.
        unwritten: buffers that the socket has not taken yet.
        peeks: whether the next read is short, because the bytes after it will probably be dropped.
        awaited: number of received bytes at which the selector wakes [B].
        is_parsed_whole: whether all received bytes are parsed, so that no byte is `skippable`.
    """

    __slots__ = ("awaited", "peeks", "successor", "transport", "unwritten")
    is_parsed_whole = False

    def __init__(self, transport: Transport | None = None) -> None:
        self.transport = transport
        self.successor: Transport | None = None
        self.unwritten: list[Buffer] = []
        self.peeks = False
        self.awaited = 1

    def needs_successor(self, now: float) -> bool:
        """Whether the transport's session ends soon and no successor is open."""
        transport = self.transport
        return transport is not None and now >= transport.retire_s and self.successor is None

    def close(self) -> None:
        """Close the transport, and the open transport that would replace it (`successor`)."""
        for each in (self.transport, self.successor):
            if each is not None:
                each.close()

    @property
    def skippable(self) -> int:
        """Number of the next bytes that need no parsing and can be skipped [B]."""
        return 0

    def skip(self, size: int, now: float) -> None:
        """Handle the event that `size` bytes arrived and were dropped unread.

        Args:
            size: number of dropped bytes, which is at most `skippable`.
        """


Owned_contra = TypeVar("Owned_contra", bound=Channel, contravariant=True)


class Owner(Protocol[Owned_contra]):
    """The owner of channels. The owner's methods handle the events of the channels."""

    def handle_received(self, channel: Owned_contra, /, data: memoryview, now: float) -> None:
        """Handle bytes that arrived at `now`.

        Args:
            data: the received bytes, without dropped bytes; valid only during the call.
        """

    def handle_flushed(self, channel: Owned_contra, /, now: float) -> None:
        """Handle the event that the socket has taken all unwritten buffers."""

    def handle_lost(self, channel: Owned_contra, /, error: str, now: float) -> None:
        """Handle a lost connection, whose channel has no transport any more."""

    def handle_woken(self) -> None:
        """Handle a wake-up of the selector by another thread."""


class Sockets(Generic[Owned_contra]):
    """A selector with the channels of one owner.

    Args:
        clock: a monotonic clock [s].
        receive_bytes: size of the buffer for one read from a socket [B].

    Attributes:
        wake: makes the selector return; any thread may call it.
        waited_s: total time spent waiting [s].
        are_stamped: whether the kernel stamps arrivals for all channels with `is_parsed_whole`.
    """

    def __init__(
        self, owner: Owner[Owned_contra], clock: Callable[[], float], receive_bytes: int
    ) -> None:
        self._owner = owner
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._buffer = memoryview(bytearray(receive_bytes))
        self._looked_s = clock()
        self._waker = Waker()
        self._selector.register(self._waker, _READ)
        self.wake = self._waker.wake
        self.waited_s = 0.0
        self.are_stamped = True

    def add(self, channel: Owned_contra, transport: Transport) -> None:
        """Connect a channel with this transport, and watch the transport's socket."""
        channel.transport = transport
        channel.unwritten = []
        channel.peeks, channel.awaited = False, 1
        if channel.is_parsed_whole and not transport.stamp_arrivals():
            self.are_stamped = False
        self._selector.register(transport, _READ, channel)

    def replace(self, channel: Owned_contra) -> None:
        """Replace the channel's transport by its successor, and close the old transport."""
        transport, successor = channel.transport, channel.successor
        assert successor is not None, "the channel has no successor"
        if transport is not None:
            self._selector.unregister(transport)
            transport.close()
        channel.successor = None
        self.add(channel, successor)

    def close(self) -> None:
        """Stop listening. The transports stay open."""
        self._selector.close()
        self._waker.close()

    def send(self, channel: Owned_contra, buffers: list[Buffer]) -> bool:
        """Send these buffers after the unwritten ones; False if the connection is lost."""
        transport = channel.transport
        if transport is None:
            return False
        had_rest = bool(channel.unwritten)
        if had_rest:
            buffers = [*channel.unwritten, *buffers]
        try:
            rest = drop_bytes(buffers, transport.send(buffers))
        except OSError as error:
            self.lose(channel, type(error).__name__)
            return False
        channel.unwritten = rest
        if bool(rest) != had_rest:
            self._selector.modify(transport, _READ | (_WRITE if rest else 0), channel)
        return True

    def lose(self, channel: Owned_contra, error: str) -> None:
        """Close the channel's transport, and report the loss to the owner."""
        transport = channel.transport
        if transport is None:
            return
        self._selector.unregister(transport)
        transport.close()
        channel.transport = None
        channel.unwritten = []
        self._owner.handle_lost(channel, error, self._clock())

    def wait(self, timeout_s: float, gather_s: float = 0.0) -> None:
        """Wait for events of the sockets, and handle them.

        Args:
            timeout_s: longest wait for the first event [s]. If `gather_s` is longer than
                `timeout_s`, the call waits `gather_s`.
            gather_s: time to gather events before they are handled together [s]; ignored if
                `timeout_s` is 0.
        """
        if timeout_s > 0:
            began_s = self._clock()
            if gather_s:
                sleep(gather_s)
                # A selector rounds its timeout up to the next millisecond.
                timeout_s = max(0, int((timeout_s - gather_s) * 1000.0)) / 1000.0
            events = self._selector.select(timeout_s)
            self.waited_s += self._clock() - began_s
        else:
            events = self._selector.select(0)
        before_s, self._looked_s = self._looked_s, self._clock()
        for key, mask in events:
            channel = key.data
            if channel is None:
                self._waker.clear()
                self._owner.handle_woken()
                continue
            if mask & _WRITE and self.send(channel, []) and not channel.unwritten:
                self._owner.handle_flushed(channel, self._clock())
            transport = channel.transport
            if mask & _READ and transport is not None:
                if channel.is_parsed_whole:
                    self._receive_once(channel, transport, before_s)
                    continue
                self._receive(channel, transport)
                if channel.transport is not None:
                    _await_rest(channel, channel.transport)

    def _receive_once(self, channel: Owned_contra, transport: Transport, before_s: float) -> None:
        """Receive once, for a channel without `skippable` bytes.

        Args:
            before_s: time of the previous poll of the sockets [s]. If the kernel's time stamp of
                the bytes is older than `before_s`, because the kernel's clock was changed,
                `before_s` replaces the time stamp.
        """
        try:
            size, stamp_s = transport.receive_stamped(self._buffer)
        except OSError as error:
            self.lose(channel, type(error).__name__)
            return
        if size:
            now = self._clock()
            if stamp_s:
                now = max(before_s, now - max(0.0, time() - stamp_s))
            self._owner.handle_received(channel, self._buffer[:size], now)
        elif size is not None:
            self.lose(channel, "ConnectionClosed")

    def _receive(self, channel: Owned_contra, transport: Transport) -> None:
        """Receive at most the size of the buffer, because other channels wait, too."""
        left = len(self._buffer)
        while left and channel.transport is transport:
            dropper = _dropper_of(channel, transport)
            wanted = channel.skippable if dropper else _PEEK_BYTES if channel.peeks else left
            wanted = min(wanted, left)
            try:
                if dropper:
                    size = dropper.discard(wanted)
                else:
                    size = transport.receive_into(self._buffer[:wanted])
            except OSError as error:
                self.lose(channel, type(error).__name__)
                return
            if size is None:
                return
            if size == 0:
                self.lose(channel, "ConnectionClosed")
                return
            now = self._clock()
            channel.peeks = dropper is not None
            if dropper:
                channel.skip(size, now)
            data = _NOTHING if dropper else self._buffer[:size]
            self._owner.handle_received(channel, data, now)
            left -= size
            if size < wanted or not (dropper or _dropper_of(channel, transport)):
                return


def _await_rest(channel: Channel, transport: Transport) -> None:
    """Set the number of received bytes at which the selector wakes.

    If the next bytes will be dropped unread, the selector waits for many of these bytes, so that a
    few system calls drop them. Otherwise the selector wakes at the first byte.
    """
    dropper = transport.dropper
    size = channel.skippable if _dropper_of(channel, transport) else 1
    if dropper and size != channel.awaited:
        channel.awaited = size
        dropper.await_bytes(size)


def _dropper_of(channel: Channel, transport: Transport) -> PlainTransport | None:
    """Transport that drops the next bytes; None if the bytes are few, or must be parsed."""
    return transport.dropper if channel.skippable >= _WORTH_A_CALL_BYTES else None
