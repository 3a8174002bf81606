"""The topic in which the owner of a cluster states bounds for the loads of all runs.

The topic is compacted and has one partition. The topic's last record with the key `bounds` states
the bounds. Only the owner should have permission to write to the topic. Two small requests show
whether the topic changed.

The module also decodes the records of a batch, up to a limit of the decompressed size.
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
"""Largest decompressed size [B] of a batch that is read. The limit is needed, because 1 MB can
inflate to gigabytes."""
RECORDS_MAX = 2**20
"""Largest number of records in a batch."""

_SNAPPY_STREAM = b"\x82SNAPPY\0"
_SNAPPY_HEAD_BYTES = 16
_CODEC_AT = 22
"""Offset of the byte with the compression codec in the header of a batch [B]."""


class BatchFormatError(RedlineError):
    """A record batch that cannot be read, or that is too large once it is decompressed."""


def records_of(body: memoryview) -> Iterator[DefaultRecord]:
    """The records of a batch.

    Args:
        body: all bytes of the batch, including the header.

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
    except Exception as error:  # codecs raise errors of many types
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
        size = sum(map(_snappy_size, blocks))  # Snappy allocates the size that a block states
        plain = b"".join(map(snappy.decompress, blocks)) if size < most else bytes(most)
    else:
        raise ValueError(f"codec {codec} is unknown")
    if len(plain) == most:
        raise ValueError(f"its records have more than {PLAIN_BYTES_MAX} bytes")
    return bytes(plain)


def _snappy_blocks(packed: bytes) -> Iterator[bytes]:
    """The blocks of data in the stream format of Java's Snappy library; data in another format are
    one block.
    """
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
    """The decompressed size of a block [B]; the block begins with this size as a varint."""
    size = 0
    for shift, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            break
    return size


OWNER_TOPIC = f"{NAME_PREFIX}owner"
"""The topic whose bounds apply to runs with any name prefix."""
KEY = "bounds"
READ_BYTES_MAX = 8_000_000
"""Largest size of the topic that is read [B], including records that compaction has not removed
yet."""

FETCH_BYTES = 1_000_000
"""Largest size of the data in an answer [B]."""
_DENIED = kafka_errors.TopicAuthorizationFailedError


def owner_topics(prefix: str) -> tuple[str, ...]:
    """The topics whose bounds apply to a run with this name prefix. If two topics have a bound for
    the same quantity, the stricter bound applies.
    """
    return tuple(dict.fromkeys((OWNER_TOPIC, f"{prefix}owner")))


class OwnerTopics:
    """The bounds in the topics of a cluster's owners, by topic.

    Args:
        names: the topics; the bounds of all topics apply.

    Attributes:
        hidden: the topics that this user may not describe. Bounds in these topics do not apply.
    """

    def __init__(self, admin: KafkaAdmin, names: Iterable[str]) -> None:
        self._admin = admin
        self._readers = {name: _Reader(admin, name) for name in names}
        self.hidden: tuple[str, ...] = ()

    def read(self) -> dict[str, OwnerBounds]:
        """Topic → its current bounds; if a topic is deleted, its last bounds apply until the run
        ends.

        Raises:
            ConfigError: this user may not read a topic, or a topic has no record with bounds.
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
    """Reads the new records of one topic since the previous reading."""

    admin: KafkaAdmin
    topic: str
    bounds: OwnerBounds | None = None
    at: int = -1
    record: bytes | None = None

    def update(self, partitions: Mapping[int, Partition]) -> None:
        if len(partitions) != 1:
            raise ConfigError(
                f"topic {self.topic} has {len(partitions)} partitions; expected one, because its "
                "last record states the bounds; create the topic again with one partition"
            )
        leader = partitions[0].leader
        if self.at < 0:
            self.at = self.admin.begin_offsets([(self.topic, 0)])[self.topic, 0]
        try:
            self._read(leader)
        except AdminError as error:
            if error.cause == kafka_errors.OffsetOutOfRangeError.__name__:
                self.at = -1  # the topic was created again
            if error.cause != _DENIED.__name__:
                raise
            raise ConfigError(
                f"topic {self.topic} states the bounds of the cluster's owner, and this user may "
                f"not read the topic; expected the ACL Read; grant the ACL to the user in "
                "cluster.security"
            ) from error
        if self.bounds is None and self.record is not None:
            self.bounds = parse_bounds(self.record, f"topic {self.topic}, record {KEY}")
        if self.bounds is None:
            raise ConfigError(
                f"topic {self.topic} has no record with the key {KEY}; expected the bounds of the "
                "cluster's owner, or no such topic; write the record, or delete the topic"
            )

    def _read(self, leader: int) -> None:
        """Read all new records."""
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
                    f"could not read the topic {self.topic} to its end: {size:,} B were read; "
                    f"expected a compacted topic of at most {READ_BYTES_MAX:,} B; create the topic "
                    "again",
                    UNREADABLE,
                )

    def _take(self, body: memoryview) -> None:
        """Store the batch's last record with the key `bounds`; the record replaces the previous
        bounds.
        """
        try:
            for each in records_of(body):
                if each.key == KEY.encode():
                    self.record, self.bounds = each.value, None
        except BatchFormatError as error:
            raise ConfigError(
                f"topic {self.topic} has a record that cannot be decoded ({error}); expected a "
                "record without compression; write it again with --compression-codec none"
            ) from error


def _fetched(answer: Any) -> tuple[int, bytes]:
    """The high watermark and the record batches in an answer to a fetch request."""
    found = checked(*checked(answer).responses[0].partitions)
    return int(found.high_watermark), bytes(found.records or b"")
