"""Encoded records of one batch, and the header that is made for each send.

A section holds the records of one full batch, encoded once. A shorter batch takes the first ones:
without compression a prefix, because records lie one after the other with rising offset deltas;
with compression a body of its own, because compressed data cannot be cut. Only the 61-byte header
differs from send to send: timestamps, record count, the stamp of an idempotent producer, and the
CRC-32C over all bytes that follow it. The layout is Kafka's record batch format v2
(https://kafka.apache.org/documentation/#recordbatch).

CRC-32C of a batch whose records are the same each time, without reading them again.

Only the header, before the records, changes from one sending to the next. A CRC is linear: the CRC
of head and body together is the CRC of the head, shifted past as many zero bytes as the body has,
exclusive-or the CRC of the body. The shift is a linear map of 32 bits, so four tables of 256
entries compute it. The method is that of zlib's crc32_combine, with tables.
"""

from __future__ import annotations

import functools
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from jobs.engine.batches.messages import Message
from metrics.traffic.payload import BATCH_HEADER_BYTES

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
    tables = []
    for start in range(0, _BITS, 8):
        table = array("L", [0])
        for moved in of_bit[start : start + 8]:
            table.extend([each ^ moved for each in table])
        tables.append(table)
    return tuple(tables)


RECORDS_MAX = 200_000
"""Number of records in a section at most."""

RAW_BATCH_BYTES_MAX = 16_777_216
"""Size of a batch of several records before compression at most [B]."""

TAIL_BYTES_MIN = 32_768
"""Bodies below this size are read again for each checksum, which is as fast [B]."""

_UP_TO_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_LENGTH_OFFSET = 12
_MAGIC = 2
_TRANSACTIONAL = 0x10  # of a batch's attributes
_UNBOUNDED = 2**31 - 1


@dataclass(frozen=True)
class Encoded:
    """Records encoded as in an uncompressed batch.

    Attributes:
        data: the encoded records, without the batch header.
        ends: ends[m] is where the first m records end [B]; ends[0] is 0.
        payload_ends: payload_ends[m] is the payload of the first m records [B].
        left_over: the message that did not fit any more; None without one.
    """

    data: bytes
    ends: Sequence[int]
    payload_ends: Sequence[int]
    left_over: Message | None

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.ends) - 1


def encode(
    messages: Iterator[Message], batch_size: int, interval_ms: float, shrinking: float = 1.0
) -> Encoded:
    """Encode messages until the next one does not fit; the first one always fits.

    Args:
        batch_size: size of the batch with its header at most [B].
        interval_ms: interval between the timestamps of two records [ms].
        shrinking: expected size of the records after compression over their size before it; the
            next record counts uncompressed, as in Kafka's producer [ratio].
    """
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_UNBOUNDED,
    )
    ends, payload_ends = [0], [0]
    message: Message | None = None
    for index in range(RECORDS_MAX):
        message = next(messages)
        key, value, headers = message
        builder.append(index, int(index * interval_ms), key, value, headers)
        end = builder.size() - BATCH_HEADER_BYTES
        expected = BATCH_HEADER_BYTES + ends[-1] * shrinking + end - ends[-1]
        if index and (expected > batch_size or end > RAW_BATCH_BYTES_MAX):
            break
        ends.append(end)
        payload_ends.append(payload_ends[-1] + len(key or b"") + len(value))
        message = None
    data = bytes(builder.build())[BATCH_HEADER_BYTES : BATCH_HEADER_BYTES + ends[-1]]
    return Encoded(data, ends, payload_ends, message)


class Section:
    """The records of one full batch, of which a batch takes some or all; here uncompressed.

    Attributes:
        full_records: number of records in a full batch.
        codec: number of the codec in a batch's attributes.
        following: the next section in the pool's ring.
        tail: checksum of a full batch's body, made at its first use where the body is large enough.
    """

    codec = 0
    __slots__ = ("_data", "_ends", "_payload_ends", "following", "full_records", "tail")

    def __init__(
        self, data: bytes, ends: Sequence[int] | Mapping[int, int], payload_ends: Sequence[int]
    ) -> None:
        self._data = memoryview(data)
        self._ends = ends
        self._payload_ends = payload_ends
        self.full_records = len(ends) - 1
        self.following: Section = self
        self.tail: Tail | None = None

    def fitting(self, records: int) -> int:
        """Largest record count of a batch in this section that is not above `records`."""
        return min(records, self.full_records)

    def body(self, records: int) -> memoryview:
        """Bytes after the header of a batch of so many records, without a copy."""
        return self._data[: self._ends[records]]

    def size_of(self, records: int) -> int:
        """Size of a batch of so many records, header included [B]."""
        return BATCH_HEADER_BYTES + self._ends[records]

    def payload_of(self, records: int) -> int:
        """Payload of so many records, keys and values [B]."""
        return self._payload_ends[records]


class CompressedSection(Section):
    """Records compressed once for each of several record counts."""

    __slots__ = ("_bodies", "_counts", "codec")

    def __init__(
        self, codec: int, bodies: Mapping[int, bytes], payload_ends: Sequence[int]
    ) -> None:
        super().__init__(b"", {count: len(body) for count, body in bodies.items()}, payload_ends)
        self.codec = codec
        self._counts = sorted(bodies)
        self._bodies = {count: memoryview(body) for count, body in bodies.items()}
        self.full_records = self._counts[-1]

    def fitting(self, records: int) -> int:
        """Largest record count for which there is a body, or the smallest one."""
        return self._counts[max(0, bisect_right(self._counts, records) - 1)]

    def body(self, records: int) -> memoryview:
        """Bytes after the header of a batch of so many records, without a copy."""
        return self._bodies[records]


NO_STAMP = (-1, -1, -1)
"""The stamp of a batch whose producer is not idempotent."""


def batch_of(
    section: Section,
    records: int,
    timestamps_ms: tuple[int, int],
    stamp: tuple[int, int, int] = NO_STAMP,
    is_transactional: bool = False,
) -> tuple[bytes, memoryview]:
    """A batch to send: its header, and its records without a copy.

    Args:
        records: a count that `section.fitting` returns.
        timestamps_ms: create times of its first and last record [ms since the epoch].
        stamp: producer id, epoch and sequence of an idempotent producer.
        is_transactional: whether it belongs to its producer's transaction.
    """
    body = section.body(records)
    attributes = section.codec | _TRANSACTIONAL if is_transactional else section.codec
    after = _AFTER_CRC.pack(attributes, records - 1, *timestamps_ms, *stamp, records)
    length = BATCH_HEADER_BYTES - _LENGTH_OFFSET + len(body)
    if records < section.full_records or len(body) < TAIL_BYTES_MIN:
        checksum = crc32c(body, crc32c(after))
    else:
        if section.tail is None:
            section.tail = Tail(body)
        checksum = section.tail.after(after)
    return _UP_TO_CRC.pack(0, length, -1, _MAGIC, checksum) + after, body
