"""CRC-32C of a batch whose records are the same each time, without reading them again.

Only the header, before the records, changes from one sending to the next. A CRC is linear: the CRC
of head and body together is the CRC of the head, shifted past as many zero bytes as the body has,
exclusive-or the CRC of the body. The shift is a linear map of 32 bits, so four tables of 256
entries compute it. The method is that of zlib's crc32_combine, with tables.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Sequence

from crc32c import crc32c

_BITS = 32


class Tail:
    """The checksum of a body that follows a head.

    Args:
        body: the body, which must not change.
    """

    __slots__ = ("_crc", "_moves")

    def __init__(self, body: memoryview) -> None:
        self._crc = crc32c(body)
        self._moves = _moves_past(len(body))

    def after(self, head: bytes) -> int:
        """CRC-32C of the head followed by the body."""
        crc = crc32c(head)
        first, second, third, fourth = self._moves
        return (
            first[crc & 0xFF]
            ^ second[crc >> 8 & 0xFF]
            ^ third[crc >> 16 & 0xFF]
            ^ fourth[crc >> 24]
            ^ self._crc
        )


@functools.lru_cache(maxsize=64)
def _moves_past(size: int) -> tuple[Sequence[int], ...]:
    """Four tables, one for each byte of a CRC: byte → its part of the CRC past `size` zeros."""
    zeros = bytes(size)
    of_none = crc32c(zeros)
    of_bit = [crc32c(zeros, 1 << bit) ^ of_none for bit in range(_BITS)]
    return tuple(_table(of_bit[start : start + 8]) for start in range(0, _BITS, 8))


def _table(of_bit: Sequence[int]) -> Sequence[int]:
    table = array("L", [0])
    for moved in of_bit:
        table.extend([each ^ moved for each in table])
    return table
