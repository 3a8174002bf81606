"""kafka-python's KafkaConsumer as a consumer client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from jobs.engine.consumers.library import Read
from jobs.engine.consumers.membership import (
    AssignmentCounter,
    begin_offsets,
    group_options,
    number_of,
    topic_partition,
)
from jobs.engine.pattern import TrialPlan

_MESSAGES = 10_000
_COMMIT_TIMEOUT_MS = 5_000


class KafkaPythonConsumer:
    """One KafkaConsumer behind `library.Library`."""

    def __init__(self, plan: TrialPlan, group: int, member: int) -> None:
        self._plan = plan
        self._group, self._member = group, member
        self._counter = AssignmentCounter(self._pause)
        self._taken = 0
        self._is_begun = False
        self._consumer: Any = None

    def open(self) -> None:
        """Subscribe."""
        pattern = self._plan.consumers
        assert pattern is not None
        self._consumer = KafkaConsumer(
            **group_options(self._plan, self._group, self._member),
            fetch_min_bytes=max(1, pattern.fetch_min_bytes),
            fetch_max_wait_ms=pattern.fetch_max_wait_ms,
            fetch_max_bytes=pattern.fetch_max_bytes,
            max_partition_fetch_bytes=pattern.max_partition_fetch_bytes,
            receive_buffer_bytes=(
                pattern.receive_buffer_bytes if pattern.receive_buffer_bytes > 0 else None
            ),
            check_crcs=pattern.check_crcs,
            max_poll_records=_MESSAGES,
        )
        self._consumer.subscribe(list(self._plan.topics), listener=self._counter)

    def _pause(self, assigned: set[TopicPartition]) -> None:
        """Nothing is fetched before it is known where to begin; called while joining."""
        self._consumer.pause(*assigned)

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """See `Library.poll`."""
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        for each, records in polled.items():
            partition = number_of(self._plan, each)
            for record in records:
                size = max(0, record.serialized_value_size) + max(0, record.serialized_key_size)
                yield partition, record.offset, size, record.timestamp

    def take_assignment(self) -> Mapping[int, int] | None:
        """See `Library.take_assignment`."""
        if self._counter.assignments == self._taken:
            return None
        self._taken = self._counter.assignments
        owned = sorted(self._consumer.assignment())
        offsets = begin_offsets(self._consumer, self._plan, owned)
        for each in owned:
            self._consumer.seek(each, offsets[number_of(self._plan, each)])
        if self._is_begun:
            self._consumer.resume(*owned)
        return offsets

    def begin(self) -> None:
        """See `Library.begin`."""
        self._is_begun = True
        if self._counter.assignments == self._taken:
            self._consumer.resume(*self._consumer.assignment())

    def high_watermark(self, partition: int) -> int | None:
        """See `Library.high_watermark`."""
        each = topic_partition(self._plan, partition)
        if each not in self._consumer.assignment():
            return None
        end: int | None = self._consumer.highwater(each)
        return end

    def close(self) -> None:
        """See `Library.close`."""
        if self._consumer is not None:
            self._consumer.close(timeout_ms=_COMMIT_TIMEOUT_MS)
