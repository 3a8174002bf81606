"""A model of the disk space that a load needs in the brokers' log dirs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from metrics.planning.wire_model import batch_bytes
from metrics.traffic.pattern import TopicOptions, TrafficPattern


@dataclass(frozen=True)
class LogCleaning:
    """The brokers' settings for the deletion of old segments, with Kafka's defaults.

    Attributes:
        check_s: interval of the checks of retention (log.retention.check.interval.ms) [s].
        delay_s: time from a check to the deletion of files (log.segment.delete.delay.ms) [s].
        segment_bytes: size of the active segment, which is never deleted (log.segment.bytes) [B].
    """

    NAMES: ClassVar[Sequence[str]] = (
        "log.retention.check.interval.ms",
        "log.segment.delete.delay.ms",
        "log.segment.bytes",
    )
    check_s: float = 300.0
    delay_s: float = 60.0
    segment_bytes: int = 1_073_741_824

    @classmethod
    def of(cls, brokers: Iterable[Mapping[str, str | None]]) -> LogCleaning:
        """Read the properties of all brokers; the slowest value of each counts.

        A missing property has Kafka's default.
        """
        defaults = dict(
            zip(cls.NAMES, (cls.check_s * 1e3, cls.delay_s * 1e3, cls.segment_bytes), strict=True)
        )
        values = [
            [float(each.get(name) or value) for name, value in defaults.items()] for each in brokers
        ]
        if not values:
            return cls()
        check_ms, delay_ms, segment = map(max, zip(*values, strict=True))
        return cls(check_ms / 1e3, delay_ms / 1e3, int(segment))

    def late_s(self, topic: TopicOptions) -> float:
        """The longest time for which expired records of a topic stay on the disk [s]."""
        delay_ms = topic.properties.get("file.delete.delay.ms", self.delay_s * 1e3)
        return self.check_s + float(delay_ms) / 1e3


def peak_log_bytes(
    pattern: TrafficPattern, cleaning: LogCleaning = LogCleaning(), held_bytes: float = 0.0
) -> float:
    """The maximum number of bytes that a load adds to all log dirs together, with replicas [B].

    Compression is ignored, as its ratio is not known in advance. Retention reduces the result only
    by records that are older than the time that Kafka needs to delete them.

    Args:
        cleaning: the brokers' settings for deletion.
        held_bytes: bytes that the topics contain already [B].
    """
    if pattern.parts:
        own = [peak_log_bytes(each, cleaning) for each in pattern.parts]
        most = sum(_log_bytes_max(each, cleaning) for each in pattern.parts)
        return min(sum(own), max(0.0, most - held_bytes))
    written = pattern.planned_records * _record_bytes(pattern)
    return min(written, max(0.0, _log_bytes_max(pattern, cleaning) - held_bytes))


def _record_bytes(pattern: TrafficPattern) -> float:
    """The bytes of a record in all replicas [B]."""
    producer = pattern.producer
    each = batch_bytes(producer) / producer.records_per_batch
    return each * pattern.topic.replication_factor


def _log_bytes_max(pattern: TrafficPattern, cleaning: LogCleaning) -> float:
    """The bytes that the logs hold at most before the brokers delete what is old [B]."""
    topic = pattern.topic
    late_records = pattern.records_per_s * pattern.peak_share * cleaning.late_s(topic)
    retained = retained_bytes(topic, pattern.brokers, cleaning)
    return retained + late_records * _record_bytes(pattern)


def retained_bytes(
    topic: TopicOptions, brokers: int, cleaning: LogCleaning = LogCleaning()
) -> float:
    """The bytes of a workload's topics that retention keeps, with replicas [B].

    Infinite without `retention.bytes`.
    """
    retention = int(topic.properties.get("retention.bytes", "-1"))
    if retention < 0:
        return math.inf
    segment = int(topic.properties.get("segment.bytes", cleaning.segment_bytes))
    return float(logs_of(topic, brokers) * (retention + segment))


def logs_of(topic: TopicOptions, brokers: int) -> int:
    """The number of replicas of all partitions of a workload's topics."""
    return brokers * topic.partitions_per_broker * topic.count * topic.replication_factor
