"""kafka-python's KafkaProducer as a producer client."""

from __future__ import annotations

import functools

from kafka import KafkaProducer
from kafka import errors as kafka_errors

from jobs.engine.clients.library import LibraryError, Record, Settled
from jobs.engine.consumers.client import servers_of
from jobs.engine.pattern import ProducerPattern, TrialPlan
from jobs.engine.wire import client_id_of

RECORD_ROOM_BYTES = 128
"""More than any record's framing [B]."""

DELIVERY_TIMEOUT_SPARE_MS = 1


def pattern_options(pattern: ProducerPattern) -> dict[str, object]:
    """KafkaProducer's configuration for the same batches and the same requests."""
    at_least_ms = int(pattern.linger_ms) + pattern.request_timeout_ms + DELIVERY_TIMEOUT_SPARE_MS
    sockets = (pattern.send_buffer_bytes, pattern.receive_buffer_bytes)
    send_bytes, receive_bytes = (size if size > 0 else None for size in sockets)
    return {
        "acks": pattern.acks,
        "linger_ms": pattern.linger_ms,
        "batch_size": pattern.batch_size,
        "max_in_flight_requests_per_connection": pattern.max_in_flight,
        "max_request_size": max(
            pattern.max_request_size,
            pattern.payload.sizes.largest(pattern.message_bytes) + RECORD_ROOM_BYTES,
        ),
        "request_timeout_ms": pattern.request_timeout_ms,
        "delivery_timeout_ms": max(pattern.delivery_timeout_ms, at_least_ms),
        "retries": pattern.retries,
        "retry_backoff_ms": pattern.retry_backoff_ms,
        "compression_type": None if pattern.compression == "none" else pattern.compression,
        "enable_idempotence": pattern.enable_idempotence,
        "send_buffer_bytes": send_bytes,
        "receive_buffer_bytes": receive_bytes,
        # A straggler's request for metadata must not bring a deleted topic back.
        "allow_auto_create_topics": False,
    }


class KafkaPythonProducer:
    """One KafkaProducer behind `library.Library`.

    It does not tell how long brokers throttled it: `throttle_ms` stays 0, and the brokers'
    own metrics say it.
    """

    throttle_ms = 0

    def __init__(self, plan: TrialPlan, index: int) -> None:
        self._topic, numbers = plan.partitions.topic_of(index)
        self._first = numbers.start
        timeout_ms = int(plan.connect_timeout_s * 1000)
        try:
            self._producer = KafkaProducer(
                bootstrap_servers=servers_of(plan),
                client_id=client_id_of(plan, index),
                bootstrap_timeout_ms=timeout_ms,
                max_block_ms=timeout_ms,
                metrics_enabled=False,
                **pattern_options(plan.pattern),
                **plan.client_options,
            )
            self._producer.partitions_for(self._topic)
        except kafka_errors.KafkaError as error:
            raise LibraryError(f"kafka-python cannot begin: {error}") from error

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Always takes the record: KafkaProducer has no `buffer.memory`, so the loop bounds it."""
        key, value, headers = record
        number = partition - self._first
        try:
            future = self._producer.send(self._topic, value, key, headers, number, timestamp_ms)
        except kafka_errors.KafkaError as error:
            settled(type(error).__name__)
            return True
        future.add_both(functools.partial(settled_by, future, settled))
        return True

    def serve(self) -> None:
        """Nothing: its thread tells the callbacks by itself."""

    def end(self) -> None:
        """Nothing: what is queued cannot be taken back, and is sent."""

    def close(self) -> None:
        """Close without waiting."""
        self._producer.close(timeout=0)


def settled_by(future: object, settled: Settled, _outcome: object) -> None:
    """Tell the outcome of a future that is done."""
    error = getattr(future, "exception", None)
    settled(None if error is None else type(error).__name__)
