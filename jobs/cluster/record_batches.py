"""The records of a batch that a broker sent, decompressed up to a bound."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterator

import lz4.frame
import snappy
import zstandard
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from metrics.common.errors import RedlineError

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
