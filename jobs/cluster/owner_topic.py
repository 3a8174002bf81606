"""The topic in which the owner of a cluster states bounds that no run exceeds.

It has one partition and is compacted, and its last record with the key `bounds` counts. Only the
owner should be able to write to it. Two small requests show whether anything changed.

The records of a batch that a broker sent, decompressed up to a bound.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import lz4.frame
import snappy
import zstandard
from kafka import errors as kafka_errors
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from jobs.cluster.admin import UNREADABLE, AdminError, KafkaAdmin, Partition, checked, fetch_request
from jobs.config.goal import OwnerBounds, parse_bounds
from jobs.engine.network.options import NAME_PREFIX
from metrics.common.errors import ConfigError, RedlineError
from metrics.traffic.batch_headers import batches_in

PLAIN_BYTES_MAX = 64 * 2**20
"""Largest size of a decompressed batch [B]. A megabyte can inflate to gigabytes."""
RECORDS_MAX = 2**20
"""Largest number of records in a batch."""

_SNAPPY_STREAM = b"\x82SNAPPY\0"
_SNAPPY_HEAD_BYTES = 16
_CODEC_AT = 22
"""Position of the byte with the codec in the header of a batch."""


class BatchFormatError(RedlineError):
    """A record batch that cannot be read, or that is too large once it is decompressed."""


def records_of(body: memoryview) -> Iterator[DefaultRecord]:
    """The records of a batch.

    Args:
        body: all bytes of the batch, header included.

    Raises:
        BatchFormatError: a record, or the whole batch, cannot be read.
    """
    try:
        batch = DefaultRecordBatch(body)
        if batch.records_count > RECORDS_MAX:
            raise ValueError(f"{batch.records_count} records, more than {RECORDS_MAX}")
        if codec := batch.compression_type:
            start = DefaultRecordBatch.HEADER_STRUCT.size
            plain = _inflated(codec, bytes(body[start:]))
            head = bytearray(body[:start])
            head[_CODEC_AT] &= ~DefaultRecordBatch.CODEC_MASK
            batch = DefaultRecordBatch(head + plain)
        yield from batch
    except Exception as error:  # codecs have errors of many kinds
        raise BatchFormatError(f"a record batch cannot be read ({error})") from error


def _inflated(codec: int, packed: bytes) -> bytes:
    stream, most = io.BytesIO(packed), PLAIN_BYTES_MAX + 1
    if codec == DefaultRecordBatch.CODEC_GZIP:
        plain = gzip.GzipFile(fileobj=stream).read(most)
    elif codec == DefaultRecordBatch.CODEC_LZ4:
        plain = lz4.frame.LZ4FrameFile(stream).read(most)
    elif codec == DefaultRecordBatch.CODEC_ZSTD:
        reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        plain = reader.read(most)
    elif codec == DefaultRecordBatch.CODEC_SNAPPY:
        blocks = [*_snappy_blocks(packed)]
        size = sum(map(_snappy_size, blocks))  # Snappy allocates as much as its block states
        plain = b"".join(map(snappy.decompress, blocks)) if size < most else bytes(most)
    else:
        raise ValueError(f"codec {codec} is unknown")
    if len(plain) == most:
        raise ValueError(f"its records have more than {PLAIN_BYTES_MAX} bytes")
    return bytes(plain)


def _snappy_blocks(packed: bytes) -> Iterator[bytes]:
    """The blocks of Java's Snappy stream; other data is one block."""
    if not packed.startswith(_SNAPPY_STREAM):
        yield packed
        return
    at = _SNAPPY_HEAD_BYTES
    while at < len(packed):
        (size,) = struct.unpack_from(">I", packed, at)
        at += 4
        yield packed[at : at + size]
        at += size


def _snappy_size(block: bytes) -> int:
    """The size of a block's content, with which the block begins as a varint [B]."""
    size = 0
    for shift, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            break
    return size


OWNER_TOPIC = f"{NAME_PREFIX}owner"
"""The topic that binds the runs of all prefixes."""
KEY = "bounds"
READ_BYTES_MAX = 8_000_000
"""Bytes of the topic that are read at most, with records that compaction leaves for a time [B]."""

FETCH_BYTES = 1_000_000
"""Bytes of an answer at most [B]."""
_DENIED = kafka_errors.TopicAuthorizationFailedError


def owner_topics(prefix: str) -> tuple[str, ...]:
    """The topics that bind a run whose names begin with `prefix`; the strictest of both wins."""
    return tuple(dict.fromkeys((OWNER_TOPIC, f"{prefix}owner")))


class OwnerTopics:
    """The bounds in the topics of a cluster's owners, by topic.

    Args:
        names: the topics; the bounds of all of them hold.

    Attributes:
        hidden: the topics that this user may not describe, so that they bind no run.
    """

    def __init__(self, admin: KafkaAdmin, names: Iterable[str]) -> None:
        self._admin = admin
        self._readers = {name: _Reader(admin, name) for name in names}
        self.hidden: tuple[str, ...] = ()

    def read(self) -> dict[str, OwnerBounds]:
        """The bounds that hold now; a topic that is gone keeps its last ones while a run lasts.

        Raises:
            ConfigError: a topic may not be read, or has no record that states bounds.
            AdminError: the cluster does not answer.
        """
        names = list(self._readers)
        described = self._admin.describe_topics(f"look for the topic {names[0]}", names)
        self.hidden = tuple(each.name for each in described if each.error_code == _DENIED.errno)
        for each in described:
            if each.partitions:
                self._readers[each.name].update(each.partitions)
        found = {name: reader.bounds for name, reader in self._readers.items()}
        return {name: bounds for name, bounds in found.items() if bounds is not None}


@dataclass
class _Reader:
    """Reads what was written to one topic since it was read last."""

    admin: KafkaAdmin
    topic: str
    bounds: OwnerBounds | None = None
    at: int = -1
    record: bytes | None = None

    def update(self, partitions: Mapping[int, Partition]) -> None:
        if len(partitions) != 1:
            raise ConfigError(
                f"topic {self.topic} has {len(partitions)} partitions; expected one, as its last "
                "record counts; make it again with one partition"
            )
        leader = partitions[0].leader
        if self.at < 0:
            self.at = self.admin.begin_offsets([(self.topic, 0)])[self.topic, 0]
        try:
            self._read(leader)
        except AdminError as error:
            if error.cause == kafka_errors.OffsetOutOfRangeError.__name__:
                self.at = -1  # the topic was made anew
            if error.cause != _DENIED.__name__:
                raise
            raise ConfigError(
                f"topic {self.topic} holds the bounds of the cluster's owner, and this user may "
                f"not read it; expected the ACL Read on it; grant it to the user of cluster "
                "security"
            ) from error
        if self.bounds is None and self.record is not None:
            self.bounds = parse_bounds(self.record, f"topic {self.topic}, record {KEY}")
        if self.bounds is None:
            raise ConfigError(
                f"topic {self.topic} has no record with the key {KEY}; expected the bounds of the "
                "cluster's owner, or no such topic; write the record, or delete the topic"
            )

    def _read(self, leader: int) -> None:
        """Take all new records."""
        size = 0
        while True:
            request = fetch_request({(self.topic, 0): (self.at, FETCH_BYTES)}, FETCH_BYTES)
            what = f"read the topic {self.topic}"
            end, data = self.admin.query(what, request, leader, read=_fetched)
            size += len(data)
            found = batches_in(memoryview(data))
            for header, body in found.batches:
                if not header.is_control:
                    self._take(body)
            if found.next_offset is not None and found.next_offset > self.at:
                self.at = found.next_offset
            if self.at >= end:
                return
            if not data or found.next_offset is None or size > READ_BYTES_MAX:
                raise AdminError(
                    f"could not read the topic {self.topic}: its {size:,} B have no end; expected "
                    f"a compacted topic of at most {READ_BYTES_MAX:,} B; make it again",
                    UNREADABLE,
                )

    def _take(self, body: memoryview) -> None:
        """Take the last record with the key from a batch; the bounds before it hold no more."""
        try:
            for each in records_of(body):
                if each.key == KEY.encode():
                    self.record, self.bounds = each.value, None
        except BatchFormatError as error:
            raise ConfigError(
                f"topic {self.topic} has a record that cannot be decoded ({error}); expected one "
                "without compression; write it again with --compression-codec none"
            ) from error


def _fetched(answer: Any) -> tuple[int, bytes]:
    """The high watermark, and the batches in an answer."""
    found = checked(*checked(answer).responses[0].partitions)
    return int(found.high_watermark), bytes(found.records or b"")
