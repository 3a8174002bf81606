"""A parser that handles fetch responses while they arrive: it reads batch headers, not records.

A response can have tens of megabytes, so the parser never stores a whole response. All connections
receive into one shared buffer, and the parser stores at most an incomplete header between two
reads. The layouts are Kafka's fetch response version 10 and record batch format v2
(https://kafka.apache.org/documentation/#recordbatch).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from crc32c import crc32c

from jobs.engine.network.transport import AnswerFormatError
from jobs.engine.task.plan import Partitions
from metrics.traffic.payload import BATCH_HEADER_BYTES

_HEAD = struct.Struct(">iiihii")  # size, correlation, throttle, error, session, topics
_NAME_LENGTH = struct.Struct(">h")
_COUNT = struct.Struct(">i")
_PARTITION = struct.Struct(">ihqqqii")  # …, high watermark, …, aborted, bytes of records
_BATCH = struct.Struct(">qiibIhiqqqhii")
_BATCH_WITHOUT_CRC = struct.Struct(">qi4xb4xhiqq14xi")  # also without epoch and producer
_LENGTH_END = 12
_CRC_END = 21
_MAGIC = 2
_CONTROL = 0x20  # bit in a batch's attributes


class FetchFormatError(AnswerFormatError):
    """The received bytes are not a fetch response, so parsing must end."""


@dataclass(frozen=True)
class FetchAnswer:
    """The header of a completely received fetch response."""

    correlation_id: int
    error_code: int
    session_id: int
    throttle_ms: int


class Sink(Protocol):
    """Receiver of the parsed parts of fetch responses."""

    def begin_partition(self, index: int, error_code: int, high_watermark: int) -> None:
        """Begin the batches of the partition with this number."""

    def take_batch(self, batch: Batch, now: float) -> None:
        """Take a complete batch, whose last byte arrived at `now`."""

    def take_control_batch(self, last_offset: int, records: int) -> None:
        """Take a complete control batch, which marks the end of a transaction."""

    def end_response(self, answer: FetchAnswer, now: float) -> None:
        """End the response."""


Batch = tuple[int, int, int, int, int, int]
"""(base offset, last offset, number of records, base timestamp [ms], max timestamp [ms], size
[B])."""


class FetchStream:
    """Parser that divides the bytes of one connection into responses, partitions and batches.

    Args:
        sink: receives the parsed parts in the order of the bytes.
        partitions: the partitions of all topics, with their numbers.
        check_crcs: whether to verify the CRC-32C of each batch. The verification reads every byte.

    Attributes:
        skippable: number of bytes that the parser skips next [B].
    """

    def __init__(self, sink: Sink, partitions: Partitions, check_crcs: bool = False) -> None:
        self._sink = sink
        topics, each = partitions.topics, partitions.per_topic
        self._firsts = {topic.encode(): index * each for index, topic in enumerate(topics)}
        self._first = 0
        self._check_crcs = check_crcs
        self._carry = bytearray()
        self._step: Callable[[memoryview, int, float], None] = self._head
        self._need = _HEAD.size
        self._topics = self._partitions = self._records_left = self._frame_left = 0
        self._batch: Batch | None = None
        self._is_control = False
        self._crc = self._crc_wanted = 0
        self.skippable = 0

    def feed(self, data: memoryview, now: float) -> None:
        """Parse bytes that arrived at `now`.

        Raises:
            FetchFormatError: the bytes are not a fetch response, or a batch has a wrong CRC.
        """
        position, end = 0, len(data)
        while position < end:
            if self.skippable:
                taken = min(self.skippable, end - position)
                if self._check_crcs:
                    self._crc = crc32c(data[position : position + taken], self._crc)
                position += taken
                self.skip(taken, now)
            elif not self._carry and end - position >= self._need:
                if self._step == self._batch_header and not self._check_crcs:
                    position = self._whole_batches(data, position, now)
                    if self._step != self._batch_header or end - position < self._need:
                        continue
                at, position = position, position + self._need
                self._frame_left -= self._need
                self._step(data, at, now)
            else:
                taken = min(self._need - len(self._carry), end - position)
                self._carry += data[position : position + taken]
                position += taken
                if len(self._carry) == self._need:
                    whole, self._carry = memoryview(bytes(self._carry)), bytearray()
                    self._frame_left -= self._need
                    self._step(whole, 0, now)

    def skip(self, size: int, now: float) -> None:
        """Skip `size` bytes, at most `skippable`."""
        self.skippable -= size
        self._frame_left -= size
        if not self.skippable:
            self._passed(now)

    # --- the parts of a response, in the order of arrival ----------------------

    def _await(self, step: Callable[[memoryview, int, float], None], need: int) -> None:
        if need > self._frame_left:
            raise FetchFormatError(
                f"a fetch response ends {need - self._frame_left} bytes too early; its parts need "
                "more bytes than its size field says"
            )
        self._step, self._need = step, need

    def _head(self, data: memoryview, at: int, now: float) -> None:
        size, correlation, throttle_ms, error, session, self._topics = _HEAD.unpack_from(data, at)
        self._frame_left = size + _COUNT.size - _HEAD.size
        if self._frame_left < 0 or self._topics < 0:
            raise FetchFormatError(f"a frame of {size} bytes is not a fetch response")
        self._answer = FetchAnswer(correlation, error, session, throttle_ms)
        self._next_topic(now)

    def _next_topic(self, now: float) -> None:
        if self._topics:
            self._topics -= 1
            self._await(self._name_length, _NAME_LENGTH.size)
            return
        if self._frame_left:
            raise FetchFormatError(
                f"a fetch response has {self._frame_left} unexpected bytes at its end"
            )
        self._step, self._need = self._head, _HEAD.size
        self._sink.end_response(self._answer, now)

    def _name_length(self, data: memoryview, at: int, now: float) -> None:
        (length,) = _NAME_LENGTH.unpack_from(data, at)
        if length < 0:
            raise FetchFormatError(
                f"a topic name in a fetch response has {length} bytes; expected 0 or more"
            )
        self._await(self._name_and_count, length + _COUNT.size)

    def _name_and_count(self, data: memoryview, at: int, now: float) -> None:
        end = at + self._need - _COUNT.size
        name = bytes(data[at:end])
        if name not in self._firsts:
            raise FetchFormatError(
                f"a fetch response has the topic {name!r}; expected a topic of the trial"
            )
        self._first = self._firsts[name]
        (self._partitions,) = _COUNT.unpack_from(data, end)
        if self._partitions < 0:
            raise FetchFormatError(
                f"a topic in a fetch response has {self._partitions} partitions; expected 0 or more"
            )
        self._next_partition(now)

    def _next_partition(self, now: float) -> None:
        if self._partitions:
            self._partitions -= 1
            self._await(self._partition, _PARTITION.size)
        else:
            self._next_topic(now)

    def _partition(self, data: memoryview, at: int, now: float) -> None:
        index, error, high, _stable, _start, aborted, size = _PARTITION.unpack_from(data, at)
        if aborted > 0:
            raise FetchFormatError(
                "a fetch response lists aborted transactions, which its request did not ask for"
            )
        if size > self._frame_left:
            raise FetchFormatError(
                f"a partition in a fetch response has {size} bytes of records; expected at most "
                f"{self._frame_left}, the rest of the response"
            )
        self._records_left = max(0, size)
        self._sink.begin_partition(self._first + index, error, high)
        self._next_batch(now)

    def _next_batch(self, now: float) -> None:
        if self._records_left >= BATCH_HEADER_BYTES:
            self._await(self._batch_header, BATCH_HEADER_BYTES)
        elif self._records_left:  # an incomplete header, cut off at the partition's size limit
            self._batch, self.skippable, self._records_left = None, self._records_left, 0
        else:
            self._next_partition(now)

    def _batch_header(self, data: memoryview, at: int, now: float) -> None:
        base, length, _epoch, magic, crc, flags, delta, first_ms, max_ms, *_producer, count = (
            _BATCH.unpack_from(data, at)
        )
        size = _LENGTH_END + length
        if magic != _MAGIC or size < BATCH_HEADER_BYTES:
            raise FetchFormatError(
                f"a record batch has format {magic} and {length} bytes; expected format {_MAGIC}, "
                "which Kafka has written since 0.11"
            )
        body = min(size, self._records_left) - BATCH_HEADER_BYTES
        self._batch = None
        if size <= self._records_left:  # otherwise the batch is cut off, and a later fetch reads it
            self._batch = (base, base + delta, count, first_ms, max_ms, size)
            self._is_control = bool(flags & _CONTROL)
            self._crc_wanted = crc
            if self._check_crcs:
                self._crc = crc32c(data[at + _CRC_END : at + BATCH_HEADER_BYTES])
        self._records_left -= BATCH_HEADER_BYTES + body
        self.skippable = body
        if not body:
            self._passed(now)

    def _whole_batches(self, data: memoryview, position: int, now: float) -> int:
        """Take the batches that have arrived completely; return the position after them.

        The function stops at an incomplete batch, a control batch, and a batch with an unexpected
        format or size. The parser's other steps handle the batch at which the function stops. For
        small batches, one call for all batches of a read takes half as long as one call for each
        batch.
        """
        end, left, began = len(data), self._records_left, position
        take_batch, unpack = self._sink.take_batch, _BATCH_WITHOUT_CRC.unpack_from
        while (room := min(left, end - position)) >= BATCH_HEADER_BYTES:
            base, length, magic, flags, delta, first_ms, max_ms, count = unpack(data, position)
            size = _LENGTH_END + length
            if magic != _MAGIC or flags & _CONTROL or not BATCH_HEADER_BYTES <= size <= room:
                break
            take_batch((base, base + delta, count, first_ms, max_ms, size), now)
            position += size
            left -= size
        if position > began:
            self._records_left = left
            self._frame_left -= position - began
            self._next_batch(now)
        return position

    def _passed(self, now: float) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            if self._check_crcs and self._crc != self._crc_wanted:
                raise FetchFormatError(
                    f"the batch at offset {batch[0]} has the CRC {self._crc:08x}; expected "
                    f"{self._crc_wanted:08x}; the batch changed after its producer made it"
                )
            if self._is_control:
                self._sink.take_control_batch(batch[1], batch[2])
            else:
                self._sink.take_batch(batch, now)
        self._next_batch(now)
