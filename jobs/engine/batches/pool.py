"""A pool of record batches, which are encoded once and sent many times.

A pool is a ring of sections (`jobs.engine.batches.sections`). A section is the encoded records of
one full batch. Each producer starts at a different section and takes one section per batch.

Compressed data cannot be cut, so a section with compression has several compressed bodies. A body
is the first n records of the section, compressed together. The natural count is the number of
records that batches usually have while the brokers keep up. The full count is the number of records
in a full batch. A section has a body for the natural count, a body for the full count, and bodies
for as many other counts as fit into the pool. For each batch, the producer takes the body with the
most records, but not with more records than are due. The remaining due records become the first
records of the next batch, so no record is lost.

The module also defines Kafka's codecs, with the levels of Kafka's own producer.
"""

from __future__ import annotations

import functools
import gzip
import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from kafka import codec

from jobs.engine.batches.messages import Message, MessagesError, message_stream, read_messages
from jobs.engine.batches.sections import (
    RECORDS_MAX,
    CompressedSection,
    Encoded,
    Section,
    encode,
)
from metrics.common.errors import ConfigError
from metrics.traffic.clients import LZ4_FAST_LEVEL, ProducerOptions, ProducerPattern

_LZ4_HIGH_LEAST = 3  # below this level, LZ4 frames use the fast compressor


class CodecError(ConfigError):
    """A codec is unknown, or its library is not installed on this host."""


@dataclass(frozen=True)
class Codec:
    """A codec: one value of `compression.type`.

    Attributes:
        number: number of the codec in the lowest three bits of a batch's attributes.
        encode: function that compresses data at a level.
        package: Python package with the codec's library.
        is_installed: function that tells whether the library is installed.
        level: compression level; None for a codec without levels.
    """

    number: int
    encode: Callable[[bytes, int], bytes]
    package: str = ""
    is_installed: Callable[[], bool] = lambda: True
    level: int | None = None

    def compress(self, data: bytes) -> bytes:
        """Compress encoded records; the result is the part of a batch after its header."""
        return self.encode(data, self.level or 0)


def _lz4(data: bytes, level: int) -> bytes:
    frame_level = 0 if level == LZ4_FAST_LEVEL else max(_LZ4_HIGH_LEAST, level)
    encoded: bytes = codec.lz4_encode(data, compression_level=frame_level)
    return encoded


def _zstd(data: bytes, level: int) -> bytes:
    encoded: bytes = codec.zstd.ZstdCompressor(level=level).compress(data)
    return encoded


CODECS: Mapping[str, Codec] = {
    "none": Codec(0, lambda data, _level: data),
    # The header has no time, so that equal pools have equal bytes.
    "gzip": Codec(1, functools.partial(gzip.compress, mtime=0)),
    "snappy": Codec(
        2, lambda data, _level: bytes(codec.snappy_encode(data)), "python-snappy", codec.has_snappy
    ),
    "lz4": Codec(3, _lz4, "lz4", codec.has_lz4),
    "zstd": Codec(4, _zstd, "zstandard", codec.has_zstd),
}
"""Value of `compression.type` → codec."""


def codec_of(options: ProducerOptions) -> Codec:
    """The codec and its compression level, as selected by the producer's options.

    Raises:
        CodecError: no codec has this name, or the codec's library is not installed on this host.
    """
    name = options.compression
    found = CODECS.get(name)
    if found is None:
        raise CodecError(
            f"producer.compression is {name}; expected one of {', '.join(CODECS)}; choose a codec"
        )
    if not found.is_installed():
        raise CodecError(
            f"producer.compression is {name}, and the package {found.package} is not installed on "
            f"{socket.gethostname()}; expected the package on every executor; run pip install "
            f"{found.package} there, or choose another codec"
        )
    return replace(found, level=options.compression_level)


ESTIMATION_FACTOR = 1.05
"""Kafka's producer multiplies the compression ratio of earlier batches by this factor to estimate
the next batch."""

_RAW_BYTES_MAX = 67_108_864  # limit of uncompressed data, so that a pool is made quickly
_PROBE_BYTES = 1_048_576
_ROUNDS = 3
_BISECTIONS = 10
_STEP = 7919  # a prime, so that producers spread over the ring
_STEPS_PER_OCTAVE = (16, 8, 4, 2, 1)
_SECTIONS_MIN = 4
_MEAN_TOLERANCE = 0.01


def record_counts(full: int, natural: int, per_octave: int) -> list[int]:
    """The record counts of the bodies that are compressed in advance. A body with the record count
    n contains the first n records of a full batch.

    The numbers are in ascending order, up to `full`. If `natural` is below `full`, the result
    includes `natural`, `natural - 1` and `natural + 1`. The result also includes a series of counts
    that starts at 1. From any count to its double, the series has about `per_octave` counts.
    """
    around = range(max(1, natural - 1), natural + 2) if natural < full else ()
    counts = {full, *around}
    count = 1.0
    while count < full:
        counts.add(int(count))
        count = max(int(count) + 1.0, count * 2 ** (1 / per_octave))
    return sorted(counts)


class BatchPool:
    """Encoded batches, shared by all producers of a task.

    The pool has at most `payload.pool_bytes` bytes and 200,000 records, but at least one full
    batch. The same pattern and seed give the same pool.

    Attributes:
        sections: the sections in the order of the ring.
        compression_ratio: ratio of two sizes of the records: the size before compression, divided
            by the size after compression.
        mean_payload_bytes: mean payload of a record [B], for batches of the natural count.
            Producers usually send batches of the natural count while the brokers keep up.

    Raises:
        CodecError: the codec is unknown, or its library is not installed on this host.
        MessagesError: the file of messages cannot be used.
    """

    def __init__(self, pattern: ProducerPattern) -> None:
        self._pattern = pattern
        self._codec = codec_of(pattern.options)
        self._interval_ms = 1000.0 / pattern.rate_records_per_s
        self._natural = pattern.lingered_records
        payload = pattern.payload
        self._file_messages = read_messages(payload) if payload.kind == "messages" else []
        self._check_mean()
        key_rng = random.Random(f"{pattern.payload.seed}/keys")
        self._keys = [key_rng.randbytes(payload.key_bytes) for _ in range(payload.key_count)]
        self._share = self._fitted_share()
        self._estimate_shrinking()
        self._per_octave = _STEPS_PER_OCTAVE[0]
        self._last_ends: tuple[Sequence[int], Sequence[int]] = ((), ())
        self._totals = [0, 0, 0, 0]  # records, payload, sizes before and after compression [B]
        self.sections = self._make()
        records, payload_bytes, raw, sent = self._totals
        self.mean_payload_bytes = payload_bytes / records
        self.compression_ratio = raw / sent
        for place, section in enumerate(self.sections):
            self.sections[place - 1].following = section
            section.interval_ms = self._interval_ms

    def __len__(self) -> int:
        return len(self.sections)

    def section_of(self, producer: int) -> Section:
        """The encoded records from which the producer with this index makes its first batch."""
        return self.sections[producer * _STEP % len(self.sections)]

    # --- messages -----------------------------------------------------------

    def _check_mean(self) -> None:
        pattern = self._pattern
        if pattern.payload.sizes != "messages":
            return
        mean = (
            sum(map(len, self._file_messages)) / len(self._file_messages)
            + pattern.payload.key_bytes
        )
        if abs(mean - pattern.message_bytes) > max(1.0, _MEAN_TOLERANCE * mean):
            raise MessagesError(
                f"message_bytes is {pattern.message_bytes}; expected {mean:.0f}, the mean of the "
                "messages and keys of payload.messages_file, because payload.sizes is messages; "
                f"set message_bytes to [{mean:.0f}], or payload.sizes to fixed"
            )

    def _messages(self, name: str) -> Iterator[Message]:
        payload, size, share = self._pattern.payload, self._pattern.message_bytes, self._share
        rng = random.Random(f"{payload.seed}/{size}/{name}")
        return message_stream(payload, size, rng, self._keys, self._file_messages, share)

    def _fitted_share(self) -> float | None:
        """The share of repeated characters in a message's value that leads to the configured
        compression ratio. The function finds the share by bisection, and sets `_share` in each
        step.
        """
        payload, codec = self._pattern.payload, self._codec
        wanted = payload.wanted_ratio
        if payload.kind != "mixed" or wanted is None:
            return None
        if codec.number == 0:
            return 1.0 - 1.0 / wanted
        room = min(_PROBE_BYTES, int(self._pattern.options.batch_size * wanted))
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            self._share = middle = (low + high) / 2
            probe = encode(self._messages("probe"), room, self._interval_ms)
            data = probe.data[: probe.ends[min(self._natural, probe.records)]]
            if len(data) / len(codec.compress(data)) < wanted:
                low = middle
            else:
                high = middle
        return high

    def _estimate_shrinking(self) -> None:
        """Estimate the compressed size of a batch divided by its uncompressed size [ratio].

        The estimate follows Kafka's producer, which multiplies the ratio of earlier batches by
        1.05. The function repeats the estimate until the estimate converges.
        """
        self._shrinking = 1.0
        for _ in range(_ROUNDS if self._codec.number else 0):
            data = self._encode(self._messages("probe")).data
            self._shrinking = ESTIMATION_FACTOR * len(self._codec.compress(data)) / len(data)

    def _encode(self, messages: Iterator[Message]) -> Encoded:
        size = self._pattern.options.batch_size
        return encode(messages, size, self._interval_ms, self._shrinking)

    # --- the ring -----------------------------------------------------------

    def _make(self) -> list[Section]:
        encoded = self._encoded_batches()
        first = next(encoded)
        count = max(1, min(self._count(first), RECORDS_MAX // first.records))
        return [self._section(each) for each in chain([first], islice(encoded, count - 1))]

    def _encoded_batches(self) -> Iterator[Encoded]:
        """Yield the encoded records of one full batch, then of the next full batch, and so on
        without end.
        """
        heads, rest = self._messages("heads"), self._messages("rest")
        opening: list[Message] = []
        full = 0
        while True:
            first = islice(heads, self._natural - len(opening))
            encoded = self._encode(chain(opening, first, rest))
            yield encoded
            full, left_over = full or encoded.records, encoded.left_over
            # A batch that is sent before it is full has only messages of `heads`, so `heads` alone
            # must have the configured mean. A message that did not fit opens the next batch only if
            # batches get full. Otherwise each batch would begin with a large message.
            opening = [left_over] if left_over and self._natural >= full else []

    def _count(self, first: Encoded) -> int:
        """Number of sections that fit into the pool. Sets `_per_octave`."""
        if self._codec.number == 0:
            return self._pattern.payload.pool_bytes // max(1, len(first.data))
        share = len(self._codec.compress(first.data)) / len(first.data)
        sections = 0
        for self._per_octave in _STEPS_PER_OCTAVE:
            raw = sum(first.ends[count] for count in self._counts(first))
            sections = int(
                min(self._pattern.payload.pool_bytes / (raw * share), _RAW_BYTES_MAX / raw)
            )
            if sections >= _SECTIONS_MIN:
                break
        return sections

    def _counts(self, encoded: Encoded) -> list[int]:
        return record_counts(encoded.records, self._natural, self._per_octave)

    def _section(self, encoded: Encoded) -> Section:
        section: Section
        if self._codec.number == 0:
            # Sections with equal message sizes share one list of ends, to save memory.
            ends = (encoded.ends, encoded.payload_ends)
            if ends != self._last_ends:
                self._last_ends = ends
            section = Section(encoded.data, *self._last_ends)
        else:
            bodies = {
                count: self._codec.compress(encoded.data[: encoded.ends[count]])
                for count in self._counts(encoded)
            }
            section = CompressedSection(self._codec.number, bodies, encoded.payload_ends)
        natural = section.fitting(min(self._natural, encoded.records))
        amounts = (
            natural,
            encoded.payload_ends[natural],
            encoded.ends[natural],
            len(section.body(natural)),
        )
        self._totals = [total + each for total, each in zip(self._totals, amounts, strict=True)]
        return section


@functools.lru_cache(maxsize=2)
def pool_of(pattern: ProducerPattern) -> BatchPool:
    """The pool for this traffic pattern, from a cache that several trials share. The cache saves
    time, because encoding a pool can take longer than the warm-up of a trial. The cache lasts as
    long as the Python worker, which Spark uses for several trials.

    Raises:
        CodecError, MessagesError: see `BatchPool`.
    """
    return BatchPool(pattern)
