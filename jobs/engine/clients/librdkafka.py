"""librdkafka, through the package confluent-kafka, as a producer client."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kafka.errors import for_code

from jobs.engine.clients.library import (
    NEVER_SENT,
    LibraryError,
    Record,
    Settled,
    missing,
)
from jobs.engine.consumers.client import servers_of
from jobs.engine.pattern import ProducerPattern, TrialPlan
from jobs.engine.pool import pool_of
from jobs.engine.wire import client_id_of

BATCH_MAX_BYTES = 2_147_483_647
"""The most that librdkafka takes for `batch.size` [B]."""

REQUEST_MAX_BYTES = 1_000_000_000
"""The most that librdkafka takes for `message.max.bytes` [B]."""

_NAMES = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
"""Connection options of kafka-python → of librdkafka."""

# Its log lines would go to standard error, which belongs to Spark.
_LOG = logging.getLogger("kafka-redline.librdkafka")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False


def connection_options(options: Mapping[str, object]) -> dict[str, object]:
    """The connection options of a plan as librdkafka calls them.

    Raises:
        LibraryError: there is an option that librdkafka does not have.
    """
    found: dict[str, object] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name == "ssl_check_hostname":
            found["ssl.endpoint.identification.algorithm"] = "https" if value else "none"
        elif name in _NAMES:
            found[_NAMES[name]] = value
        else:
            raise LibraryError(
                f"the producer client librdkafka cannot connect with {name}; expected one of "
                f"{', '.join(_NAMES)}; set producer.client to wire or kafka-python"
            )
    return found


def pattern_options(pattern: ProducerPattern, full_records: int) -> dict[str, object]:
    """The configuration of librdkafka for the same batches and the same requests.

    It reckons 36 bytes of framing for each record where Kafka's format takes 7 to 10, and
    knows nothing of what compression will leave, so with the same `batch.size` its batches
    would hold less. The batch is bounded by its records instead.

    Args:
        full_records: records in the largest full batch.
    """
    return {
        "acks": pattern.acks,
        "linger.ms": pattern.linger_ms,
        "batch.num.messages": min(full_records, 1_000_000),
        "batch.size": BATCH_MAX_BYTES,
        "message.max.bytes": REQUEST_MAX_BYTES,
        "max.in.flight.requests.per.connection": pattern.max_in_flight,
        "queue.buffering.max.messages": 0,  # the loop bounds the queue by its bytes
        "queue.buffering.max.kbytes": min(2_147_483_647, pattern.buffer_memory // 512 + 1_024),
        "request.timeout.ms": pattern.request_timeout_ms,
        "message.timeout.ms": pattern.delivery_timeout_ms,
        "retries": pattern.retries,
        "retry.backoff.ms": max(1, int(pattern.retry_backoff_ms)),
        "retry.backoff.max.ms": max(1, int(pattern.retry_backoff_max_ms)),
        "compression.type": pattern.compression,
        "enable.idempotence": pattern.enable_idempotence,
        "socket.send.buffer.bytes": max(0, pattern.send_buffer_bytes),
        "socket.receive.buffer.bytes": max(0, pattern.receive_buffer_bytes),
        "socket.nagle.disable": True,
        "socket.keepalive.enable": True,
    }


class RdKafkaProducer:
    """One librdkafka instance behind `library.Library`."""

    def __init__(self, plan: TrialPlan, index: int) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise missing("librdkafka", "confluent-kafka") from error
        self._kafka = confluent_kafka
        self._topic, numbers = plan.partitions.topic_of(index)
        self._first = numbers.start
        self._trouble = ""
        self.throttle_ms = 0
        full = max(section.full_records for section in pool_of(plan.pattern).sections)
        options: dict[str, Any] = {
            **connection_options(plan.client_options),
            **pattern_options(plan.pattern, full),
            "bootstrap.servers": ",".join(servers_of(plan)),
            "client.id": client_id_of(plan, index),
            "error_cb": self._note_trouble,
            "throttle_cb": self._note_throttle,
        }
        try:
            self._producer = confluent_kafka.Producer(options, logger=_LOG)
        except confluent_kafka.KafkaException as error:
            raise LibraryError(f"librdkafka refuses its configuration: {_words(error)}") from error
        self._connect(plan.connect_timeout_s)

    def _connect(self, timeout_s: float) -> None:
        try:
            self._producer.list_topics(self._topic, timeout_s)
        except self._kafka.KafkaException as error:
            self._producer.poll(0)
            raise LibraryError(
                f"librdkafka could not connect: {self._trouble or _words(error)}"
            ) from error

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """See `Library.offer`."""

        def delivered(error: Any, _message: Any) -> None:
            settled(None if error is None else self._name(error))

        key, value, headers = record
        try:
            self._producer.produce(
                self._topic,
                value,
                key,
                partition - self._first,
                on_delivery=delivered,
                timestamp=timestamp_ms,
                headers=list(headers) or None,
            )
        except BufferError:
            return False
        except self._kafka.KafkaException as error:
            settled(self._name(error.args[0]))
        return True

    def serve(self) -> None:
        """Run the callbacks of what was answered."""
        self._producer.poll(0)

    def end(self) -> None:
        """Drop what is queued."""
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)

    def close(self) -> None:
        """Drop everything."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _name(self, error: Any) -> str:
        """The error's name as the other clients give it."""
        code = int(error.code())
        if code == self._kafka.KafkaError._PURGE_QUEUE:
            return NEVER_SENT
        return for_code(code).__name__ if code > 0 else str(error.name())

    def _note_trouble(self, error: Any) -> None:
        self._trouble = str(error.str())

    def _note_throttle(self, event: Any) -> None:
        self.throttle_ms += round(event.throttle_time * 1000)


def _words(error: Exception) -> str:
    return str(error.args[0].str()) if error.args else str(error)
