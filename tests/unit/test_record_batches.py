"""Record batches from a broker: any bytes are read or refused, within bounds of memory."""

from __future__ import annotations

import struct

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.codec import gzip_encode, snappy_encode
from kafka.record.default_records import DefaultRecordBatchBuilder

from jobs.cluster.owner_topic import PLAIN_BYTES_MAX, BatchFormatError, records_of
from jobs.features.learn.reading import decode
from metrics.features.learn.tally import RecordTally
from metrics.traffic.batch_headers import batches_in

BATCH_HEAD = 61
CODECS = {
    1: gzip_encode,
    2: snappy_encode,
    3: lz4.frame.compress,
    4: zstandard.ZstdCompressor().compress,
}
MORE = PLAIN_BYTES_MAX + 1


def batch_of(codec: int, *sizes: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1_000_000)
    for index, size in enumerate(sizes):
        builder.append(index, 5_000 + index, b"key", bytes(size), [("h", b"value")])
    return bytes(builder.build())


def batch_with(codec: int, packed: bytes, records: int = 1) -> bytes:
    """A batch with other bytes in place of its records."""
    head = bytearray(batch_of(0, 1)[:BATCH_HEAD])
    struct.pack_into(">i", head, 8, BATCH_HEAD - 12 + len(packed))
    head[22] = codec
    struct.pack_into(">i", head, BATCH_HEAD - 4, records)
    return bytes(head) + packed


def tally_of(batch: bytes) -> RecordTally:
    tally = RecordTally()
    ((header, body),) = batches_in(batch).batches
    decode(header, body, tally)
    return tally


def test_the_records_of_each_codec_are_read_up_to_the_bound() -> None:
    sizes = [0, 7, 100_000]
    for codec in (0, *CODECS):
        batch = batch_of(codec, *sizes)
        assert [len(each.value or b"") for each in records_of(memoryview(batch))] == sizes
        tally = tally_of(batch)
        assert (tally.unreadable, tally.values.total()) == (0, 3)
    for codec in CODECS:
        batch = batch_of(codec, MORE)
        assert len(batch) < 5_000_000
        assert tally_of(batch).unreadable == 1
        with pytest.raises(BatchFormatError, match=f"more than {PLAIN_BYTES_MAX} bytes"):
            list(records_of(memoryview(batch)))


HOSTILE = {
    "records without end": batch_with(0, b"", 2**31 - 1),
    "a block of Snappy of 4 GB": batch_with(2, b"\xff\xff\xff\xff\x0f" + bytes(60)),
    "a codec that does not exist": batch_with(7, bytes(60)),
    "gzip cut off": batch_with(1, gzip_encode(bytes(999))[:-9]),
    "gzip with a damaged checksum": batch_with(1, gzip_encode(bytes(999))[:-8] + bytes(8)),
    "headers without end": batch_with(0, b"\x14\x00\x00\x00\x01\x01\xff\xff\xff\xff\x0f"),
    "shorter than its header": batch_with(0, b"")[:30],
}


@pytest.mark.parametrize("batch", HOSTILE.values(), ids=HOSTILE)
def test_hostile_batches_are_refused(batch: bytes) -> None:
    with pytest.raises(BatchFormatError):
        list(records_of(memoryview(batch)))


@given(
    codec=st.sampled_from([0, *CODECS]),
    plain=st.binary(max_size=200),
    cut=st.integers(0, 60),
    flip=st.integers(0, 10**6),
    records=st.integers(-1, 2**31 - 1),
)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_any_bytes_are_read_or_refused(
    codec: int, plain: bytes, cut: int, flip: int, records: int
) -> None:
    """Each error is a `BatchFormatError`, which skips the batch."""
    packed = bytearray(CODECS[codec](plain) if codec else plain)
    if packed:
        packed[flip % len(packed)] ^= 1 << flip % 8
    del packed[len(packed) - min(cut, len(packed)) :]
    tally = tally_of(batch_with(codec, bytes(packed), records))
    assert tally.unreadable in (0, 1)
