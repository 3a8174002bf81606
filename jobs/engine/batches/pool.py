"""Record batches, encoded once and sent many times.

A pool is a ring of sections (`jobs.engine.batches.sections`), each with the records of one full
batch. Every producer goes round the ring from a place of its own, one section per batch.

Compressed data cannot be cut, so a compressed section keeps a body for each of several record
counts: the natural count of batches while the brokers keep up, the full count, and others between
them, as many as the pool's size allows. A batch takes the largest count that is not above the
number of due records; the remaining ones open the next batch, so no record is lost.

Kafka's codecs and their levels, as Kafka's own producer has them.
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

from jobs.engine.batches.messages import Message, Messages, MessagesError, read_messages
from jobs.engine.batches.sections import (
    NO_STAMP,
    RECORDS_MAX,
    CompressedSection,
    Encoded,
    Section,
    batch_of,
    encode,
)
from metrics.common.errors import ConfigError
from metrics.traffic.clients import LZ4_FAST_LEVEL, ProducerOptions, ProducerPattern

_LZ4_HIGH_LEAST = 3  # below this level, LZ4 frames use the fast compressor


class CodecError(ConfigError):
    """A codec that is unknown, or whose library is missing here."""


@dataclass(frozen=True)
class Codec:
    """A codec, which is one value of `compression.type`.

    Attributes:
        number: value of the lowest three bits of a batch's attributes.
        encode: compresses data at a level.
        package: name of the package to install.
        is_installed: returns whether its library is installed.
        level: level from `ProducerOptions`; None for a codec without levels.
    """

    number: int
    encode: Callable[[bytes, int], bytes]
    package: str = ""
    is_installed: Callable[[], bool] = lambda: True
    level: int | None = None

    def compress(self, data: bytes) -> bytes:
        """Compress encoded records to the bytes that follow the batch header."""
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
    # Without a time, so that equal pools have equal bytes.
    "gzip": Codec(1, functools.partial(gzip.compress, mtime=0)),
    "snappy": Codec(
        2, lambda data, _level: bytes(codec.snappy_encode(data)), "python-snappy", codec.has_snappy
    ),
    "lz4": Codec(3, _lz4, "lz4", codec.has_lz4),
    "zstd": Codec(4, _zstd, "zstandard", codec.has_zstd),
}
"""Name of a codec, as in `compression.type` → codec."""


def codec_of(options: ProducerOptions) -> Codec:
    """The codec of a producer at its level.

    Raises:
        CodecError: there is no codec of this name, or its library is not installed here.
    """
    name = options.compression
    found = CODECS.get(name)
    if found is None:
        raise CodecError(
            f"producer.compression is {name}; expected one of {', '.join(CODECS)}; correct it"
        )
    if not found.is_installed():
        raise CodecError(
            f"producer.compression is {name}, and {socket.gethostname()} has no package "
            f"{found.package}; expected it on every executor; install it there "
            f"(pip install {found.package}), or choose another codec"
        )
    return replace(found, level=options.compression_level)


ESTIMATION_FACTOR = 1.05
"""Factor by which Kafka's producer expects a batch to compress worse than those before it."""

_RAW_BYTES_MAX = 67_108_864  # of data compressed for a pool, which bounds the time to make it
_PROBE_BYTES = 1_048_576
_ROUNDS = 3
_BISECTIONS = 10
_STEP = 7919  # a prime, so that producers spread over the ring
_STEPS_PER_OCTAVE = (16, 8, 4, 2, 1)
_SECTIONS_MIN = 4
_MEAN_TOLERANCE = 0.01


def record_counts(full: int, natural: int, per_octave: int) -> list[int]:
    """Record counts to keep compressed bodies for, rising to `full`.

    These are the counts around `natural`, unless batches get full anyway, and from 1 on about
    `per_octave` counts in each doubling.
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

    The pool is bounded by `payload.pool_bytes` and by 200,000 records, holds at least one full
    batch, and is the same for the same pattern and seed.

    Attributes:
        sections: the ring, in order.
        compression_ratio: size of the records before compression over the size after it.
        mean_payload_bytes: mean payload of a record in batches of the natural size [B].

    Raises:
        CodecError: the codec is unknown, or its library is missing here.
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
        self._compressibility = self._fitted_compressibility()
        self._shrinking = self._expected_shrinking()
        self._per_octave = _STEPS_PER_OCTAVE[0]
        self._last_ends: tuple[Sequence[int], Sequence[int]] = ((), ())
        self._totals = [0, 0, 0, 0]  # records, payload, before and after compression
        self.sections = self._make()
        records, payload_bytes, raw, sent = self._totals
        self.mean_payload_bytes = payload_bytes / records
        self.compression_ratio = raw / sent
        for place, section in enumerate(self.sections):
            self.sections[place - 1].following = section

    def __len__(self) -> int:
        return len(self.sections)

    def section_of(self, producer: int) -> Section:
        """The section that this producer's first batch takes."""
        return self.sections[producer * _STEP % len(self.sections)]

    def take(
        self,
        section: Section,
        records: int,
        base_timestamp_ms: int,
        stamp: tuple[int, int, int] = NO_STAMP,
        is_transactional: bool = False,
    ) -> tuple[bytes, memoryview]:
        """A batch to send: its header, and its records without a copy.

        Args:
            records: a count that `section.fitting` returns.
            base_timestamp_ms: create time of its first record [ms since the epoch].
            stamp: producer id, epoch and sequence of an idempotent producer.
            is_transactional: whether it belongs to its producer's transaction.
        """
        last_ms = base_timestamp_ms + int((records - 1) * self._interval_ms)
        times = (base_timestamp_ms, last_ms)
        return batch_of(section, records, times, stamp, is_transactional)

    # --- what goes in -------------------------------------------------------

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
                f"message_bytes is {pattern.message_bytes}, and the messages of "
                f"payload.messages_file have a mean of {mean:.0f} B, the key included; expected "
                f"the same, as payload.sizes is messages; set message_bytes to [{mean:.0f}], or "
                "payload.sizes to fixed"
            )

    def _messages(self, name: str, compressibility: float | None = None) -> Messages:
        pattern = self._pattern
        rng = random.Random(f"{pattern.payload.seed}/{pattern.message_bytes}/{name}")
        share = self._compressibility if compressibility is None else compressibility
        return Messages(
            pattern.payload, pattern.message_bytes, rng, self._keys, self._file_messages, share
        )

    def _fitted_compressibility(self) -> float | None:
        """The share of repeated characters that gives the configured ratio with this codec."""
        payload, codec = self._pattern.payload, self._codec
        wanted = payload.wanted_ratio
        if payload.kind != "mixed" or wanted is None:
            return None
        if codec.number == 0:
            return 1.0 - 1.0 / wanted
        room = min(_PROBE_BYTES, int(self._pattern.options.batch_size * wanted))
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            probe = encode(self._messages("probe", middle), room, self._interval_ms)
            data = probe.data[: probe.ends[min(self._natural, probe.records)]]
            if len(data) / len(codec.compress(data)) < wanted:
                low = middle
            else:
                high = middle
        return high

    def _expected_shrinking(self) -> float:
        """Compressed size of a batch that Kafka's producer expects, over its size [ratio].

        The producer takes the ratio of earlier batches times 1.05; this repeats that estimate until
        it converges.
        """
        shrinking = 1.0
        for _ in range(_ROUNDS if self._codec.number else 0):
            data = self._encode(self._messages("probe"), shrinking).data
            shrinking = ESTIMATION_FACTOR * len(self._codec.compress(data)) / len(data)
        return shrinking

    def _encode(self, messages: Iterator[Message], shrinking: float | None = None) -> Encoded:
        expected = self._shrinking if shrinking is None else shrinking
        return encode(messages, self._pattern.options.batch_size, self._interval_ms, expected)

    # --- the ring -----------------------------------------------------------

    def _make(self) -> list[Section]:
        heads, rest = self._messages("heads"), self._messages("rest")
        lingered = self._natural

        def encoded_with(left_over: Message | None) -> Encoded:
            # Batches that leave before they are full hold only heads, which therefore have the
            # mean on their own. A message that did not fit opens the next batch only where batches
            # get full: otherwise each batch would begin with a large message.
            opening = [left_over] if left_over and lingered >= full else []
            messages = chain(opening, islice(heads, lingered - len(opening)), rest)
            return self._encode(messages)

        full = 0
        encoded = encoded_with(None)
        full = encoded.records
        count = max(1, min(self._count(encoded), RECORDS_MAX // full))
        sections = [self._section(encoded)]
        while len(sections) < count:
            encoded = encoded_with(encoded.left_over)
            sections.append(self._section(encoded))
        return sections

    def _count(self, first: Encoded) -> int:
        """Number of sections that fit into the pool; also sets `_per_octave`."""
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
            # Sections with equal message sizes share their ends, to save memory.
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
    """The pool of this pattern, cached for the next trial.

    Spark reuses Python workers, and encoding a pool can take longer than a trial's warm-up.

    Raises:
        CodecError, MessagesError: see `BatchPool`.
    """
    return BatchPool(pattern)
