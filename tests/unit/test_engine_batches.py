"""Encoded batches are what Kafka's own reader expects, at every length."""

from __future__ import annotations

import random

import pytest
from kafka.record.default_records import DefaultRecordBatch

from jobs.engine.batches import BatchPool, encode_records
from jobs.engine.pattern import BATCH_HEADER_BYTES, ProducerPattern, record_bytes, varint_bytes


def _pattern(message_bytes: int = 100, **options: object) -> ProducerPattern:
    defaults: dict[str, object] = {"rate_records_per_s": 1000.0, "pool_bytes": 65_536}
    return ProducerPattern(message_bytes, **(defaults | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("message_bytes", [1, 100, 1_000, 10_000, 100_000])
def test_every_prefix_is_a_valid_batch(message_bytes: int) -> None:
    pool = BatchPool(_pattern(message_bytes))
    for records in {1, pool.records_per_full_batch // 2 or 1, pool.records_per_full_batch}:
        header, body = pool.take(records, 1_700_000_000_000)
        batch = DefaultRecordBatch(bytes(header) + bytes(body))
        assert batch.validate_crc()
        assert batch.records_count == records
        assert batch.size_in_bytes == pool.size_of(records) == len(header) + len(body)
        read = list(batch)
        assert [len(r.value) for r in read] == [message_bytes] * records
        assert [r.offset for r in read] == list(range(records))
        assert read[0].timestamp == 1_700_000_000_000
        assert read[-1].timestamp <= batch.max_timestamp


def test_a_full_batch_stays_within_batch_size() -> None:
    for message_bytes in (1, 100, 1_000, 8_000):
        pool = BatchPool(_pattern(message_bytes))
        size = pool.size_of(pool.records_per_full_batch)
        assert size <= 16_384
        assert size + record_bytes(pool.records_per_full_batch, message_bytes, 1000.0) > 16_384


def test_a_message_larger_than_the_batch_travels_alone() -> None:
    pool = BatchPool(_pattern(100_000))
    assert pool.records_per_full_batch == 1
    assert pool.size_of(1) > 100_000


def test_payload_is_random_and_repeatable() -> None:
    pattern = _pattern(1_000)
    one, again = (encode_records(pattern, random.Random(7)) for _ in range(2))
    other = encode_records(pattern, random.Random(8))
    assert bytes(one.data) == bytes(again.data) != bytes(other.data)
    assert len(set(bytes(one.data))) == 256


def test_the_pool_is_bounded() -> None:
    pool = BatchPool(_pattern(1_000, pool_bytes=100_000))
    assert len(pool) > 1
    assert len(pool) == 100_000 // (pool.size_of(pool.records_per_full_batch) - BATCH_HEADER_BYTES)


@pytest.mark.parametrize(
    ("rate", "linger_ms", "expected"),
    [(1_000.0, 5.0, 6), (100.0, 5.0, 1), (1_000_000.0, 5.0, 148), (10.0, 1_000.0, 11)],
)
def test_records_per_batch_follow_from_rate_linger_and_size(
    rate: float, linger_ms: float, expected: int
) -> None:
    pattern = _pattern(100, rate_records_per_s=rate, linger_ms=linger_ms)
    assert pattern.records_per_batch == expected
    assert pattern.batch_interval_s == pytest.approx(expected / rate)


@pytest.mark.parametrize(("value", "size"), [(0, 1), (63, 1), (64, 2), (8191, 2), (8192, 3)])
def test_varint_size(value: int, size: int) -> None:
    assert varint_bytes(value) == size
