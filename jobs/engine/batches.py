"""Record batches, encoded once and sent many times.

A pool holds the encoded records of full batches. Any shorter batch is a prefix of one,
because records are laid out one after the other with rising offset deltas. What differs
from send to send is the 61-byte header: record count, timestamps and the CRC-32C over all
that follows it. The layout is Kafka's record batch format v2
(https://kafka.apache.org/documentation/#recordbatch).
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from jobs.engine.pattern import BATCH_HEADER_BYTES, ProducerPattern

_BEFORE_CRC = struct.Struct(">qiib")
_CRC = struct.Struct(">I")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_LENGTH_OFFSET = 12
_MAGIC = 2


@dataclass(frozen=True)
class EncodedRecords:
    """The records of one full batch.

    Attributes:
        data: the encoded records, without the batch header.
        ends: ends[m] is where the first m records end [B]; ends[0] is 0.
    """

    data: memoryview
    ends: tuple[int, ...]


def encode_records(pattern: ProducerPattern, rng: random.Random) -> EncodedRecords:
    """Encode one full batch of records with random bytes as values."""
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**31 - 1,
    )
    ends = [0]
    interval_ms = 1000.0 / pattern.rate_records_per_s
    for index in range(pattern.records_per_full_batch):
        value = rng.randbytes(pattern.message_bytes)
        builder.append(index, int(index * interval_ms), None, value, [])
        ends.append(builder.size() - BATCH_HEADER_BYTES)
    encoded = bytes(builder.build())
    return EncodedRecords(memoryview(encoded)[BATCH_HEADER_BYTES:], tuple(ends))


class BatchPool:
    """Encoded batches of random bytes, shared by all producers of a task.

    The pool is bounded by `pattern.pool_bytes`, with at least one full batch in it, and
    is the same for the same pattern and seed.
    """

    def __init__(self, pattern: ProducerPattern) -> None:
        rng = random.Random(f"{pattern.payload_seed}/{pattern.message_bytes}")
        first = encode_records(pattern, rng)
        count = max(1, pattern.pool_bytes // max(1, len(first.data)))
        self._pool = [first, *(encode_records(pattern, rng) for _ in range(count - 1))]
        self._interval_ms = 1000.0 / pattern.rate_records_per_s
        self._next = 0

    def __len__(self) -> int:
        return len(self._pool)

    @property
    def records_per_full_batch(self) -> int:
        """Records in a full batch."""
        return len(self._pool[0].ends) - 1

    def size_of(self, records: int) -> int:
        """Size of a batch of this many records, header included [B]."""
        return BATCH_HEADER_BYTES + self._pool[0].ends[records]

    def take(
        self,
        records: int,
        base_timestamp_ms: int,
        producer_id: int = -1,
        epoch: int = -1,
        sequence: int = -1,
    ) -> tuple[bytes, memoryview]:
        """A batch ready to be sent: its header, and its records without a copy.

        Args:
            records: 1 to `records_per_full_batch`.
            base_timestamp_ms: create time of its first record [ms since the epoch].
            producer_id, epoch, sequence: of an idempotent producer; -1 for none.
        """
        encoded = self._pool[self._next]
        self._next = (self._next + 1) % len(self._pool)
        body = encoded.data[: encoded.ends[records]]
        after = _AFTER_CRC.pack(
            0,
            records - 1,
            base_timestamp_ms,
            base_timestamp_ms + int((records - 1) * self._interval_ms),
            producer_id,
            epoch,
            sequence,
            records,
        )
        length = BATCH_HEADER_BYTES - _LENGTH_OFFSET + len(body)
        header = _BEFORE_CRC.pack(0, length, -1, _MAGIC)
        return header + _CRC.pack(crc32c(body, crc32c(after))) + after, body
