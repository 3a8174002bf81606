"""Transports of bytes to a broker and back: a plain socket, or one with TLS.

Both are non-blocking and fit a level-triggered selector. Plain sockets send by scatter-gather, so
no payload is copied on its way to the kernel. OpenSSL takes one buffer at a time and encrypts it in
records of 16 KiB, so small buffers are joined first.

Frames of Kafka's protocol: a size, a correlation id, and the content.
"""

from __future__ import annotations

import math
import mmap
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

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
    """

    __slots__ = ("retire_s", "sock")

    def __init__(self, sock: socket.socket, retire_s: float = math.inf) -> None:
        self.sock = sock
        self.retire_s = retire_s

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
