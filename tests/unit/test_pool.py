"""Encoded batches are what Kafka's own reader expects, at every length and with every codec."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kafka import codec
from kafka.record.default_records import DefaultRecordBatch

from jobs.engine.batches.pool import CODECS, ESTIMATION_FACTOR, BatchPool, CodecError
from jobs.engine.batches.sections import Section
from metrics.traffic.clients import ProducerPattern
from metrics.traffic.payload import BATCH_HEADER_BYTES, Payload, record_bytes
from tests.support.patterns import producer_pattern

COMPRESSED = [name for name in CODECS if name != "none"]


def _pattern(message_bytes: int = 100, **options: Any) -> ProducerPattern:
    defaults: dict[str, Any] = {"rate_records_per_s": 1000.0, "pool_bytes": 65_536}
    return producer_pattern(message_bytes, **(defaults | options))


def _read(section: Section, records: int) -> tuple[DefaultRecordBatch, list[Any]]:
    header, body = section.batch_of(records, 1_700_000_000_000, (77, 5, 1_000))
    batch = DefaultRecordBatch(bytes(header) + bytes(body))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 5, 1_000)
    assert batch.records_count == records
    assert batch.size_in_bytes == section.size_of(records) == len(header) + len(body)
    return batch, list(batch)


@pytest.mark.parametrize("message_bytes", [1, 100, 1_000, 10_000, 100_000])
@pytest.mark.parametrize("compression", CODECS)
def test_every_length_is_a_valid_batch(message_bytes: int, compression: str) -> None:
    pool = BatchPool(_pattern(message_bytes, compression=compression))
    section = pool.section_of(3)
    full = section.full_records
    for wanted in {1, full // 2 or 1, full}:
        records = section.fitting(wanted)
        batch, read = _read(section, records)
        assert batch.compression_type == CODECS[compression].number
        assert [len(r.value) for r in read] == [message_bytes] * records
        assert [r.offset for r in read] == list(range(records))
        assert section.payload_of(records) == message_bytes * records
        assert read[0].timestamp == 1_700_000_000_000
        assert read[-1].timestamp <= batch.max_timestamp
    assert section.fitting(full) == section.fitting(10 * full) == full


def test_a_full_batch_stays_within_batch_size() -> None:
    for message_bytes in (1, 100, 1_000, 8_000):
        section = BatchPool(_pattern(message_bytes)).sections[0]
        size = section.size_of(section.full_records)
        assert size <= 16_384
        assert size + record_bytes(section.full_records, message_bytes, 1000.0) > 16_384
    assert BatchPool(_pattern(payload=Payload("repeated"))).compression_ratio == 1.0
    for compression in CODECS:
        alone = BatchPool(_pattern(100_000, compression=compression)).sections[0]
        assert (alone.full_records, alone.size_of(1) > 100_000) == (1, True)
    # Kafka's producer, too, counts a message uncompressed for the room of a batch.
    options: dict[str, Any] = {"payload": Payload("repeated"), "compression": "zstd"}
    full = [BatchPool(_pattern(n, **options)).sections[0].full_records for n in (16_384, 8_000)]
    assert full[0] == 1 and full[1] > 20


@pytest.mark.parametrize("payload", [Payload(), Payload("repeated"), Payload("mixed", 0.5)])
@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_compressed_batch_is_full_by_its_expected_size(
    payload: Payload, compression: str
) -> None:
    pattern = _pattern(100, payload=payload, compression=compression)
    for section in BatchPool(pattern).sections:
        size = section.size_of(section.full_records)
        assert size <= 16_384
        if payload.kind != "repeated":  # whose batches grow while their ratio does
            assert size == pytest.approx(16_384 / ESTIMATION_FACTOR, rel=0.05)


@pytest.mark.parametrize("compression", CODECS)
def test_the_pool_is_random_repeatable_and_bounded(compression: str) -> None:
    pattern = _pattern(1_000, pool_bytes=1_000_000, compression=compression)
    one, again = BatchPool(pattern), BatchPool(pattern)
    other = BatchPool(_pattern(1_000, pool_bytes=1_000_000, compression=compression, seed=8))

    def bodies(pool: BatchPool) -> list[bytes]:
        return [bytes(s.body(s.full_records)) for s in pool.sections]

    assert bodies(one) == bodies(again)
    assert set(bodies(one)).isdisjoint(bodies(other))
    assert len(set(bodies(one)[0])) == 256
    kept = sum(s.size_of(s.full_records) - BATCH_HEADER_BYTES for s in one.sections)
    assert kept < 1_050_000


def test_short_batches_do_not_all_begin_with_the_same_records() -> None:
    pool = BatchPool(_pattern(100, pool_bytes=400_000))
    sections = [pool.section_of(producer) for producer in range(len(pool))]
    values = {bytes(_read(s, 2)[1][0].value) for s in sections}
    assert len(values) == len(pool) > 20
    following = {id(section.following) for section in sections}
    assert following == set(map(id, sections)), "producers use all sections in turns"


# --- contents of messages ---------------------------------------------------


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("wanted", [1.5, 3.0, 6.0])
@pytest.mark.parametrize("linger_ms", [5.0, 1_000.0])
def test_a_wanted_ratio_is_reached_in_batches_as_they_are_sent(
    compression: str, wanted: float, linger_ms: float
) -> None:
    pattern = _pattern(
        500, payload=Payload("mixed", wanted_ratio=wanted), compression=compression,
        linger_ms=linger_ms, pool_bytes=200_000, batch_size=65_536,
    )  # fmt: skip
    assert BatchPool(pattern).compression_ratio == pytest.approx(wanted, rel=0.05)


def _stream(**options: Any) -> list[Any]:
    pool = BatchPool(_pattern(pool_bytes=2_000_000, **options))
    return [r for s in pool.sections for r in _read(s, s.full_records)[1]]


def test_keys_come_from_their_space_and_count_as_payload() -> None:
    few = _stream(payload=Payload(key_bytes=8, key_count=5))
    assert {len(r.key) for r in few} == {8}
    assert {len(r.value) for r in few} == {92}
    counts = Counter(r.key for r in few)
    assert len(counts) == 5
    assert min(counts.values()) > 0.9 * len(few) / 5
    fresh = _stream(payload=Payload(key_bytes=8))
    assert len({r.key for r in fresh}) == len(fresh)
    pool = BatchPool(_pattern(payload=Payload(key_bytes=8)))
    assert pool.sections[0].payload_of(3) == 300
    assert pool.mean_payload_bytes == 100.0


def test_headers_are_encoded_and_have_room() -> None:
    payload = Payload(headers=2, header_bytes=10, key_bytes=4)
    pattern = _pattern(payload=payload)
    section = BatchPool(pattern).sections[0]
    assert section.full_records == pattern.records_per_full_batch < 130
    read = _stream(payload=payload)
    assert [[(k, len(v)) for k, v in r.headers] for r in read[:2]] == [[("h0", 10), ("h1", 10)]] * 2
    sized = sum(record_bytes(i, 100, 1000.0, payload) for i in range(section.full_records))
    assert section.size_of(section.full_records) == BATCH_HEADER_BYTES + sized


@pytest.fixture(params=["uniform", "lognormal", "histogram"])
def varied(request: pytest.FixtureRequest, tmp_path: Path) -> Payload:
    """Messages of different sizes."""
    if request.param != "histogram":
        return Payload(sizes=request.param, size_spread=1.0)
    file = tmp_path / "sizes.txt"
    file.write_text("10 5\n1000 1\n")
    return Payload(sizes="histogram", histogram_file=str(file))


@pytest.mark.parametrize("linger_ms", [5.0, 5_000.0])
def test_varied_sizes_have_the_mean_and_are_counted_exactly(
    varied: Payload, linger_ms: float
) -> None:
    pattern = _pattern(400, payload=varied, linger_ms=linger_ms, pool_bytes=4_000_000)
    pool = BatchPool(pattern)
    assert pool.mean_payload_bytes == pytest.approx(400, rel=0.03)
    lengths = []
    for section in pool.sections[:50]:
        assert section.size_of(section.full_records) <= 16_384 or section.full_records == 1
        records = min(section.full_records, pattern.lingered_records)
        values = [len(r.value) for r in _read(section, records)[1]]
        assert section.payload_of(records) == sum(values)
        lengths += values
    assert len(set(lengths)) > (100 if varied.sizes != "histogram" else 1)
    assert max(lengths) <= varied.distribution.largest(400)


def test_a_record_that_does_not_fit_goes_to_the_next_batch() -> None:
    payload = Payload(sizes="lognormal", size_spread=1.0)
    pattern = _pattern(2_000, payload=payload, linger_ms=9e5, pool_bytes=8_000_000)
    pool = BatchPool(pattern)
    assert pool.mean_payload_bytes == pytest.approx(2_000, rel=0.03), "large ones are not dropped"


def test_an_unknown_codec_is_refused_by_name() -> None:
    with pytest.raises(CodecError, match=r"LZ4; expected one of none, gzip, snappy, lz4, zstd"):
        BatchPool(_pattern(compression="LZ4"))


def test_a_missing_codec_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "zstd", None)
    with pytest.raises(
        CodecError, match=r"package zstandard is not installed.*pip install zstandard"
    ):
        BatchPool(_pattern(compression="zstd"))


def test_records_per_batch_follow_from_rate_linger_and_size() -> None:
    for rate, linger_ms, expected in ((1e3, 5.0, 6), (100.0, 5.0, 1), (1e6, 5.0, 148)):
        pattern = _pattern(100, rate_records_per_s=rate, linger_ms=linger_ms)
        assert pattern.records_per_batch == expected
        assert pattern.batch_interval_s == pytest.approx(expected / rate)
