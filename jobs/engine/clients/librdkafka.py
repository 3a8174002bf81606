"""The client librdkafka, used through the Python package confluent-kafka."""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from kafka.errors import for_code

from jobs.engine.batches.pool import pool_of
from jobs.engine.clients.library import (
    NEVER_SENT,
    LibraryError,
    Read,
    ReadError,
    Record,
    Settled,
    kafka_options,
)
from jobs.engine.consuming.group_member import HEARTBEAT_MS, SESSION_MS, number_of
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.clients import ProducerOptions, ProducerPattern

PACKAGE = "confluent-kafka"

BATCH_MAX_BYTES = 2_147_483_647
"""Upper bound of librdkafka's `batch.size` [B]."""

REQUEST_MAX_BYTES = 1_000_000_000
"""Upper bound of librdkafka's `message.max.bytes` [B]."""

LEVEL_MAX = 12
"""Upper bound of librdkafka's `compression.level`."""

_TOKEN_S = 3600.0
"""Assumed lifetime of a token whose expiry is unknown [s]."""

_MESSAGES = 10_000
_ASK_S = 5.0
_FRAME_SPARE_BYTES = 512

_NAMES = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_ca_pem": "ssl.ca.pem",
    "ssl_certificate_pem": "ssl.certificate.pem",
    "ssl_key_pem": "ssl.key.pem",
}
"""Connection option of kafka-python → librdkafka's name of the option."""

_RENAMED = (
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "fetch.max.wait.ms",
    "max.partition.fetch.bytes",
    "max.request.size",
    "partitioner.ignore.keys",
    "receive.buffer.bytes",
    "send.buffer.bytes",
)
"""Properties of Kafka that librdkafka does not receive under Kafka's name. Either librdkafka has
another name for the property, or the engine's event loop implements the property."""

# By default librdkafka logs to standard error, which belongs to Spark.
_LOG = logging.getLogger("kafka-redline.librdkafka")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False


def confluent_kafka() -> ModuleType:
    """Import confluent-kafka, which an executor may lack.

    Raises:
        LibraryError: the package is not installed on this host.
    """
    try:
        import confluent_kafka as package
    except ImportError as error:
        raise LibraryError(
            f"the package {PACKAGE} of the client librdkafka is not installed on "
            f"{socket.gethostname()}; expected the package on every executor; run pip install "
            f"{PACKAGE} there, or set producer.client and consumers.client to wire"
        ) from error
    return package


def connection_options(options: Mapping[str, object]) -> dict[str, object]:
    """The connection options of a plan, under the names that librdkafka uses.

    Raises:
        LibraryError: librdkafka lacks one of the options.
    """
    found: dict[str, object] = {}
    for name, value in options.items():
        if value is None or name == "client_id":
            continue
        if name == "ssl_check_hostname":
            found["ssl.endpoint.identification.algorithm"] = "https" if value else "none"
        elif name == "sasl_oauth_token_provider":
            found["oauth_cb"] = functools.partial(_token, value)
        elif name in _NAMES:
            found[_NAMES[name]] = value
        else:
            raise LibraryError(
                f"the connection option {name} is set, and librdkafka does not support it; "
                f"expected one of {', '.join(_NAMES)}; set producer.client to wire or kafka-python"
            )
    return found


def _token(provider: Any, _config: str) -> tuple[object, ...]:
    """A token and its expiry [s since the epoch]; librdkafka requests the next token before the
    expiry.

    If the provider has SASL extensions, the result also has a principal name and the extensions.
    The principal name has no effect in librdkafka.
    """
    found = provider.token(), provider.good_until_s or time.time() + _TOKEN_S
    extensions = provider.extensions()
    return (*found, "", extensions) if extensions else found


def producer_options(pattern: ProducerPattern, full_records: int) -> dict[str, object]:
    """The configuration with which librdkafka makes the same batches and requests as the engine's
    own client.

    The library counts 36 bytes of framing per record, although Kafka's format needs 7 to 10. The
    library also does not estimate the compressed size. With the workload's `batch.size`, the
    batches of librdkafka would be smaller than the engine's batches. The configuration therefore
    limits the number of records in a batch, and not the size of the batch.

    Args:
        full_records: number of records of the largest full batch.
    """
    options = pattern.options
    return kafka_options(options, without=_RENAMED) | {
        "compression.level": _compression_level(options),
        "batch.num.messages": min(full_records, 1_000_000),
        "batch.size": BATCH_MAX_BYTES,
        "message.max.bytes": REQUEST_MAX_BYTES,
        "queue.buffering.max.messages": 0,  # the loop bounds the queue by its bytes
        "queue.buffering.max.kbytes": min(2_147_483_647, options.buffer_memory // 512 + 1_024),
        "retry.backoff.ms": max(1, int(options.retry_backoff_ms)),
        "retry.backoff.max.ms": max(1, int(options.retry_backoff_max_ms)),
        "socket.send.buffer.bytes": max(0, options.send_buffer_bytes),
        "socket.receive.buffer.bytes": max(0, options.receive_buffer_bytes),
        "socket.nagle.disable": True,
        "socket.keepalive.enable": True,
    }


def _compression_level(options: ProducerOptions) -> int:
    """The compression level for librdkafka; -1 for the codec's default, which is Kafka's default.

    Raises:
        LibraryError: librdkafka does not support this level.
    """
    level = options.compression_level
    if (
        level is None
        or level == replace(ProducerOptions(), compression=options.compression).compression_level
    ):
        return -1
    if not 0 <= level <= LEVEL_MAX:
        raise LibraryError(
            f"compression_{options.compression}_level is {level}; expected 0 to {LEVEL_MAX} for "
            "the client librdkafka; change the level, or choose the client wire"
        )
    return level


def consumer_options(plan: TrialPlan, group: int, member: int) -> dict[str, object]:
    """The configuration with which librdkafka fetches, joins its group and commits as the engine's
    own consumers do.
    """
    options = plan.pattern.consumers
    return kafka_options(options, without=_RENAMED) | {
        **connection_options(plan.client_options),
        "bootstrap.servers": ",".join(plan.servers),
        "client.id": plan.client_id(plan.member_name(group, member)),
        "group.id": plan.group_id(group),
        "partition.assignment.strategy": "roundrobin" if plan.shares_topics else "range",
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "session.timeout.ms": SESSION_MS,
        "enable.auto.commit": True,
        "auto.offset.reset": "earliest",
        "fetch.min.bytes": max(1, options.fetch_min_bytes),
        "fetch.wait.max.ms": options.fetch_max_wait_ms,
        "fetch.message.max.bytes": options.max_partition_fetch_bytes,
        "receive.message.max.bytes": options.fetch_max_bytes + _FRAME_SPARE_BYTES,
        "socket.send.buffer.bytes": max(0, options.send_buffer_bytes),
        "socket.receive.buffer.bytes": max(0, options.receive_buffer_bytes),
        "enable.partition.eof": False,
    }


class _Throttled:
    """A librdkafka instance, with the sum of the throttle times that brokers report [ms]."""

    throttle_ms = 0

    def _note_throttle(self, event: Any) -> None:
        self.throttle_ms += round(event.throttle_time * 1000)


class RdKafkaProducer(_Throttled):
    """One librdkafka instance as a `LibraryProducer`."""

    def __init__(self, plan: TrialPlan, index: int) -> None:
        self._kafka = kafka = confluent_kafka()
        self._topic, numbers = plan.partitions.topic_of(index)
        self._first = numbers.start
        self._trouble = ""
        full = max(section.full_records for section in pool_of(plan.pattern.producer).sections)
        options: dict[str, Any] = {
            **connection_options(plan.client_options),
            **producer_options(plan.pattern.producer, full),
            "bootstrap.servers": ",".join(plan.servers),
            "client.id": plan.client_id(plan.producer_name(index)),
            "error_cb": self._note_trouble,
            "throttle_cb": self._note_throttle,
        }
        try:
            self._producer = kafka.Producer(options, logger=_LOG)
        except kafka.KafkaException as error:
            raise LibraryError(f"librdkafka refuses its configuration: {_words(error)}") from error
        try:
            self._producer.list_topics(self._topic, plan.connect_timeout_s)
        except kafka.KafkaException as error:
            self._producer.poll(0)
            raise LibraryError(
                f"librdkafka could not connect: {self._trouble or _words(error)}"
            ) from error

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Offer a record; see `LibraryProducer.offer`."""

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
        """Run the callbacks of settled records."""
        self._producer.poll(0)

    def end(self) -> None:
        """Drop the queued records; see `LibraryProducer.end`."""
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)

    def close(self) -> None:
        """Drop all records; see `LibraryProducer.close`."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _name(self, error: Any) -> str:
        """The name that kafka-python has for this error."""
        code = int(error.code())
        if code == self._kafka.KafkaError._PURGE_QUEUE:
            return NEVER_SENT
        return for_code(code).__name__ if code > 0 else str(error.name())

    def _note_trouble(self, error: Any) -> None:
        self._trouble = str(error.str())


class RdKafkaConsumer(_Throttled):
    """One librdkafka instance as a `LibraryConsumer`."""

    def __init__(self, plan: TrialPlan, group: int, member: int) -> None:
        self._kafka = confluent_kafka()
        self._plan = plan
        self._options = consumer_options(plan, group, member)
        self._consumer: Any = None
        self._assigned: dict[int, int] | None = None
        self._owned: list[Any] = []
        self._is_begun = False

    def open(self) -> None:
        """Subscribe; see `LibraryConsumer.open`."""
        options = self._options | {"throttle_cb": self._note_throttle}
        self._consumer = self._kafka.Consumer(options, logger=_LOG)
        self._consumer.subscribe(list(self._plan.topics), on_assign=self._assign)

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        """Assign each partition at its committed offset, or else at the group's start offset."""
        self._owned = consumer.committed(partitions, timeout=_ASK_S) if partitions else []
        for each in self._owned:
            if each.offset < 0:
                each.offset = self._start(consumer, each)
        consumer.assign(self._owned)
        if not self._is_begun and self._owned:
            consumer.pause(self._owned)
        self._assigned = {
            number_of(self._plan, each.topic, each.partition): each.offset for each in self._owned
        }

    def _start(self, consumer: Any, each: Any) -> int:
        number = number_of(self._plan, each.topic, each.partition)
        first = 0
        if self._plan.pattern.consumers.start != "latest":
            first, _last = consumer.get_watermark_offsets(each, timeout=_ASK_S)
        return self._plan.start_offset(number, int(first))

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """Take the records that have arrived; see `LibraryConsumer.poll`."""
        try:
            messages = self._consumer.consume(_MESSAGES, timeout_s)
        except self._kafka.KafkaException as error:
            raise ReadError(str(error)) from error
        for message in messages:
            trouble = message.error()
            if trouble is not None:
                if trouble.fatal() or trouble.code() == self._kafka.KafkaError._AUTHENTICATION:
                    raise ReadError(trouble.str())
                continue
            _kind, created_ms = message.timestamp()
            number = number_of(self._plan, message.topic(), message.partition())
            yield number, message.offset(), len(message), created_ms

    def take_assignment(self) -> Mapping[int, int] | None:
        """Take a new assignment; see `LibraryConsumer.take_assignment`."""
        assigned, self._assigned = self._assigned, None
        return assigned

    def begin(self) -> None:
        """Start reading; see `LibraryConsumer.begin`."""
        self._is_begun = True
        if self._owned:
            self._consumer.resume(self._owned)

    def high_watermark(self, partition: int) -> int | None:
        """End offset of a partition; see `LibraryConsumer.high_watermark`."""
        each = self._kafka.TopicPartition(*self._plan.partitions.of(partition))
        try:
            _first, end = self._consumer.get_watermark_offsets(each, cached=True)
        except self._kafka.KafkaException:
            return None  # unknown before the first fetch response
        return None if end == self._kafka.OFFSET_INVALID or end < 0 else int(end)

    def close(self) -> None:
        """Commit, and leave the group; see `LibraryConsumer.close`."""
        if self._consumer is not None:
            self._consumer.close()


def _words(error: Exception) -> str:
    return str(error.args[0].str()) if error.args else str(error)
