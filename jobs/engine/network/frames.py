"""Frames of Kafka's protocol: a size, a correlation id, and the content."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TypeVar

from metrics.common.errors import RedlineError

_COUNT = struct.Struct(">i")

PRODUCE_VERSION = 7
"""Version of the engine's produce requests, which every broker must accept."""

FRAME_BYTES_MAX = 100 * 2**20
"""Largest answer that is held as a whole [B]: Kafka's own bound of requests,
socket.request.max.bytes. It also detects other servers, as "HTTP" reads as a size of 1.2 GB."""

Buffer = bytes | bytearray | memoryview
Answer = TypeVar("Answer")

_MALFORMED = (
    *(struct.error, ValueError, IndexError, TypeError, AttributeError, OverflowError),
    *(MemoryError, RecursionError),
)
"""Errors that codecs raise for bytes that they cannot read."""


class AnswerFormatError(RedlineError):
    """An answer of a broker that does not follow Kafka's protocol."""


def answer_of(what: str) -> Callable[[Callable[[Buffer], Answer]], Callable[[Buffer], Answer]]:
    """Wrap a codec so that its only error is `AnswerFormatError`.

    Args:
        what: content of the answer that it reads, for people.
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
