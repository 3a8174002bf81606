"""How bytes get to a broker and back: a plain socket, or one that speaks TLS.

Both are non-blocking and fit a level-triggered selector. Plain sockets send by
scatter-gather, so a payload is never copied on its way to the kernel. OpenSSL takes one
buffer at a time and encrypts it in records of 16 KiB, so small buffers are joined first.
"""

from __future__ import annotations

import mmap
import socket
import ssl
import sys
from collections.abc import Sequence
from typing import Protocol

from jobs.engine.network.frames import Buffer

TLS_RECORD_BYTES = 16_384
"""The most that one TLS record carries [B]."""

_JOIN_BYTES = 8 * TLS_RECORD_BYTES
_DISCARD_BYTES = 16_777_216
_WAITING_PARTS = 8
_IS_LINUX = sys.platform == "linux"


class Transport(Protocol):
    """A connected, authenticated, non-blocking way to one broker; a selector takes it."""

    @property
    def sock(self) -> socket.socket:
        """The socket, for what only the kernel knows of it."""
        ...

    def fileno(self) -> int:
        """The socket's file descriptor."""
        ...

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Hand over as much as fits, in order; returns how many bytes were taken.

        The next call must begin with the first byte that was not taken.

        Raises:
            OSError: the connection is lost.
        """
        ...

    def receive_into(self, buffer: memoryview) -> int | None:
        """Take what has arrived; the buffer has room for `TLS_RECORD_BYTES` at least.

        Returns how many bytes came; None when nothing is there, 0 when the broker closed.

        Raises:
            OSError: the connection is lost.
        """
        ...

    @property
    def dropper(self) -> Dropper | None:
        """What drops bytes that nobody looks at; None where all have to be received."""
        ...

    def close(self) -> None:
        """Close the socket; harmless when it is closed."""
        ...


class Dropper(Protocol):
    """Drops what has arrived without copying it."""

    def discard(self, size: int) -> int | None:
        """Drop at most `size` of the bytes that have arrived.

        Returns what `Transport.receive_into` does.

        Raises:
            OSError: the connection is lost.
        """
        ...

    def await_bytes(self, size: int) -> None:
        """Let a selector tell of the socket only when about so many bytes are there, or its end."""
        ...


class PlainTransport:
    """A TCP socket as it is.

    Linux drops what has arrived without copying it (MSG_TRUNC, tcp(7)); elsewhere the flag means
    something else. The buffer that the call wants is not written to, so it takes no memory.
    """

    __slots__ = ("sock",)
    _nowhere = memoryview(mmap.mmap(-1, _DISCARD_BYTES))

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self.sock.fileno()

    def send(self, buffers: Sequence[Buffer]) -> int:
        """One system call for all buffers, at most 1,024 of them."""
        try:
            return self.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return 0

    def receive_into(self, buffer: memoryview) -> int | None:
        """One system call."""
        try:
            return self.sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    @property
    def dropper(self) -> Dropper | None:
        """Itself, on Linux."""
        return self if _IS_LINUX else None

    def discard(self, size: int) -> int | None:
        """One system call."""
        try:
            return self.sock.recv_into(self._nowhere, min(size, _DISCARD_BYTES), socket.MSG_TRUNC)
        except (BlockingIOError, InterruptedError):
            return None

    def await_bytes(self, size: int) -> None:
        """Set the low-water mark (SO_RCVLOWAT), to no more than a small part of the receive buffer.

        What waits in the buffer is missing from the TCP window, which a long link needs whole; and
        for more than half of it the kernel would enlarge the buffer.
        """
        if size > 1:
            held = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            size = max(1, min(size, held // _WAITING_PARTS))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


class TlsTransport:
    """A TLS connection after its handshake.

    A record that OpenSSL encrypted and the socket did not take must be offered again with
    the same bytes, in a piece that is no shorter: callers go on with what was not taken, and
    `joined` makes the same pieces of it again.
    """

    __slots__ = ("sock",)
    dropper = None  # what was encrypted has to be decrypted to know where a record ends

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self.sock.fileno()

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Encrypt and send until all is taken or the socket is full."""
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
        """Decrypt what is there: afterwards OpenSSL holds nothing that a selector can't see.

        Raises:
            ValueError: the buffer cannot hold a whole record.
            OSError: the connection is lost.
        """
        if len(buffer) < TLS_RECORD_BYTES:
            raise ValueError(f"a buffer of {len(buffer)} bytes holds no TLS record")
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

    def close(self) -> None:
        """Close the socket without TLS's farewell, which nobody would wait for."""
        self.sock.close()


def joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer pieces: what is small is joined, what is large stays as it is.

    A join costs a tenth of the encryption, a call of its own for each small buffer several
    times as much. Pieces are bounded, because what a full socket does not take is joined
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
