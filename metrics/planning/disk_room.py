"""How much a load adds to the brokers' log dirs at most: a model, and no measurement. Pure."""

from __future__ import annotations

import math

from metrics.planning.wire_model import batch_bytes
from metrics.traffic.pattern import TopicOptions, TrafficPattern

DELETED_LATE_S = 360.0
"""Kafka looks every log.retention.check.interval.ms (5 min) for what retention lets go, and deletes
its files file.delete.delay.ms (1 min) later [s]."""

SEGMENT_BYTES = 1_073_741_824
"""segment.bytes, where the topic does not say another: what is written to is never deleted [B]."""


def peak_log_bytes(pattern: TrafficPattern) -> float:
    """The most that it adds to all log dirs together, replicas counted [B].

    Compression is not: how well it works is known only once it has. Retention counts only for
    what is written longer ago than Kafka takes to delete it.
    """
    producer, topic = pattern.producer, pattern.topic
    each = batch_bytes(producer) / producer.records_per_batch * topic.replication_factor
    written = pattern.planned_records * each
    late = pattern.records_per_s * pattern.peak_share * DELETED_LATE_S * each
    return min(written, retained_bytes(topic, pattern.brokers) + late)


def retained_bytes(topic: TopicOptions, brokers: int) -> float:
    """What retention leaves of a workload's topics, replicas counted; infinite without [B]."""
    retention = int(topic.properties.get("retention.bytes", "-1"))
    if retention < 0:
        return math.inf
    segment = int(topic.properties.get("segment.bytes", SEGMENT_BYTES))
    logs = brokers * topic.partitions_per_broker * topic.count * topic.replication_factor
    return float(logs * (retention + segment))
