"""The sockets of one event loop: sending, receiving, and the loss of connections."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from time import sleep, time
from typing import Protocol

from jobs.engine.network.transport import Buffer, PlainTransport, Transport, drop_bytes

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_WORTH_A_CALL_BYTES = 65_536
"""Below this size, copying the bytes is faster than a call that drops them [B]."""
_PEEK_BYTES = 4_096
"""Size of a read whose following bytes are probably dropped; holds the heads of a partition and a
batch [B]."""
_NOTHING = memoryview(b"")


class Channel:
    """A connection that a `Sockets` drives.

    Attributes:
        transport: the transport to the broker; None while the connection is lost.
        successor: an open transport that waits to replace the transport; None without one.
        unwritten: buffers that the socket has not taken yet.
        peeks: whether only the next few bytes are read, as those after them are probably dropped.
        awaited: number of arrived bytes at which the selector wakes up [B].
        is_parsed_whole: whether all of its bytes are parsed, so that none are `skippable`.
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
        """Whether the session of the transport ends soon, and no successor is open."""
        transport = self.transport
        return transport is not None and now >= transport.retire_s and self.successor is None

    def close(self) -> None:
        """Close the transport and its successor."""
        for each in (self.transport, self.successor):
            if each is not None:
                each.close()

    @property
    def skippable(self) -> int:
        """Number of coming bytes that need no parsing [B]."""
        return 0

    def skip(self, size: int, now: float) -> None:
        """Take note that so many of the `skippable` bytes have arrived and were dropped."""


class Owner(Protocol):
    """The owner of channels, whose methods handle their events."""

    def handle_received(self, channel: Channel, data: memoryview, now: float) -> None:
        """Handle bytes that arrived at `now`.

        `data` holds those not dropped, and is valid during the call.
        """
        ...

    def handle_flushed(self, channel: Channel, now: float) -> None:
        """Handle that the socket has taken the unwritten buffers."""
        ...

    def handle_lost(self, channel: Channel, error: str, now: float) -> None:
        """Handle a lost connection; the channel has no transport any more."""
        ...


class Sockets:
    """A selector with the channels of one owner.

    Args:
        clock: a monotonic clock [s].
        receive_bytes: size of the buffer for one read from a socket [B].

    Attributes:
        waited_s: total time spent waiting [s].
        are_stamped: whether the kernel notes the time of arrival for all channels that are parsed
            whole.
    """

    def __init__(self, owner: Owner, clock: Callable[[], float], receive_bytes: int) -> None:
        self._owner = owner
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._buffer = memoryview(bytearray(receive_bytes))
        self._looked_s = clock()
        self.waited_s = 0.0
        self.are_stamped = True

    def add(self, channel: Channel, transport: Transport) -> None:
        """Listen on a channel over this transport."""
        channel.transport = transport
        channel.unwritten = []
        channel.peeks, channel.awaited = False, 1
        if channel.is_parsed_whole and not transport.stamp_arrivals():
            self.are_stamped = False
        self._selector.register(transport, _READ, channel)

    def replace(self, channel: Channel) -> None:
        """Continue on a channel over its successor, and close its transport if it has one."""
        transport, successor = channel.transport, channel.successor
        assert successor is not None, "the owner has set it"
        if transport is not None:
            self._selector.unregister(transport)
            transport.close()
        channel.successor = None
        self.add(channel, successor)

    def call_when_readable(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call this whenever the file descriptor has bytes to read."""
        self._selector.register(descriptor, _READ, call)

    def close(self) -> None:
        """Stop listening; the transports stay open."""
        self._selector.close()

    def send(self, channel: Channel, buffers: list[Buffer]) -> bool:
        """Send the buffers after the unwritten ones; False if the connection is lost."""
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

    def lose(self, channel: Channel, error: str) -> None:
        """Close the channel's transport, and report the loss to its owner."""
        transport = channel.transport
        if transport is None:
            return
        self._selector.unregister(transport)
        transport.close()
        channel.transport = None
        channel.unwritten = []
        self._owner.handle_lost(channel, error, self._clock())

    def wait(self, timeout_s: float, gather_s: float = 0.0) -> None:
        """Handle the events of the sockets.

        Args:
            timeout_s: longest wait for the first event, which may end up to `gather_s` late [s].
            gather_s: time in which events gather before they are handled together, unless
                `timeout_s` is 0 [s].
        """
        if timeout_s > 0:
            began_s = self._clock()
            if gather_s:
                sleep(gather_s)
                # Selectors round a timeout up to the next millisecond.
                timeout_s = max(0, int((timeout_s - gather_s) * 1000.0)) / 1000.0
            events = self._selector.select(timeout_s)
            self.waited_s += self._clock() - began_s
        else:
            events = self._selector.select(0)
        before_s, self._looked_s = self._looked_s, self._clock()
        for key, mask in events:
            channel = key.data
            if not isinstance(channel, Channel):
                channel()
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

    def _receive_once(self, channel: Channel, transport: Transport, before_s: float) -> None:
        """Receive what fits into the buffer, for a channel without `skippable` bytes.

        Args:
            before_s: time of the look at the sockets before this one, after which the bytes
                arrived, whatever is done to the clock of the stamps [s].
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

    def _receive(self, channel: Channel, transport: Transport) -> None:
        """Receive at most what fits into the buffer, as other channels wait."""
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
    """Wake up for bytes that will be dropped only when all of them, or many, are there."""
    dropper = transport.dropper
    size = channel.skippable if _dropper_of(channel, transport) else 1
    if dropper and size != channel.awaited:
        channel.awaited = size
        dropper.await_bytes(size)


def _dropper_of(channel: Channel, transport: Transport) -> PlainTransport | None:
    """The dropper for the next bytes; None where they are too few, or need parsing."""
    return transport.dropper if channel.skippable >= _WORTH_A_CALL_BYTES else None
