"""Compression levels: by Kafka's names, in every client that has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kafka import codec

from jobs.config import load_workload
from jobs.engine.batches.pool import codec_of
from jobs.engine.clients import kafka_python, librdkafka
from jobs.engine.clients.library import LibraryError
from metrics.traffic.clients import ProducerOptions, ProducerPattern

TEXT = b" ".join(f"{i * i:x} user {i % 97} clicked {i % 13}".encode() for i in range(4_000))
DECODERS = {"gzip": codec.gzip_decode, "lz4": codec.lz4_decode, "zstd": codec.zstd_decode}


def options(name: str, level: int | None = None) -> ProducerOptions:
    given: dict[str, Any] = {"compression": name}
    if level is not None:
        given[f"compression_{name}_level"] = level
    return replace(ProducerOptions(), **given)


def test_a_higher_level_makes_smaller_batches_that_kafka_reads() -> None:
    """Level 9 of lz4 is the fast compressor, as in Kafka's producer."""
    for name, low, high in (("gzip", 1, 9), ("zstd", -50, 19), ("lz4", 9, 12)):
        large, small = (codec_of(options(name, level)).compress(TEXT) for level in (low, high))
        assert len(small) < 0.98 * len(large)
        assert DECODERS[name](large) == DECODERS[name](small) == TEXT


def test_without_a_level_each_codec_has_kafkas_default() -> None:
    assert [options(name).compression_level for name in DECODERS] == [-1, 9, 3]
    assert options("snappy").compression_level is None
    assert codec_of(options("gzip")).compress(TEXT) == codec_of(options("gzip", 6)).compress(TEXT)
    read = load_workload("demo", ["workload.producer.compression_gzip_level=-1"])
    assert read.producer.compression_gzip_level == -1, "zlib's own level"


def test_librdkafka_gets_the_level_and_refuses_one_that_it_does_not_have() -> None:
    def level(chosen: ProducerOptions) -> object:
        pattern = ProducerPattern(100, 10.0, chosen)
        return librdkafka.producer_options(pattern, 1)["compression.level"]

    assert [level(options(name)) for name in ("none", "snappy", *DECODERS)] == [-1] * 5
    assert [level(options(name, 4)) for name in DECODERS] == [4, 4, 4]
    with pytest.raises(LibraryError, match=r"compression_zstd_level is 19; expected 0 to 12"):
        level(options("zstd", 19))
    # kafka-python has no levels.
    kafka_python.producer_options(ProducerPattern(100, 10.0, options("gzip")))
    with pytest.raises(LibraryError, match=r"kafka-python has no compression\.gzip\.level"):
        kafka_python.producer_options(
            ProducerPattern(100, 10.0, replace(options("gzip", 1), client="kafka-python"))
        )
