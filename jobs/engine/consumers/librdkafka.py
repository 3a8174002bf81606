"""librdkafka, through the package confluent-kafka, as a consumer client."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from jobs.engine.clients.librdkafka import connection_options
from jobs.engine.consumers.client import group_id_of, member_id_of, servers_of
from jobs.engine.consumers.library import Read, ReadError
from jobs.engine.consumers.membership import HEARTBEAT_MS, SESSION_MS
from jobs.engine.pattern import TrialPlan

_MESSAGES = 10_000
_ASK_S = 5.0
_FRAME_SPARE_BYTES = 512

# Its log lines would go to standard error, which belongs to Spark.
_LOG = logging.getLogger("kafka-redline.librdkafka.consumer")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False


def pattern_options(plan: TrialPlan, group: int, member: int) -> dict[str, object]:
    """The configuration of librdkafka for the same fetches, group and commits."""
    pattern = plan.consumers
    assert pattern is not None
    return {
        **connection_options(plan.client_options),
        "bootstrap.servers": ",".join(servers_of(plan)),
        "client.id": member_id_of(plan, group, member),
        "group.id": group_id_of(plan, group),
        "partition.assignment.strategy": "range",
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "session.timeout.ms": SESSION_MS,
        "enable.auto.commit": True,
        "auto.commit.interval.ms": pattern.auto_commit_interval_ms,
        "auto.offset.reset": "earliest",
        "fetch.min.bytes": max(1, pattern.fetch_min_bytes),
        "fetch.wait.max.ms": pattern.fetch_max_wait_ms,
        "fetch.max.bytes": pattern.fetch_max_bytes,
        "fetch.message.max.bytes": pattern.max_partition_fetch_bytes,
        "receive.message.max.bytes": pattern.fetch_max_bytes + _FRAME_SPARE_BYTES,
        "socket.receive.buffer.bytes": max(0, pattern.receive_buffer_bytes),
        "check.crcs": pattern.check_crcs,
        "enable.partition.eof": False,
    }


class RdKafkaConsumer:
    """One librdkafka instance behind `library.Library`."""

    def __init__(self, plan: TrialPlan, group: int, member: int) -> None:
        self._plan = plan
        self._options = pattern_options(plan, group, member)
        self._consumer: Any = None
        self._assigned: dict[int, int] | None = None
        self._owned: list[TopicPartition] = []
        self._is_begun = False

    def open(self) -> None:
        """Subscribe."""
        self._consumer = Consumer(self._options, logger=_LOG)
        self._consumer.subscribe(list(self._plan.topics), on_assign=self._assign)

    def _assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Called while polling: begin where the group left off, or where it starts."""
        self._owned = consumer.committed(partitions, timeout=_ASK_S) if partitions else []
        for each in self._owned:
            if each.offset < 0:
                each.offset = self._start(consumer, each)
        consumer.assign(self._owned)
        if not self._is_begun and self._owned:
            consumer.pause(self._owned)
        self._assigned = {
            self._number(each.topic, each.partition): each.offset for each in self._owned
        }

    def _start(self, consumer: Any, each: TopicPartition) -> int:
        number = self._number(each.topic, each.partition)
        pattern, end = self._plan.consumers, self._plan.end_offsets[number]
        assert pattern is not None
        if pattern.start == "latest":
            return end
        first, _last = consumer.get_watermark_offsets(each, timeout=_ASK_S)
        behind = -(-pattern.backlog_records // len(self._plan.leaders))
        return int(first) if pattern.start == "earliest" else max(int(first), end - behind)

    def _number(self, topic: str, partition: int) -> int:
        number = self._plan.partitions.number(topic, partition)
        assert number is not None, "only topics of the trial are subscribed to"
        return number

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """See `Library.poll`."""
        try:
            messages = self._consumer.consume(_MESSAGES, timeout_s)
        except KafkaException as error:
            raise ReadError(str(error)) from error
        for message in messages:
            trouble = message.error()
            if trouble is not None:
                if trouble.fatal() or trouble.code() == KafkaError._AUTHENTICATION:
                    raise ReadError(trouble.str())
                continue
            _kind, created_ms = message.timestamp()
            number = self._number(message.topic(), message.partition())
            yield number, message.offset(), len(message), created_ms

    def take_assignment(self) -> Mapping[int, int] | None:
        """See `Library.take_assignment`."""
        assigned, self._assigned = self._assigned, None
        return assigned

    def begin(self) -> None:
        """See `Library.begin`."""
        self._is_begun = True
        if self._owned:
            self._consumer.resume(self._owned)

    def high_watermark(self, partition: int) -> int | None:
        """See `Library.high_watermark`."""
        each = TopicPartition(*self._plan.partitions.of(partition))
        try:
            _first, end = self._consumer.get_watermark_offsets(each, cached=True)
        except KafkaException:
            return None  # not known before the first answer
        return None if end == OFFSET_INVALID or end < 0 else int(end)

    def close(self) -> None:
        """See `Library.close`."""
        if self._consumer is not None:
            self._consumer.close()
