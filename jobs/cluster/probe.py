"""A probe: one record of the run's workload, written to each broker and read back.

Brokers check some rules only when a record arrives: limits on timestamps, the policy of a plugin,
and the minimum number of in-sync replicas. The description of a topic does not show all rules that
brokers apply to records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.producer import ProduceRequest

from jobs.cluster.admin import KafkaAdmin, fetch_request
from jobs.cluster.permissions import PRODUCE_BY_NAME
from jobs.cluster.topic_set import TopicSet
from jobs.engine.batches.pool import BatchPool
from metrics.common.errors import ConfigError
from metrics.traffic.clients import ProducerPattern
from metrics.traffic.pattern import TrafficPattern

WRITE_S, READ_S = 10.0, 3.0
"""Deadlines for the acknowledgement and for the read of the record [s]."""


def require_records_accepted(admin: KafkaAdmin, topics: TopicSet, pattern: TrafficPattern) -> None:
    """Write a record to one partition of each broker, and read the record back. In a mix, write and
    read such records for each part.

    Raises:
        ConfigError: a broker refuses the record, or consumers cannot read it.
    """
    for (_, own), load in zip(topics.numbered, pattern.loads, strict=True):
        record, acks = _record(load.producer), -1 if load.producer.options.acks == "all" else 1
        for leader, (topic, number) in _first_led(own):
            place = f"partition {number} of topic {topic}, led by broker {leader},"
            refusal, offset = _written(admin, leader, topic, number, record, acks)
            if refusal:
                raise ConfigError(
                    f"{place} refused a record of this workload ({refusal}); expected brokers that "
                    "accept the record; change the workload, or the rule that refuses the record"
                )
            if not _is_seen(admin, leader, topic, number, offset):
                raise ConfigError(
                    f"{place} acknowledged a record that no consumer could read within "
                    f"{READ_S:g} s, because the high watermark did not pass it; expected at least "
                    "min.insync.replicas replicas in sync; start the missing brokers, or lower "
                    "workload.topic.config.min.insync.replicas"
                )


def _record(pattern: ProducerPattern) -> bytes:
    """A batch with the first record that a producer with this traffic pattern sends."""
    small = replace(pattern, payload=replace(pattern.payload, pool_bytes=1))
    section = BatchPool(small).sections[0]
    header, body = section.batch_of(section.fitting(1), int(1e3 * time.time()))
    return header + bytes(body)


def _first_led(topics: TopicSet) -> Iterator[tuple[int, tuple[str, int]]]:
    """Each broker that leads a partition, with the first partition that the broker leads."""
    found: dict[int, int] = {}
    for number, leader in enumerate(topics.leaders):
        found.setdefault(leader, number)
    return ((leader, topics.partitions.of(number)) for leader, number in sorted(found.items()))


def _written(
    admin: KafkaAdmin, leader: int, topic: str, number: int, record: bytes, acks: int
) -> tuple[str, int]:
    """Write the record; return the reason of a refusal (empty if accepted), and the record's
    offset.
    """
    kind = ProduceRequest.TopicProduceData
    data = kind.PartitionProduceData(index=number, records=record)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=int(1e3 * WRITE_S),
        topic_data=[kind(name=topic, partition_data=[data])],
        max_version=PRODUCE_BY_NAME,
    )
    until_s = time.monotonic() + WRITE_S
    while True:
        found = admin.query(
            "write a record",
            request,
            leader,
            2 * request.timeout_ms,
            lambda answer: answer.responses[0].partition_responses[0],
        )
        error = kafka_errors.for_code(found.error_code)
        if not found.error_code or not error.retriable or time.monotonic() > until_s:
            break
        time.sleep(0.1)
    told = (each.batch_index_error_message for each in found.record_errors or ())
    why = next(filter(None, (*told, found.error_message)), "")
    name = error.__name__ if found.error_code else ""
    return f"{name}: {why}" if name and why else name, found.base_offset


def _is_seen(admin: KafkaAdmin, leader: int, topic: str, number: int, offset: int) -> bool:
    """Whether consumers can read the record within `READ_S`; True if this user may not read the
    topic.
    """
    request, until_s = fetch_request({(topic, number): (offset, 1)}), time.monotonic() + READ_S

    def is_seen(answer: Any) -> bool:
        (found,) = answer.responses[0].partitions
        hidden = kafka_errors.TopicAuthorizationFailedError.errno
        return bool(found.error_code == hidden or found.high_watermark > offset)

    while not admin.query("read a record back", request, leader, read=is_seen):
        if time.monotonic() > until_s:
            return False
        time.sleep(0.1)
    return True
