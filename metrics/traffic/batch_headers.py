"""The headers of record batches in fetched data, which are read without their records.

The layout is Kafka's record batch format v2 (https://kafka.apache.org/documentation/#recordbatch).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs of producers, by their numbers in the attributes of a batch."""

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
        base_offset: offset of its first record.
        offsets: number of offsets that it occupies; more than `records` in a compacted log.
        records: number of records in it.
        size_bytes: size in the log, header included [B].
        codec: name of its codec.
        first_ms, max_ms: create times of its first record and of its latest one [ms since the
            epoch].
        producer_id: id of an idempotent producer; -1 without one.
        is_transactional: whether it belongs to a transaction.
        is_control: whether it is the marker of the end of a transaction.
        has_append_time: whether `max_ms` is the time at which the broker appended it.
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
        """The offset after its last record."""
        return self.base_offset + self.offsets


@dataclass(frozen=True)
class FetchedBatches:
    """The whole batches in the answer for one partition.

    Attributes:
        batches: each header with the bytes of its batch.
        older: number of message sets of a format before v2, which have no such header.
        next_offset: the offset after the last whole batch; None without one.
    """

    batches: tuple[tuple[BatchHeader, memoryview], ...]
    older: int
    next_offset: int | None


def batches_in(data: bytes | memoryview) -> FetchedBatches:
    """The batches that are whole; an answer may end within one."""
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
