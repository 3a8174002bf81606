"""KafkaProducer and KafkaConsumer of kafka-python as clients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

from jobs.engine.clients.library import LibraryError, Read, Record, Settled, kafka_options
from jobs.engine.consuming.group_member import (
    begin_offsets,
    group_options,
    number_of,
    resume_join,
    topic_partition,
)
from jobs.engine.network.links import library_options
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.clients import ProducerPattern

RECORD_ROOM_BYTES = 128
"""Upper bound for the size of one record without its key and value [B]."""

DELIVERY_TIMEOUT_SPARE_MS = 1

_MESSAGES = 10_000
_COMMIT_TIMEOUT_MS = 5_000

_IMPLEMENTED_BY_LOOP = ("buffer.memory", "partitioner.ignore.keys")
"""Kafka's properties that kafka-python does not need, because the engine's event loop limits the
buffer and chooses the partitions."""


def _in_kafka(names: Collection[str]) -> set[str]:
    """Kafka's names of properties, made from kafka-python's names by changing underscores to
    dots.
    """
    return {name.replace("_", ".") for name in names}


def _in_python(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in properties.items()}


def _kernels_or(size: int) -> int | None:
    """A socket buffer's size for kafka-python; None leaves the size to the kernel."""
    return size if size > 0 else None


def producer_options(pattern: ProducerPattern) -> dict[str, object]:
    """The configuration with which KafkaProducer makes the same batches and requests as the
    engine's own client.

    Raises:
        LibraryError: an option is not at its default, and kafka-python does not have the option.
    """
    options = pattern.options
    known = _in_kafka(KafkaProducer.DEFAULT_CONFIG)
    at_least_ms = int(options.linger_ms) + options.request_timeout_ms + DELIVERY_TIMEOUT_SPARE_MS
    largest = pattern.payload.distribution.largest(pattern.message_bytes)
    return _in_python(kafka_options(options, without=_IMPLEMENTED_BY_LOOP, known=known)) | {
        "acks": options.acks_code,
        "max_request_size": max(options.max_request_size, largest + RECORD_ROOM_BYTES),
        "delivery_timeout_ms": max(options.delivery_timeout_ms, at_least_ms),
        "compression_type": None if options.compression == "none" else options.compression,
        "send_buffer_bytes": _kernels_or(options.send_buffer_bytes),
        "receive_buffer_bytes": _kernels_or(options.receive_buffer_bytes),
        # A late metadata request must not create a deleted topic again.
        "allow_auto_create_topics": False,
    }


class ThrottleTimes:
    """Sum of the throttle times that brokers report to a kafka-python client.

    The library itself does not expose throttle times. The metrics of kafka-python contain only the
    longest throttle time within a minute, and they cost CPU time for each request. To count
    throttle times, this class wraps the private method that handles responses. The version of
    kafka-python is pinned.

    Args:
        taker: the object whose method handles responses.
        method: name of this method; the last argument of the method is the response.

    Attributes:
        total_ms: sum of the throttle times of all responses [ms].
    """

    def __init__(self, taker: Any, method: str) -> None:
        self.total_ms = 0
        self._take = getattr(taker, method)
        setattr(taker, method, self._count)

    def _count(self, *arguments: Any) -> Any:
        self.total_ms += getattr(arguments[-1], "throttle_time_ms", 0) or 0
        return self._take(*arguments)


class KafkaPythonProducer:
    """One KafkaProducer as a `LibraryProducer`."""

    def __init__(self, plan: TrialPlan, index: int) -> None:
        self._topic, numbers = plan.partitions.topic_of(index)
        self._first = numbers.start
        timeout_ms = int(plan.connect_timeout_s * 1000)
        try:
            self._producer = KafkaProducer(
                bootstrap_servers=plan.servers,
                bootstrap_timeout_ms=timeout_ms,
                max_block_ms=timeout_ms,
                metrics_enabled=False,
                **producer_options(plan.pattern.producer),
                **library_options(plan.client_options, plan.producer_name(index)),
            )
            self._throttle = ThrottleTimes(self._producer._sender, "_handle_produce_response")
            self._producer.partitions_for(self._topic)
        except kafka_errors.KafkaError as error:
            raise LibraryError(f"kafka-python cannot start its producer: {error}") from error

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Offer a record; the result is always True, because the event loop limits the buffer's
        size.
        """
        key, value, headers = record
        number = partition - self._first
        try:
            future = self._producer.send(self._topic, value, key, headers, number, timestamp_ms)
        except kafka_errors.KafkaError as error:
            settled(type(error).__name__)
            return True

        def done(_outcome: object) -> None:
            error = future.exception
            settled(None if error is None else type(error).__name__)

        future.add_both(done)
        return True

    @property
    def throttle_ms(self) -> int:
        """Sum of the brokers' throttle times [ms]; see `LibraryProducer.throttle_ms`."""
        return self._throttle.total_ms

    def serve(self) -> None:
        """Do nothing; the library's own thread runs the callbacks."""

    def end(self) -> None:
        """Do nothing; kafka-python sends all queued records, and cannot drop them."""

    def close(self) -> None:
        """Close without waiting."""
        self._producer.close(timeout=0)


class AssignmentCounter(ConsumerRebalanceListener):  # type: ignore[misc] # it has no types
    """Rebalance listener that counts assignments. A new assignment is noticed even if it equals the
    previous assignment.

    Args:
        on_assigned: called with the assigned partitions, on kafka-python's thread.
    """

    def __init__(self, on_assigned: Callable[[set[TopicPartition]], None]) -> None:
        self.assignments = 0
        self._on_assigned = on_assigned

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing; the library reads and rebalances on the same thread."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Count the assignment."""
        self._on_assigned(assigned)
        self.assignments += 1


class KafkaPythonConsumer:
    """One KafkaConsumer as a `LibraryConsumer`."""

    def __init__(self, plan: TrialPlan, group: int, member: int) -> None:
        self._plan = plan
        self._group, self._member = group, member
        self._counter = AssignmentCounter(self._pause)
        self._taken = 0
        self._is_begun = False
        self._consumer: Any = None
        self._throttle: ThrottleTimes | None = None

    def open(self) -> None:
        """Subscribe; see `LibraryConsumer.open`."""
        options = self._plan.pattern.consumers
        given = _in_python(kafka_options(options, known=_in_kafka(KafkaConsumer.DEFAULT_CONFIG)))
        given |= {
            "fetch_min_bytes": max(1, options.fetch_min_bytes),
            "send_buffer_bytes": _kernels_or(options.send_buffer_bytes),
            "receive_buffer_bytes": _kernels_or(options.receive_buffer_bytes),
            "max_poll_records": _MESSAGES,
            **group_options(self._plan, self._group, self._member),
        }
        self._consumer = KafkaConsumer(**given)
        self._throttle = ThrottleTimes(self._consumer._fetcher, "_handle_fetch_response")
        self._consumer.subscribe(list(self._plan.topics), listener=self._counter)

    def _pause(self, assigned: set[TopicPartition]) -> None:
        """Pause fetching until the start offsets are known; called during a rebalance."""
        self._consumer.pause(*assigned)

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """Take the records that have arrived; see `LibraryConsumer.poll`."""
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        resume_join(self._consumer._coordinator)
        for each, records in polled.items():
            partition = number_of(self._plan, each)
            for record in records:
                size = max(0, record.serialized_value_size) + max(0, record.serialized_key_size)
                yield partition, record.offset, size, record.timestamp

    def take_assignment(self) -> Mapping[int, int] | None:
        """Take a new assignment; see `LibraryConsumer.take_assignment`."""
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

    @property
    def throttle_ms(self) -> int:
        """Sum of the brokers' throttle times [ms]; see `LibraryConsumer.throttle_ms`."""
        return 0 if self._throttle is None else self._throttle.total_ms

    def begin(self) -> None:
        """Start reading; see `LibraryConsumer.begin`."""
        self._is_begun = True
        if self._counter.assignments == self._taken:
            self._consumer.resume(*self._consumer.assignment())

    def high_watermark(self, partition: int) -> int | None:
        """End offset of a partition; see `LibraryConsumer.high_watermark`."""
        each = topic_partition(self._plan, partition)
        if each not in self._consumer.assignment():
            return None
        end: int | None = self._consumer.highwater(each)
        return end

    def close(self) -> None:
        """Commit, and leave the group; see `LibraryConsumer.close`."""
        if self._consumer is not None:
            self._consumer.close(timeout_ms=_COMMIT_TIMEOUT_MS)
