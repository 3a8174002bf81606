from __future__ import annotations

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from jobs.engine.batches.pool import BatchPool
from jobs.engine.batches.sections import TAIL_BYTES_MIN, Tail
from tests.support.patterns import producer_pattern

_CRC_END = 21
"""Kafka's CRC covers all bytes that follow its field in a batch."""


@given(st.binary(max_size=60), st.binary(max_size=5_000))
def test_the_checksum_of_a_batch_is_that_of_head_and_body(head: bytes, body: bytes) -> None:
    assert Tail(memoryview(body)).after(head) == crc32c(head + body)


def test_every_batch_of_a_large_pool_has_its_checksum() -> None:
    pool = BatchPool(producer_pattern(1_000, 100_000.0, batch_size=262_144, pool_bytes=1_000_000))
    section = pool.sections[0]
    assert len(section.body(section.full_records)) >= TAIL_BYTES_MIN
    for at_ms in (1, 2_000_000_000_000):
        for records in (1, section.full_records - 1, section.full_records):
            header, body = section.batch_of(records, at_ms, (7, 1, 3))
            stated = int.from_bytes(header[_CRC_END - 4 : _CRC_END], "big")
            assert stated == crc32c(header[_CRC_END:] + bytes(body))
    assert section.tail is not None
