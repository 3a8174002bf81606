"""KafkaProducer and KafkaConsumer of kafka-python as clients."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
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

_MESSAGES = 10_000
_COMMIT_TIMEOUT_MS = 5_000

_IMPLEMENTED_BY_LOOP = ("buffer.memory", "partitioner.ignore.keys")
"""Kafka's properties that kafka-python does not need, because the engine's event loop limits the
buffer and chooses the partitions."""


def _python_options(client: Any, options: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """The options that a client of kafka-python accepts, with kafka-python's names, which have
    underscores instead of dots.

    Args:
        without: properties to leave out; see `kafka_options`.
    """
    known = {name.replace("_", ".") for name in client.DEFAULT_CONFIG}
    given = kafka_options(options, without=without, known=known)
    found = {name.replace(".", "_"): value for name, value in given.items()}
    for name in ("send_buffer_bytes", "receive_buffer_bytes"):
        found[name] = found[name] if found[name] > 0 else None  # None leaves the size to the kernel
    return found


def producer_options(pattern: ProducerPattern) -> dict[str, object]:
    """The configuration with which KafkaProducer makes the same batches and requests as the
    engine's own client.

    Raises:
        LibraryError: an option is not at its default, and kafka-python does not have the option.
    """
    options = pattern.options
    at_least_ms = int(options.linger_ms) + options.request_timeout_ms + 1
    largest = pattern.payload.distribution.largest(pattern.message_bytes)
    return _python_options(KafkaProducer, options, _IMPLEMENTED_BY_LOOP) | {
        "acks": options.acks_code,
        "max_request_size": max(options.max_request_size, largest + RECORD_ROOM_BYTES),
        "delivery_timeout_ms": max(options.delivery_timeout_ms, at_least_ms),
        "compression_type": None if options.compression == "none" else options.compression,
        # A late metadata request must not create a deleted topic again.
        "allow_auto_create_topics": False,
    }


class _Throttled:
    """A client of kafka-python, with the sum of the throttle times that brokers report to it.

    The library itself does not expose throttle times. The metrics of kafka-python contain only the
    longest throttle time within a minute, and they cost CPU time for each request. To count
    throttle times, this class wraps the private method that handles responses. The version of
    kafka-python is pinned.

    Attributes:
        throttle_ms: sum of the throttle times of all responses [ms].
    """

    throttle_ms = 0

    def _count_throttling(self, taker: Any, method: str) -> None:
        """Count the throttle times of responses.

        Args:
            taker: the object whose method handles responses.
            method: name of the method of `taker` that handles responses; its last argument is the
                response.
        """
        take = getattr(taker, method)

        def count(*arguments: Any) -> Any:
            self.throttle_ms += getattr(arguments[-1], "throttle_time_ms", 0) or 0
            return take(*arguments)

        setattr(taker, method, count)


class KafkaPythonProducer(_Throttled):
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
            self._count_throttling(self._producer._sender, "_handle_produce_response")
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

    def serve(self) -> None:
        """Do nothing; the library's own thread runs the callbacks."""

    def end(self) -> None:
        """Do nothing; kafka-python sends all queued records, and cannot drop them."""

    def close(self) -> None:
        """Close without waiting."""
        self._producer.close(timeout=0)


class KafkaPythonConsumer(_Throttled, ConsumerRebalanceListener):  # type: ignore[misc]  # no types
    """One KafkaConsumer as a `LibraryConsumer`, which is also the listener for its rebalances."""

    def __init__(self, plan: TrialPlan, group: int, member: int) -> None:
        self._plan = plan
        self._group, self._member = group, member
        self._has_assignment = False
        self._is_begun = False
        self._consumer: Any = None

    def open(self) -> None:
        """Subscribe; see `LibraryConsumer.open`."""
        options = self._plan.pattern.consumers
        given = _python_options(KafkaConsumer, options) | {
            "fetch_min_bytes": max(1, options.fetch_min_bytes),
            "max_poll_records": _MESSAGES,
            **group_options(self._plan, self._group, self._member),
        }
        self._consumer = KafkaConsumer(**given)
        self._count_throttling(self._consumer._fetcher, "_handle_fetch_response")
        self._consumer.subscribe(list(self._plan.topics), listener=self)

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing; the library reads and rebalances on the same thread."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Pause fetching until the start offsets are known. The assignment counts as new, even if
        it equals the previous assignment.
        """
        self._consumer.pause(*assigned)
        self._has_assignment = True

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """Take the records that have arrived; see `LibraryConsumer.poll`."""
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        resume_join(self._consumer._coordinator)
        for each, records in polled.items():
            partition = number_of(self._plan, *each)
            for record in records:
                size = max(0, record.serialized_value_size) + max(0, record.serialized_key_size)
                yield partition, record.offset, size, record.timestamp

    def take_assignment(self) -> Mapping[int, int] | None:
        """Take a new assignment; see `LibraryConsumer.take_assignment`."""
        if not self._has_assignment:
            return None
        self._has_assignment = False
        owned = sorted(self._consumer.assignment())
        offsets = begin_offsets(self._consumer, self._plan, owned)
        for each in owned:
            self._consumer.seek(each, offsets[number_of(self._plan, *each)])
        if self._is_begun:
            self._consumer.resume(*owned)
        return offsets

    def begin(self) -> None:
        """Start reading; see `LibraryConsumer.begin`."""
        self._is_begun = True
        if not self._has_assignment:
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
