"""The counts and sizes of a topic's batches; it keeps nothing of the records themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from metrics.learning.batches import BatchHeader
from metrics.traffic.record_format import BATCH_HEADER_BYTES

SAME_END_MS = 5
"""Markers of one producer within this time end one transaction in several partitions [ms]."""
MARKERS_MAX = 10_000
"""Number of markers of a producer whose times are kept."""
OPENED_MAX = 200_000
"""Number of batches of a topic whose times are kept."""


class Opened(NamedTuple):
    """When a producer opened a batch.

    Attributes:
        producer_id: id of the producer.
        partition: partition of the batch.
        first_ms: time of its first record [ms since the epoch].
    """

    producer_id: int
    partition: int
    first_ms: int


@dataclass
class ProducerTally:
    """What the batches of one producer id show.

    Attributes:
        batches, records: their numbers.
        open_ms: time in which its batches took records, all partitions together [ms].
        first_ms, last_ms: time of its first record and of its last one [ms since the epoch].
        ends_ms: times of the ends of its transactions [ms since the epoch].
    """

    batches: int = 0
    records: int = 0
    open_ms: int = 0
    first_ms: int = 2**62
    last_ms: int = 0
    ends_ms: list[int] = field(default_factory=list)

    @property
    def transactions(self) -> list[int]:
        """The end of each transaction once [ms since the epoch], in order."""
        found: list[int] = []
        for each in sorted(self.ends_ms):
            if not found or each - found[-1] > SAME_END_MS:
                found.append(each)
        return found


@dataclass
class BatchTally:
    """What the batches of a topic show.

    Attributes:
        batches, records, offsets, size_bytes: sums over all batches but markers.
        codecs: codec → number of batches.
        batch_records: number of records → number of batches with so many.
        batch_sizes: size [B] → number of batches of this size.
        open_ms: time in which batches took records, all together [ms].
        wide_ms: the same of batches with several records, each time longer by 1/(n - 1) for n
            records: the time for which a batch was open, where records came at random [ms].
        last_ms: time of the latest record [ms since the epoch].
        followers: number of records after the first one of their batch, without batches whose
            times are those of the broker.
        spans: time between the first and the latest record [ms] → number of batches that hold
            several records and took this time.
        idempotent, transactional: number of batches of such producers.
        markers: number of batches that end transactions.
        append_times: number of batches whose times are those of the broker.
        older: number of message sets of a format before v2.
        by_partition: partition → bytes that were read of it [B].
        producers: producer id → its tally.
        opened: when batches with a producer id were opened, of the first `OPENED_MAX` of them.
    """

    batches: int = 0
    records: int = 0
    offsets: int = 0
    size_bytes: int = 0
    codecs: Counter[str] = field(default_factory=Counter)
    batch_records: Counter[int] = field(default_factory=Counter)
    batch_sizes: Counter[int] = field(default_factory=Counter)
    open_ms: int = 0
    wide_ms: float = 0.0
    last_ms: int = 0
    followers: int = 0
    spans: Counter[int] = field(default_factory=Counter)
    idempotent: int = 0
    transactional: int = 0
    markers: int = 0
    append_times: int = 0
    older: int = 0
    by_partition: Counter[int] = field(default_factory=Counter)
    producers: dict[int, ProducerTally] = field(default_factory=dict)
    opened: list[Opened] = field(default_factory=list)

    def add(self, partition: int, batch: BatchHeader) -> None:
        """Count one batch of a partition."""
        if batch.is_control:
            self.markers += 1
            ends = self.producers.setdefault(batch.producer_id, ProducerTally()).ends_ms
            if len(ends) < MARKERS_MAX:
                ends.append(batch.max_ms)
            return
        if not batch.records:  # compaction keeps the header of a producer's last batch
            return
        self.batches += 1
        self.records += batch.records
        self.offsets += batch.offsets
        self.size_bytes += batch.size_bytes
        self.by_partition[partition] += batch.size_bytes
        self.codecs[batch.codec] += 1
        self.batch_records[batch.records] += 1
        self.batch_sizes[batch.size_bytes] += 1
        self.transactional += batch.is_transactional
        self.append_times += batch.has_append_time
        self.last_ms = max(self.last_ms, batch.max_ms)
        if not batch.has_append_time and batch.max_ms >= batch.first_ms:
            span_ms = batch.max_ms - batch.first_ms
            self.open_ms += span_ms
            self.followers += batch.records - 1
            if batch.records > 1:
                self.spans[span_ms] += 1
                self.wide_ms += span_ms * batch.records / (batch.records - 1)
        if batch.producer_id >= 0:
            self.idempotent += 1
            self._add_producer(batch)
            if not batch.has_append_time and len(self.opened) < OPENED_MAX:
                self.opened.append(Opened(batch.producer_id, partition, batch.first_ms))

    def _add_producer(self, batch: BatchHeader) -> None:
        own = self.producers.setdefault(batch.producer_id, ProducerTally())
        own.batches += 1
        own.records += batch.records
        if not batch.has_append_time:
            own.open_ms += max(0, batch.max_ms - batch.first_ms)
            own.first_ms = min(own.first_ms, batch.first_ms)
        own.last_ms = max(own.last_ms, batch.max_ms)

    # --- what follows -----------------------------------------------------------

    @property
    def record_bytes(self) -> float:
        """Mean size of a record in the log, without the headers of batches [B]."""
        return (self.size_bytes - self.batches * BATCH_HEADER_BYTES) / self.records

    @property
    def records_per_batch(self) -> float:
        """Mean number of records of a batch."""
        return self.records / self.batches

    @property
    def codec(self) -> str:
        """The codec of most batches."""
        return self.codecs.most_common(1)[0][0] if self.codecs else "none"

    @property
    def writers(self) -> dict[int, ProducerTally]:
        """Producer id → its tally, of the ids that wrote records."""
        return {number: each for number, each in self.producers.items() if each.batches}


def quantile_of(counts: Counter[int], share: float) -> int:
    """The value that `share` of what is counted does not exceed; 0 without any.

    Args:
        counts: value → how often it was seen.
        share: from 0 to 1 [ratio].
    """
    left = share * sum(counts.values())
    for value, number in sorted(counts.items()):
        left -= number
        if left <= 0:
            return value
    return max(counts, default=0)
