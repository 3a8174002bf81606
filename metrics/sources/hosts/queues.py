"""Packets that the queues of network interfaces dropped (traffic control). /proc does not show
them.

A queue that limits the rate, such as a token bucket, drops packets before the interface counts
them. The kernel reports the drops of queues in answers to RTM_GETQDISC requests over rtnetlink(7).
The command `tc -s qdisc` also shows the drops of queues.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_QUEUE = struct.Struct("=BxHiIII")  # family, index of the interface, handle, parent, info
_LINK = struct.Struct("=BxHiII")  # family, kind, index of the interface, flags, what changed
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_STATISTICS = struct.Struct("=QII")  # bytes, packets, dropped
_GET_LINK, _NEW_LINK, _GET_QUEUE, _NEW_QUEUE = 18, 16, 38, 36
_ERROR, _DONE = 2, 3
_ASK_ALL = 0x301  # a request for everything
_NAME, _QUEUE_STATISTICS = 3, 3
_ROOT = 0xFFFFFFFF
_NETLINK_ROUTE = 0
_TIMEOUT_S = 1.0
_RECEIVE_BYTES = 65_536


def open_netlink() -> socket.socket:
    """A netlink socket to the kernel in the network namespace of the calling thread.

    Raises:
        OSError: the system has no netlink.
    """
    family = getattr(socket, "AF_NETLINK", None)
    if family is None:
        raise OSError("this system has no netlink")
    opened = socket.socket(family, socket.SOCK_RAW, _NETLINK_ROUTE)
    opened.settimeout(_TIMEOUT_S)
    return opened


class Queues:
    """The queues of the interfaces in one network namespace.

    Args:
        open_socket: opens a netlink socket in this namespace. Each sample opens a socket, which
            takes some hundredths of a millisecond.
    """

    def __init__(self, open_socket: Callable[[], socket.socket] = open_netlink) -> None:
        self._open = open_socket
        self._names: dict[int, str] = {}
        self._last: dict[str, int] = {}

    def dropped(self) -> Mapping[str, int]:
        """Interface → number of packets that its queue dropped. The numbers come from the last
        successful answer of the kernel.
        """
        with suppress(OSError, ValueError), closing(self._open()) as to_kernel:
            found = dict(dropped_in(self._all(to_kernel, _GET_QUEUE, _QUEUE)))
            if found.keys() - self._names.keys():
                self._names = dict(names_in(self._all(to_kernel, _GET_LINK, _LINK)))
            named = ((self._names.get(index), count) for index, count in found.items())
            self._last = {name: count for name, count in named if name is not None}
        return self._last

    @staticmethod
    def _all(to_kernel: socket.socket, kind: int, body: struct.Struct) -> bytes:
        """The bytes of all messages in an answer, without the message that marks the end."""
        size = _HEADER.size + body.size
        to_kernel.send(_HEADER.pack(size, kind, _ASK_ALL, 0, 0) + bytes(body.size))
        answer = b""
        while True:
            part = to_kernel.recv(_RECEIVE_BYTES)
            for message, _ in messages_in(part):
                if message == _ERROR:
                    raise OSError("the kernel does not report its queues")
                if message == _DONE:
                    return answer
            answer += part


def messages_in(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """Pairs (type, body) of the netlink messages in an answer.

    Raises:
        ValueError: a message is malformed.
    """
    at = 0
    while at + _HEADER.size <= len(answer):
        size, kind, *_ = _HEADER.unpack_from(answer, at)
        if size < _HEADER.size:
            raise ValueError(f"a message of {size} bytes; expected {_HEADER.size} or more")
        yield kind, answer[at + _HEADER.size : at + size]
        at += _padded(size)


def dropped_in(answer: bytes) -> Iterator[tuple[int, int]]:
    """Pairs (index of an interface, number of packets that its root queue dropped), one for each
    queue in an answer.
    """
    for kind, body in messages_in(answer):
        if kind != _NEW_QUEUE or len(body) < _QUEUE.size:
            continue
        _, _, index, _, parent, _ = _QUEUE.unpack_from(body)
        counts = _attributes(body[_QUEUE.size :]).get(_QUEUE_STATISTICS, b"")
        if parent == _ROOT and len(counts) >= _STATISTICS.size:
            yield index, _STATISTICS.unpack_from(counts)[2]


def names_in(answer: bytes) -> Iterator[tuple[int, str]]:
    """Pairs (index, name) of the interfaces in an answer."""
    for kind, body in messages_in(answer):
        if kind == _NEW_LINK and len(body) >= _LINK.size:
            name = _attributes(body[_LINK.size :]).get(_NAME, b"")
            yield _LINK.unpack_from(body)[2], name.rstrip(b"\0").decode("ascii", "replace")


def _attributes(body: bytes) -> dict[int, bytes]:
    found = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(body):
        size, kind = _ATTRIBUTE.unpack_from(body, at)
        if size < _ATTRIBUTE.size:
            raise ValueError(f"an attribute of {size} bytes; expected {_ATTRIBUTE.size} or more")
        found[kind] = body[at + _ATTRIBUTE.size : at + size]
        at += _padded(size)
    return found


def _padded(size: int) -> int:
    """A size, rounded up to a multiple of 4 bytes [B]. The next message or attribute begins at the
    padded size.
    """
    return (size + 3) & ~3
