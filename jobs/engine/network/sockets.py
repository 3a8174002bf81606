"""The sockets of one event loop: what they take and give, and the end of their connections."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Protocol

from jobs.engine.network.frames import Buffer, drop_bytes
from jobs.engine.network.transport import Dropper, Transport

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_WORTH_A_CALL_BYTES = 65_536
"""Fewer bytes are copied sooner than a call of its own drops them [B]."""
_PEEK_BYTES = 4_096
"""What is read where the rest is probably dropped: the heads of a partition and a batch fit [B]."""
_NOTHING = memoryview(b"")


class Channel:
    """A connection that a `Sockets` drives.

    Attributes:
        transport: the way to the broker; None while there is none.
        unwritten: what the socket did not take yet.
        looks: whether only the next few bytes are read, as what follows is probably dropped.
        awaited: bytes that have to be there before the selector tells of them [B].
    """

    __slots__ = ("awaited", "peeks", "transport", "unwritten")

    def __init__(self, transport: Transport | None = None) -> None:
        self.transport = transport
        self.unwritten: list[Buffer] = []
        self.peeks = False
        self.awaited = 1

    @property
    def skippable(self) -> int:
        """Bytes to come that nobody will look at [B]."""
        return 0

    def skip(self, size: int, now: float) -> None:
        """So many of the `skippable` bytes have arrived, and were dropped."""


class Owner(Protocol):
    """Who is told what happens on its channels."""

    def handle_received(self, channel: Channel, data: memoryview, now: float) -> None:
        """Bytes have arrived: `data` are those that were not dropped, valid during the call."""
        ...

    def handle_flushed(self, channel: Channel, now: float) -> None:
        """The socket has taken what it did not take before."""
        ...

    def handle_lost(self, channel: Channel, error: str, now: float) -> None:
        """The connection is gone, and the channel has no transport any more."""
        ...


class Sockets:
    """A selector with the channels of one owner.

    Args:
        clock: monotonic [s].
        receive_bytes: room for what one call takes from a socket [B].

    Attributes:
        waited_s: time spent waiting so far [s].
    """

    def __init__(self, owner: Owner, clock: Callable[[], float], receive_bytes: int) -> None:
        self._owner = owner
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._buffer = memoryview(bytearray(receive_bytes))
        self.waited_s = 0.0

    def add(self, channel: Channel, transport: Transport) -> None:
        """Listen on a channel over this transport."""
        channel.transport = transport
        channel.unwritten = []
        channel.peeks, channel.awaited = False, 1
        self._selector.register(transport, _READ, channel)

    def call_when_readable(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call whenever there is something to read from the file descriptor."""
        self._selector.register(descriptor, _READ, call)

    def close(self) -> None:
        """Stop listening; the transports stay open."""
        self._selector.close()

    def send(self, channel: Channel, buffers: list[Buffer]) -> bool:
        """Hand the buffers to the socket behind what it did not take; False if it is lost."""
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
        """Close the channel's transport, and tell its owner."""
        transport = channel.transport
        if transport is None:
            return
        self._selector.unregister(transport)
        transport.close()
        channel.transport = None
        channel.unwritten = []
        self._owner.handle_lost(channel, error, self._clock())

    def wait(self, timeout_s: float) -> None:
        """Handle what the sockets are ready for, waiting at most so long for the first [s]."""
        began_s = self._clock()
        events = self._selector.select(timeout_s)
        if timeout_s > 0:
            self.waited_s += self._clock() - began_s
        for key, mask in events:
            channel = key.data
            if not isinstance(channel, Channel):
                channel()
                continue
            if mask & _WRITE and self.send(channel, []) and not channel.unwritten:
                self._owner.handle_flushed(channel, self._clock())
            if mask & _READ and channel.transport is not None:
                self._receive(channel, channel.transport)
                if channel.transport is not None:
                    self._await_rest(channel, channel.transport)

    def _receive(self, channel: Channel, transport: Transport) -> None:
        """Take what is there, but no more than fits the buffer: other channels wait."""
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
            self._arrived(channel, size, dropper is not None)
            left -= size
            if size < wanted or not (dropper or _dropper_of(channel, transport)):
                return

    @staticmethod
    def _await_rest(channel: Channel, transport: Transport) -> None:
        """Be told of bytes that will be dropped when all of them are there, or many."""
        dropper = transport.dropper
        size = channel.skippable if _dropper_of(channel, transport) else 1
        if dropper and size != channel.awaited:
            channel.awaited = size
            dropper.await_bytes(size)

    def _arrived(self, channel: Channel, size: int, were_dropped: bool) -> None:
        now = self._clock()
        channel.peeks = were_dropped
        if were_dropped:
            channel.skip(size, now)
        self._owner.handle_received(channel, _NOTHING if were_dropped else self._buffer[:size], now)


def _dropper_of(channel: Channel, transport: Transport) -> Dropper | None:
    """What drops the next bytes; None where they are too few, or somebody looks at them."""
    return transport.dropper if channel.skippable >= _WORTH_A_CALL_BYTES else None
