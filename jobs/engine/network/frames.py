"""Kafka's frames: a size, a correlation id, and the rest."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_COUNT = struct.Struct(">i")

PRODUCE_VERSION = 7
"""Of our produce requests; a broker must take it."""

Buffer = bytes | bytearray | memoryview


def correlation_id_of(frame: Buffer) -> int:
    """Which request a response answers, its size field already taken off."""
    correlation_id: int = _COUNT.unpack_from(frame, 0)[0]
    return correlation_id


class FrameReader:
    """Cuts a byte stream into Kafka's size-prefixed frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """The frames completed by `data`; each is valid until the next is asked for.

        Raises:
            ValueError: a size that no frame has.
        """
        joined = memoryview(self._rest + bytes(data) if self._rest else data)
        position, end = 0, len(joined)
        while end - position >= _COUNT.size:
            (size,) = _COUNT.unpack_from(joined, position)
            if size < 0:
                raise ValueError(f"a frame of {size} bytes")
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
