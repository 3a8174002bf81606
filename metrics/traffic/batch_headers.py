"""The headers of record batches in fetched data, read without decoding records.

The format is Kafka's record batch format v2 (https://kafka.apache.org/documentation/#recordbatch).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of codecs, by their numbers in the attributes of a batch."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_START = struct.Struct(">qiib")
_LENGTH_END = 12
_MAGIC_END = 17
_MAGIC = 2
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20


@dataclass(frozen=True)
class BatchHeader:
    """The header of one record batch.

    Attributes:
        base_offset: offset of the first record.
        offsets: number of offsets of the batch, which can be larger than `records` in a compacted
            log.
        records: number of records in the batch.
        size_bytes: size of the batch in the log, including its header [B].
        codec: name of the codec.
        first_ms: create time of the first record [ms since the epoch].
        max_ms: latest create time of a record [ms since the epoch]; with `has_append_time`, the
            append time.
        producer_id: id of an idempotent producer; -1 for other producers.
        is_transactional: True if the batch belongs to a transaction.
        is_control: True if the batch marks the end of a transaction.
        has_append_time: True if `max_ms` is the time at which the broker appended the batch.
    """

    base_offset: int
    offsets: int
    records: int
    size_bytes: int
    codec: str
    first_ms: int
    max_ms: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    has_append_time: bool = False

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.offsets


@dataclass(frozen=True)
class FetchedBatches:
    """The complete batches in a fetch response for one partition.

    Attributes:
        batches: (header, bytes) of each batch.
        older: number of message sets whose format is older than v2.
        next_offset: the offset after the last complete batch; None if there is no complete batch.
    """

    batches: tuple[tuple[BatchHeader, memoryview], ...]
    older: int
    next_offset: int | None


def batches_in(data: bytes | memoryview) -> FetchedBatches:
    """The complete batches in fetched data. An incomplete last batch is ignored."""
    view, at, found, older, following = memoryview(data), 0, [], 0, None
    while at + _MAGIC_END <= len(view):
        base, length, _, magic = _START.unpack_from(view, at)
        end = at + _LENGTH_END + length
        if end > len(view) or length < _MAGIC_END - _LENGTH_END:
            break
        if magic != _MAGIC:
            older, following = older + 1, base + 1
        elif end - at < _HEADER.size:
            break
        else:
            header = _header(view, at)
            found.append((header, view[at:end]))
            following = header.next_offset
        at = end
    return FetchedBatches(tuple(found), older, following)


def _header(view: memoryview, at: int) -> BatchHeader:
    base, length, _, _, _, flags, delta, first_ms, max_ms, producer_id, _, _, records = (
        _HEADER.unpack_from(view, at)
    )
    codec = flags & _CODEC
    return BatchHeader(
        base,
        delta + 1,
        max(0, records),
        _LENGTH_END + length,
        CODECS[codec] if codec < len(CODECS) else f"codec {codec}",
        first_ms,
        max_ms,
        producer_id,
        bool(flags & _TRANSACTIONAL),
        bool(flags & _CONTROL),
        bool(flags & _APPEND_TIME),
    )
