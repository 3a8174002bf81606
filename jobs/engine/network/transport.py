"""Transports to brokers, and the frames of Kafka's protocol.

A transport is a plain socket, or a socket with TLS. Plain and TLS transports are non-blocking and
work with a level-triggered selector. Plain sockets send by scatter-gather, so payloads are not
copied on the way to the kernel. OpenSSL takes one buffer at a time and encrypts it in records of 16
KiB, so small buffers are joined before they are encrypted.
"""

from __future__ import annotations

import math
import mmap
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from metrics.common.errors import RedlineError

_COUNT = struct.Struct(">i")

FRAME_BYTES_MAX = 100 * 2**20
"""Largest answer that is stored as a whole [B]. The limit equals Kafka's default limit for
requests, socket.request.max.bytes. The limit also detects servers that are not brokers: their text
"HTTP" would be a size of 1.2 GB."""

Buffer = bytes | bytearray | memoryview

_MALFORMED = (
    *(struct.error, ValueError, IndexError, TypeError, AttributeError, OverflowError),
    *(MemoryError, RecursionError),
)
"""Errors that codecs raise for unreadable bytes."""


class AnswerFormatError(RedlineError):
    """An answer of a broker does not follow Kafka's protocol."""


@contextmanager
def answer_of(what: str, frame: Buffer) -> Iterator[None]:
    """Turn any error of a codec within the block into an `AnswerFormatError`.

    Args:
        what: content of the answer, for the message.
        frame: the answer.
    """
    try:
        yield
    except _MALFORMED as error:
        raise unreadable(what, frame, error) from error


def unreadable(what: str, frame: Buffer, error: Exception) -> AnswerFormatError:
    """The error for an answer that a codec cannot read."""
    return AnswerFormatError(
        f"a broker's answer about {what}, with {len(frame)} bytes, cannot be read ({error}); "
        "expected Kafka's protocol; check proxies and load balancers between here and the broker"
    )


def correlation_id_of(frame: Buffer) -> int:
    """The correlation id of a response. The answered request has the same correlation id.

    Args:
        frame: the response, without its size field.

    Raises:
        AnswerFormatError: the response is too short for a correlation id.
    """
    try:
        correlation_id: int = _COUNT.unpack_from(frame, 0)[0]
    except struct.error as error:
        raise unreadable("a request", frame, error) from error
    return correlation_id


class FrameReader:
    """Reader that cuts a byte stream into Kafka's frames; each frame begins with its size."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed = _COUNT.size

    def feed(self, data: Buffer) -> Iterable[memoryview]:
        """The frames that `data` completes. Each frame is valid until the next frame is taken.

        Raises:
            AnswerFormatError: the size of a frame is negative or too large.
        """
        if not self._rest and len(data) - _COUNT.size == int.from_bytes(data[:4], "big"):
            return (memoryview(data)[_COUNT.size :],)  # the usual case: exactly one whole frame
        return self._cut(data)

    def _cut(self, data: Buffer) -> Iterator[memoryview]:
        if self._rest:
            self._rest += data  # in place, because a large frame arrives in hundreds of pieces
            if len(self._rest) < self._needed:
                return
            data, self._rest = self._rest, bytearray()
        joined = memoryview(data)
        position, end, self._needed = 0, len(joined), _COUNT.size
        while end - position >= _COUNT.size:
            (size,) = _COUNT.unpack_from(joined, position)
            if not 0 <= size <= FRAME_BYTES_MAX:
                raise AnswerFormatError(
                    f"a frame has {size} bytes; expected at most {FRAME_BYTES_MAX}; check that the "
                    "address is a broker's listener, and that the listener uses the protocol in "
                    "the cluster's file"
                )
            if end - position - _COUNT.size < size:
                self._needed += size
                break
            position += _COUNT.size
            yield joined[position : position + size]
            position += size
        self._rest = bytearray(joined[position:])


def drop_bytes(buffers: list[Buffer], count: int) -> list[Buffer]:
    """The buffers without their first `count` bytes."""
    for position, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[position + 1 :]]
        count -= len(buffer)
    return []


TLS_RECORD_BYTES = 16_384
"""Maximum payload of one TLS record [B]."""

_JOIN_BYTES = 8 * TLS_RECORD_BYTES
_DISCARD_BYTES = 16_777_216
_WAITING_PARTS = 8
_IS_LINUX = sys.platform == "linux"
_SO_TIMESTAMPNS = 35  # Linux's number, which Python's socket module does not have
_TIMESPEC = struct.Struct("@ll")
_STAMP_SPACE = socket.CMSG_SPACE(_TIMESPEC.size)


class Transport:
    """A connected, authenticated, non-blocking transport to one broker, for a selector.

    Attributes:
        sock: the socket, whose figures the kernel reports.
        retire_s: time at which a successor must replace the transport [s of the monotonic clock],
            because the broker ends the session shortly after this time; infinite for a session
            without an end.
        versions: API key → version of the requests.
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
        """Send as many bytes as fit, in order; return the number of bytes sent.

        The next call must begin with the first byte that was not sent.

        Raises:
            OSError: the connection is lost.
        """
        raise NotImplementedError

    def receive_into(self, buffer: memoryview) -> int | None:
        """Receive the bytes that have arrived.

        Args:
            buffer: has room for at least `TLS_RECORD_BYTES`.

        Returns:
            The number of bytes; None if no byte has arrived, 0 if the broker closed the connection.

        Raises:
            OSError: the connection is lost.
        """
        raise NotImplementedError

    def stamp_arrivals(self) -> bool:
        """Enable the kernel's time stamps for arriving bytes; False if that is not possible."""
        return False

    def receive_stamped(self, buffer: memoryview) -> tuple[int | None, float]:
        """Receive as `receive_into` does; also return the time at which the last byte arrived.

        The time of the arrival is in seconds since the epoch, or 0 if it is unknown.

        Raises:
            OSError: the connection is lost.
        """
        return self.receive_into(buffer), 0.0

    @property
    def dropper(self) -> PlainTransport | None:
        """Transport that can drop received bytes; None if all bytes must be received."""
        return None

    def close(self) -> None:
        """Close the socket; does nothing if it is closed."""
        self.sock.close()


class PlainTransport(Transport):
    """A transport over a plain TCP socket.

    Linux can drop received bytes without copying them (MSG_TRUNC, tcp(7)). The flag MSG_TRUNC has
    this meaning only on Linux. A call with MSG_TRUNC needs a buffer but does not write to the
    buffer, so the buffer takes no memory.
    """

    __slots__ = ()
    _nowhere = memoryview(mmap.mmap(-1, _DISCARD_BYTES))

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send the buffers (at most 1,024) with one system call."""
        try:
            return self.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return 0

    def receive_into(self, buffer: memoryview) -> int | None:
        """Receive with one system call."""
        try:
            return self.sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def stamp_arrivals(self) -> bool:
        """Set SO_TIMESTAMPNS (socket(7)) on Linux; the sandbox of a container may forbid it."""
        try:
            if _IS_LINUX:
                self.sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        except OSError:
            return False
        return _IS_LINUX

    def receive_stamped(self, buffer: memoryview) -> tuple[int | None, float]:
        """Receive with one system call, which also returns the kernel's time of the arrival."""
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
        """Return this transport if the system is Linux, otherwise None."""
        return self if _IS_LINUX else None

    def discard(self, size: int) -> int | None:
        """Drop at most `size` received bytes with one system call.

        Return the number of dropped bytes, with the same special values as `receive_into`.
        """
        try:
            return self.sock.recv_into(self._nowhere, min(size, _DISCARD_BYTES), socket.MSG_TRUNC)
        except (BlockingIOError, InterruptedError):
            return None

    def await_bytes(self, size: int) -> None:
        """Make a selector wait until about `size` bytes, or the end of the stream, have arrived.

        The low-water mark (SO_RCVLOWAT) is set to at most a small part of the receive buffer.
        Unread bytes in the buffer reduce the TCP window, and a long link needs the whole window.
        The kernel would enlarge the receive buffer if the low-water mark were above half of the
        buffer's size.
        """
        if size > 1:
            held = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            size = max(1, min(size, held // _WAITING_PARTS))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


class TlsTransport(Transport):
    """A transport over a TLS connection after its handshake.

    If the socket is full, OpenSSL keeps a TLS record that it has already encrypted. OpenSSL then
    requires that the next call sends the bytes of the kept record again, in a piece of at least the
    same length. The caller therefore continues with the first byte that was not sent. The function
    `joined` makes pieces of at least this length.

    OpenSSL reads the socket itself and ignores the kernel's time stamps. OpenSSL must decrypt all
    bytes to find the end of a TLS record, so no bytes are dropped unread.
    """

    __slots__ = ()

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Encrypt and send until all bytes are sent or the socket is full."""
        taken = 0
        try:
            for part in joined(buffers):
                sent = self.sock.send(part)
                taken += sent
                if sent < len(part):
                    break
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            # SSLWantReadError means a renegotiation, which Kafka's brokers refuse.
            return taken
        return taken

    def receive_into(self, buffer: memoryview) -> int | None:
        """Decrypt all received bytes, because a selector cannot see bytes inside OpenSSL.

        Raises:
            ValueError: the buffer has no room for a whole record.
            OSError: the connection is lost.
        """
        if len(buffer) < TLS_RECORD_BYTES:
            raise ValueError(
                f"a buffer has {len(buffer)} bytes; expected room for a TLS record of "
                f"{TLS_RECORD_BYTES} bytes"
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
    """The same bytes in fewer pieces. Small buffers are joined; large buffers stay separate.

    Joining a small buffer takes a tenth of the time that the buffer's encryption takes. Without
    joining, each small buffer would need a separate call of OpenSSL. Such a call takes several
    times as long as the joining of the buffer. If the socket becomes full, the next call copies the
    unsent bytes of a joined piece again. The size of a joined piece is therefore limited.
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
