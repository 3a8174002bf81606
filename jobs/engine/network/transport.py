"""Bytes to a broker and back: transports, frames of Kafka's protocol, and an event loop's sockets.

A transport is a plain socket, or one with TLS. Both are non-blocking and fit a level-triggered
selector. Plain sockets send by scatter-gather, so no payload is copied on its way to the kernel.
OpenSSL takes one buffer at a time and encrypts it in records of 16 KiB, so small buffers are joined
first.
"""

from __future__ import annotations

import math
import mmap
import os
import selectors
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import sleep, time
from typing import Protocol

from metrics.common.errors import RedlineError

_COUNT = struct.Struct(">i")

FRAME_BYTES_MAX = 100 * 2**20
"""Largest answer that is held as a whole [B]: Kafka's own bound of requests,
socket.request.max.bytes. It also detects other servers, as "HTTP" reads as a size of 1.2 GB."""

Buffer = bytes | bytearray | memoryview

_MALFORMED = (
    *(struct.error, ValueError, IndexError, TypeError, AttributeError, OverflowError),
    *(MemoryError, RecursionError),
)
"""Errors that codecs raise for bytes that they cannot read."""


class AnswerFormatError(RedlineError):
    """An answer of a broker that does not follow Kafka's protocol."""


@contextmanager
def answer_of(what: str, frame: Buffer) -> Iterator[None]:
    """Within the block, the only error of a codec that reads the frame is `AnswerFormatError`.

    Args:
        what: content of the answer, for people.
    """
    try:
        yield
    except _MALFORMED as error:
        raise unreadable(what, frame, error) from error


def unreadable(what: str, frame: Buffer, error: Exception) -> AnswerFormatError:
    """The error for an answer that cannot be read."""
    return AnswerFormatError(
        f"a broker's answer about {what}, of {len(frame)} bytes, cannot be read ({error}); "
        "expected Kafka's protocol; check proxies and load balancers between here and the broker"
    )


def correlation_id_of(frame: Buffer) -> int:
    """Correlation id of the request that a response answers, read without its size field.

    Raises:
        AnswerFormatError: the response is too short to hold one.
    """
    try:
        correlation_id: int = _COUNT.unpack_from(frame, 0)[0]
    except struct.error as error:
        raise unreadable("a request", frame, error) from error
    return correlation_id


class FrameReader:
    """Cuts a byte stream into Kafka's size-prefixed frames."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed = _COUNT.size

    def feed(self, data: Buffer) -> Iterable[memoryview]:
        """The frames that `data` completes; each is valid until the next one is requested.

        Raises:
            AnswerFormatError: a frame has a size that Kafka's frames cannot have.
        """
        if not self._rest and len(data) - _COUNT.size == int.from_bytes(data[:4], "big"):
            return (memoryview(data)[_COUNT.size :],)  # almost always one whole frame arrives
        return self._cut(data)

    def _cut(self, data: Buffer) -> Iterator[memoryview]:
        if self._rest:
            self._rest += data  # in place, as a large frame arrives in hundreds of pieces
            if len(self._rest) < self._needed:
                return
            data, self._rest = self._rest, bytearray()
        joined = memoryview(data)
        position, end, self._needed = 0, len(joined), _COUNT.size
        while end - position >= _COUNT.size:
            (size,) = _COUNT.unpack_from(joined, position)
            if not 0 <= size <= FRAME_BYTES_MAX:
                raise AnswerFormatError(
                    f"a frame of {size} bytes is not Kafka's; expected at most "
                    f"{FRAME_BYTES_MAX}; check that this is a broker's listener, and that it has "
                    "the protocol that the cluster's file names"
                )
            if end - position - _COUNT.size < size:
                self._needed += size
                break
            position += _COUNT.size
            yield joined[position : position + size]
            position += size
        self._rest = bytearray(joined[position:])


def drop_bytes(buffers: list[Buffer], count: int) -> list[Buffer]:
    """The rest of the buffers after `count` bytes."""
    for position, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[position + 1 :]]
        count -= len(buffer)
    return []


TLS_RECORD_BYTES = 16_384
"""The most that one TLS record carries [B]."""

_JOIN_BYTES = 8 * TLS_RECORD_BYTES
_DISCARD_BYTES = 16_777_216
_WAITING_PARTS = 8
_IS_LINUX = sys.platform == "linux"
_SO_TIMESTAMPNS = 35  # of Linux, which Python's socket module does not name
_TIMESPEC = struct.Struct("@ll")
_STAMP_SPACE = socket.CMSG_SPACE(_TIMESPEC.size)


class Transport:
    """A connected, authenticated, non-blocking transport to one broker, for use in a selector.

    Attributes:
        sock: the socket, for the kernel's figures of it.
        retire_s: when a successor has to replace it, as the broker ends its session soon
            afterwards; infinite for a session without an end, on the monotonic clock [s].
        versions: API key → version of its requests.
    """

    __slots__ = ("retire_s", "sock", "versions")

    def __init__(
        self,
        sock: socket.socket,
        retire_s: float = math.inf,
        versions: Mapping[int, int] | None = None,
    ) -> None:
        self.sock = sock
        self.retire_s = retire_s
        self.versions = versions or {}

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self.sock.fileno()

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send as much as fits, in order; returns the number of bytes taken.

        The next call must begin with the first byte that was not taken.

        Raises:
            OSError: the connection is lost.
        """
        raise NotImplementedError

    def receive_into(self, buffer: memoryview) -> int | None:
        """Receive the bytes that have arrived; the buffer holds `TLS_RECORD_BYTES` at least.

        Returns the number of bytes; None when none has arrived, 0 when the broker closed.

        Raises:
            OSError: the connection is lost.
        """
        raise NotImplementedError

    def stamp_arrivals(self) -> bool:
        """Have the kernel note when bytes arrive; False where it cannot."""
        return False

    def receive_stamped(self, buffer: memoryview) -> tuple[int | None, float]:
        """Do what `receive_into` does, and return when the last of the bytes arrived, too.

        That is in seconds since the epoch, and 0 where it is not known.

        Raises:
            OSError: the connection is lost.
        """
        return self.receive_into(buffer), 0.0

    @property
    def dropper(self) -> PlainTransport | None:
        """Drops arrived bytes that need no parsing; None where all bytes have to be received."""
        return None

    def close(self) -> None:
        """Close the socket; does nothing when it is closed."""
        self.sock.close()


class PlainTransport(Transport):
    """A transport over a plain TCP socket.

    Linux drops arrived bytes without copying them (MSG_TRUNC, tcp(7)); on other systems the flag
    means something else. The buffer that the call requires is never written to, so it takes no
    memory.
    """

    __slots__ = ()
    _nowhere = memoryview(mmap.mmap(-1, _DISCARD_BYTES))

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send all buffers, at most 1,024, by one system call."""
        try:
            return self.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return 0

    def receive_into(self, buffer: memoryview) -> int | None:
        """Receive by one system call."""
        try:
            return self.sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def stamp_arrivals(self) -> bool:
        """Set SO_TIMESTAMPNS (socket(7)) on Linux; sandboxes of containers may refuse it."""
        try:
            if _IS_LINUX:
                self.sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        except OSError:
            return False
        return _IS_LINUX

    def receive_stamped(self, buffer: memoryview) -> tuple[int | None, float]:
        """Receive by one system call, with the kernel's time of the arrival."""
        try:
            size, stamps, _flags, _address = self.sock.recvmsg_into((buffer,), _STAMP_SPACE)
        except (BlockingIOError, InterruptedError):
            return None, 0.0
        for _level, kind, data in stamps:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack(data)
                return size, seconds + nanoseconds * 1e-9
        return size, 0.0

    @property
    def dropper(self) -> PlainTransport | None:
        """This transport on Linux; None on other systems."""
        return self if _IS_LINUX else None

    def discard(self, size: int) -> int | None:
        """Drop at most `size` of the bytes that have arrived, by one system call.

        Returns what `receive_into` does.
        """
        try:
            return self.sock.recv_into(self._nowhere, min(size, _DISCARD_BYTES), socket.MSG_TRUNC)
        except (BlockingIOError, InterruptedError):
            return None

    def await_bytes(self, size: int) -> None:
        """Wake a selector only when about so many bytes have arrived, or the end of the stream.

        The low-water mark (SO_RCVLOWAT) is at most a small part of the receive buffer.

        Bytes that wait in the buffer reduce the TCP window, which a long link needs completely; and
        for a mark above half of the buffer the kernel would enlarge it.
        """
        if size > 1:
            held = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            size = max(1, min(size, held // _WAITING_PARTS))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


class TlsTransport(Transport):
    """A transport over a TLS connection after its handshake.

    A record that OpenSSL encrypted and the socket did not take must be offered again with the same
    bytes, in a piece of at least the same length. So callers continue with the bytes that were not
    taken, and `joined` makes the same pieces of them again.

    OpenSSL reads the socket itself and ignores the kernel's times, and bytes have to be decrypted
    to find the end of a record, so none are dropped.
    """

    __slots__ = ()

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Encrypt and send until all bytes are taken or the socket is full."""
        taken = 0
        try:
            for part in joined(buffers):
                sent = self.sock.send(part)
                taken += sent
                if sent < len(part):
                    break
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            # Reading inside a send would be a renegotiation, which Kafka's brokers refuse.
            return taken
        return taken

    def receive_into(self, buffer: memoryview) -> int | None:
        """Decrypt all that has arrived, so that OpenSSL holds no bytes that a selector cannot see.

        Raises:
            ValueError: the buffer cannot hold a whole record.
            OSError: the connection is lost.
        """
        if len(buffer) < TLS_RECORD_BYTES:
            raise ValueError(
                f"a buffer of {len(buffer)} bytes cannot hold a TLS record of {TLS_RECORD_BYTES}"
            )
        received = 0
        while len(buffer) - received >= TLS_RECORD_BYTES:
            try:
                size = self.sock.recv_into(buffer[received:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return received or None
            received += size
            if size < TLS_RECORD_BYTES:
                break
        return received


def joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer pieces: small buffers are joined, large ones stay as they are.

    A join costs a tenth of the encryption; a call for each small buffer costs several times as
    much. The size of pieces is bounded, because bytes that a full socket does not take are joined
    again.
    """
    if sum(map(len, buffers)) <= _JOIN_BYTES:
        return [b"".join(buffers)]
    parts: list[Buffer] = []
    small: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if size and size + len(buffer) > _JOIN_BYTES:
            parts.append(b"".join(small))
            small, size = [], 0
        if len(buffer) >= _JOIN_BYTES:
            parts.append(buffer)
        else:
            small.append(buffer)
            size += len(buffer)
    if size:
        parts.append(b"".join(small))
    return parts


_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_WORTH_A_CALL_BYTES = 65_536
"""Below this size, copying the bytes is faster than a call that drops them [B]."""
_PEEK_BYTES = 4_096
"""Size of a read whose following bytes are probably dropped; holds the heads of a partition and a
batch [B]."""
_NOTHING = memoryview(b"")


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
        if not self._closed:
            self._closed = True
            os.close(self._out)
            os.close(self._in)


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
        """Number of the next bytes that need no parsing [B]."""
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

    def handle_woken(self) -> None:
        """Handle that another thread has woken the selector."""
        ...


class Sockets:
    """A selector with the channels of one owner.

    Args:
        clock: a monotonic clock [s].
        receive_bytes: size of the buffer for one read from a socket [B].

    Attributes:
        wake: makes the selector return; may be called from any thread.
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
        self._waker = Waker()
        self._selector.register(self._waker, _READ)
        self.wake = self._waker.wake
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

    def close(self) -> None:
        """Stop listening; the transports stay open."""
        self._selector.close()
        self._waker.close()

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
