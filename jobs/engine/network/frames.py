"""Kafka's frames: a size, a correlation id, and the rest."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TypeVar

from metrics.common.errors import RedlineError

_COUNT = struct.Struct(">i")

PRODUCE_VERSION = 7
"""Of our produce requests; a broker must take it."""

FRAME_BYTES_MAX = 100 * 2**20
"""No answer that we hold as a whole is longer: Kafka's own bound of requests,
socket.request.max.bytes. What is no broker is seen by it, as "HTTP" reads as 1.2 GB [B]."""

Buffer = bytes | bytearray | memoryview
Answer = TypeVar("Answer")

_MALFORMED = (struct.error, ValueError, IndexError, TypeError, AttributeError, OverflowError)
"""What codecs raise at bytes that they cannot read."""


class AnswerFormatError(RedlineError):
    """What came from a broker is no answer of Kafka's protocol."""


def answer_of(what: str) -> Callable[[Callable[[Buffer], Answer]], Callable[[Buffer], Answer]]:
    """Make of a codec one whose only error is `AnswerFormatError`.

    Args:
        what: it reads, for people.
    """

    def safe(decode: Callable[[Buffer], Answer]) -> Callable[[Buffer], Answer]:
        @wraps(decode)
        def decoded(frame: Buffer) -> Answer:
            try:
                return decode(frame)
            except _MALFORMED as error:
                raise unreadable(what, frame, error) from error

        return decoded

    return safe


def unreadable(what: str, frame: Buffer, error: Exception) -> AnswerFormatError:
    """The error of an answer that cannot be read."""
    return AnswerFormatError(
        f"a broker's answer about {what}, of {len(frame)} bytes, cannot be read ({error}); "
        "expected Kafka's protocol; look at what stands between here and the broker"
    )


def correlation_id_of(frame: Buffer) -> int:
    """Which request a response answers, its size field already taken off.

    Raises:
        AnswerFormatError: it is too short to say so.
    """
    try:
        correlation_id: int = _COUNT.unpack_from(frame, 0)[0]
    except struct.error as error:
        raise unreadable("a request", frame, error) from error
    return correlation_id


class FrameReader:
    """Cuts a byte stream into Kafka's size-prefixed frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """The frames completed by `data`; each is valid until the next is asked for.

        Raises:
            AnswerFormatError: a size that no frame has.
        """
        joined = memoryview(self._rest + bytes(data) if self._rest else data)
        position, end = 0, len(joined)
        while end - position >= _COUNT.size:
            (size,) = _COUNT.unpack_from(joined, position)
            if not 0 <= size <= FRAME_BYTES_MAX:
                raise AnswerFormatError(
                    f"a frame of {size} bytes is none of Kafka's; expected at most "
                    f"{FRAME_BYTES_MAX}; is it a broker's listener, and of the protocol that the "
                    "cluster's file names?"
                )
            if end - position - _COUNT.size < size:
                break
            position += _COUNT.size
            yield joined[position : position + size]
            position += size
        self._rest = bytes(joined[position:])


def drop_bytes(buffers: list[Buffer], count: int) -> list[Buffer]:
    """What is left of the buffers after `count` bytes."""
    for position, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[position + 1 :]]
        count -= len(buffer)
    return []
