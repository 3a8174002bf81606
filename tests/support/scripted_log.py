"""A broker's log of batches, which appends batches with producer ids in sequence and only once.

It behaves like Kafka's ProducerStateManager, as far as an idempotent producer can see.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kafka.record.default_records import DefaultRecordBatch

OUT_OF_ORDER = 45
_REMEMBERED = 5


@dataclass
class Log:
    """The partitions of all brokers of a cluster.

    Attributes:
        appended: (partition, create time of the first record, records) of each batch.
        repeats: number of batches that the log already had and did not append.
    """

    appended: list[tuple[int, int, int]] = field(default_factory=list)
    repeats: int = 0
    _states: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def append(self, partition: int, batch: DefaultRecordBatch) -> int:
        """Append a batch, and return the error code."""
        with self._lock:
            if batch.producer_id >= 0:
                code = self._check(partition, batch)
                if code is not None:
                    return code
            self.appended.append((partition, batch.first_timestamp, batch.records_count))
            return 0

    def forget_producers(self) -> None:
        with self._lock:
            self._states.clear()

    def _check(self, partition: int, batch: DefaultRecordBatch) -> int | None:
        """The error code of a batch that is not appended; None for a batch to append."""
        key = (partition, batch.producer_id)
        epoch, last = self._states.get(key, (batch.producer_epoch, []))
        if batch.producer_epoch > epoch:
            epoch, last = batch.producer_epoch, []
        span = (batch.base_sequence, batch.records_count)
        if span in last:
            self.repeats += 1
            return 0
        expected = sum(last[-1]) if last else 0
        if batch.producer_epoch < epoch or batch.base_sequence != expected:
            return OUT_OF_ORDER
        self._states[key] = (epoch, [*last, span][-_REMEMBERED:])
        return None

    @property
    def records(self) -> int:
        return sum(count for _, _, count in self.appended)

    def records_of(self, partition: int) -> int:
        return sum(count for which, _, count in self.appended if which == partition)

    def times_of(self, partition: int) -> list[int]:
        """Create times of the batches of a partition, in the log's order [ms]."""
        return [time_ms for which, time_ms, _ in self.appended if which == partition]
