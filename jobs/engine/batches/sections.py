"""Encoded records of one batch, and the batch header for each send.

A section is the records of one full batch, encoded once and sent many times. A batch that is not
full takes the first records of a section. Without compression, the first records are a prefix of
the encoded data, because the records are encoded one after another with ascending offset deltas.
With compression, a batch that is not full has a separate body, because compressed data cannot be
cut. Only the 61-byte header differs between sends: timestamps, record count, the producer id, epoch
and sequence of an idempotent producer, and the CRC-32C over all bytes after the CRC field. The
layout is Kafka's record batch format v2 (https://kafka.apache.org/documentation/#recordbatch).

The CRC-32C of a batch is computed without reading the records again. A CRC is linear, so the CRC of
a header and a body is CRC(body) XOR shifted CRC(header). To shift CRC(header), the computation
continues from CRC(header) with zero bytes, one for each byte of the body. Shifting a CRC is a
linear map of 32 bits, so four tables of 256 entries compute the shifted CRC. The function
crc32_combine of zlib combines two CRCs in the same way, but computes the shifted CRC without
tables.
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
    """The checksum of a body. `after` combines it with the checksum of a head that precedes the
    body.

    Args:
        body: the bytes of the body, which must not change.
    """

    __slots__ = ("_crc", "_moves")

    def __init__(self, body: memoryview) -> None:
        self._crc = crc32c(body)
        self._moves = _moves_past(len(body))

    def after(self, head: bytes) -> int:
        """Return the CRC-32C of `head` followed by the body."""
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
    """Four tables that continue a CRC with `size` zero bytes. Each table belongs to one byte of the
    CRC, and maps the value of this byte to its share of the result.
    """
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
"""Maximum number of records of a section."""

RAW_BATCH_BYTES_MAX = 16_777_216
"""Maximum uncompressed size of a batch [B]. A batch with only one record may be larger."""

TAIL_BYTES_MIN = 32_768
"""Minimum size of a body for a `Tail` [B]. For a smaller body, computing the CRC of all its bytes
is as fast as the use of a `Tail`."""

_UP_TO_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_LENGTH_OFFSET = 12
_MAGIC = 2
_TRANSACTIONAL = 0x10  # bit in a batch's attributes
_UNBOUNDED = 2**31 - 1


@dataclass(frozen=True)
class Encoded:
    """Records encoded as in an uncompressed batch, without the batch header.

    Attributes:
        data: the encoded records.
        ends: ends[m] is the size of the first m records in `data` [B]; ends[0] is 0.
        payload_ends: payload_ends[m] is the payload of the first m records [B].
        left_over: the first message that did not fit; None if all messages fit.
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
    """Encode messages until the next message does not fit into the batch. The first message always
    fits.

    Args:
        batch_size: maximum size [B] of the batch, including the header.
        interval_ms: time between the timestamps of two records [ms].
        shrinking: expected ratio of two sizes of the records: the size after compression, divided
            by the size before compression. To decide whether another record fits, the uncompressed
            size of this record is used, as in Kafka's producer.
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


NO_STAMP = (-1, -1, -1)
"""The stamp of a batch from a producer that is not idempotent."""


class Section:
    """The uncompressed records of one full batch; a shorter batch takes the first records.

    Attributes:
        full_records: number of records in a full batch.
        codec: number of the codec, as in a batch's attributes.
        following: the next section in the ring of the pool.
        interval_ms: time between the timestamps of two records [ms].
        tail: checksum of a full batch's body; None until the first use, or if the body is small.
    """

    codec = 0
    __slots__ = (
        *("_data", "_ends", "_payload_ends"),
        *("following", "full_records", "interval_ms", "tail"),
    )

    def __init__(
        self, data: bytes, ends: Sequence[int] | Mapping[int, int], payload_ends: Sequence[int]
    ) -> None:
        self._data = memoryview(data)
        self._ends = ends
        self._payload_ends = payload_ends
        self.full_records = len(ends) - 1
        self.following: Section = self
        self.interval_ms = 0.0
        self.tail: Tail | None = None

    def fitting(self, records: int) -> int:
        """The largest record count of a batch from this section, but at most `records`."""
        return min(records, self.full_records)

    def body(self, records: int) -> memoryview:
        """The part of a batch after its header, as a view; the batch has this number of records."""
        return self._data[: self._ends[records]]

    def size_of(self, records: int) -> int:
        """Size [B] of a batch with this number of records, including the header."""
        return BATCH_HEADER_BYTES + self._ends[records]

    def payload_of(self, records: int) -> int:
        """Payload (keys and values) of this number of records [B]."""
        return self._payload_ends[records]

    def batch_of(
        self,
        records: int,
        first_ms: int,
        stamp: tuple[int, int, int] = NO_STAMP,
        is_transactional: bool = False,
    ) -> tuple[bytes, memoryview]:
        """A batch to send: its header, and a view of its encoded records.

        Args:
            records: number of records, as `fitting` returns it.
            first_ms: create time of the first record [ms since the epoch].
            stamp: producer id, epoch and sequence of an idempotent producer.
            is_transactional: whether the batch belongs to a transaction.
        """
        body = self.body(records)
        attributes = self.codec | _TRANSACTIONAL if is_transactional else self.codec
        last_ms = first_ms + int((records - 1) * self.interval_ms)
        after = _AFTER_CRC.pack(attributes, records - 1, first_ms, last_ms, *stamp, records)
        length = BATCH_HEADER_BYTES - _LENGTH_OFFSET + len(body)
        if records < self.full_records or len(body) < TAIL_BYTES_MIN:
            checksum = crc32c(body, crc32c(after))
        else:
            if self.tail is None:
                self.tail = Tail(body)
            checksum = self.tail.after(after)
        return _UP_TO_CRC.pack(0, length, -1, _MAGIC, checksum) + after, body


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
        """The largest record count up to `records` for which a body exists; if there is none, the
        smallest count for which a body exists.
        """
        return self._counts[max(0, bisect_right(self._counts, records) - 1)]

    def body(self, records: int) -> memoryview:
        """The part of a batch after its header, as a view; the batch has this number of records."""
        return self._bodies[records]
