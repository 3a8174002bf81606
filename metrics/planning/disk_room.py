"""How much a load adds to the brokers' log dirs at most: a model, and no measurement. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from metrics.planning.wire_model import batch_bytes
from metrics.traffic.pattern import TopicOptions, TrafficPattern


@dataclass(frozen=True)
class LogCleaning:
    """How brokers delete what retention lets go; Kafka's defaults.

    Attributes:
        check_s: they look for it so often (log.retention.check.interval.ms) [s].
        delay_s: files go so long after that (log.segment.delete.delay.ms) [s].
        segment_bytes: the file that is written to, which is never deleted (log.segment.bytes) [B].
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
        """The slowest of all brokers, by their properties; a default where one does not tell."""
        usual = dict(
            zip(cls.NAMES, (cls.check_s * 1e3, cls.delay_s * 1e3, cls.segment_bytes), strict=True)
        )
        told = [
            [float(each.get(name) or value) for name, value in usual.items()] for each in brokers
        ]
        if not told:
            return cls()
        check_ms, delay_ms, segment = map(max, zip(*told, strict=True))
        return cls(check_ms / 1e3, delay_ms / 1e3, int(segment))

    def late_s(self, topic: TopicOptions) -> float:
        """How long what retention lets go of a topic may stay on the disk [s]."""
        delay_ms = topic.properties.get("file.delete.delay.ms", self.delay_s * 1e3)
        return self.check_s + float(delay_ms) / 1e3


def peak_log_bytes(
    pattern: TrafficPattern, cleaning: LogCleaning = LogCleaning(), held_bytes: float = 0.0
) -> float:
    """The most that it adds to all log dirs together, replicas counted [B].

    Compression is not: how well it works is known only once it has. Retention counts only for
    what is written longer ago than Kafka takes to delete it.

    Args:
        cleaning: how late that is.
        held_bytes: what its topics hold already [B].
    """
    producer, topic = pattern.producer, pattern.topic
    each = batch_bytes(producer) / producer.records_per_batch * topic.replication_factor
    written = pattern.planned_records * each
    late = pattern.records_per_s * pattern.peak_share * cleaning.late_s(topic) * each
    retained = retained_bytes(topic, pattern.brokers, cleaning)
    return min(written, max(0.0, retained + late - held_bytes))


def retained_bytes(
    topic: TopicOptions, brokers: int, cleaning: LogCleaning = LogCleaning()
) -> float:
    """What retention leaves of a workload's topics, replicas counted; infinite without [B]."""
    retention = int(topic.properties.get("retention.bytes", "-1"))
    if retention < 0:
        return math.inf
    segment = int(topic.properties.get("segment.bytes", cleaning.segment_bytes))
    logs = brokers * topic.partitions_per_broker * topic.count * topic.replication_factor
    return float(logs * (retention + segment))
