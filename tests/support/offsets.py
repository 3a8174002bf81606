"""End offsets of one topic."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.cluster.admin import KafkaAdmin


def end_offsets_of(admin: KafkaAdmin, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Partition → the offset that its next record will get."""
    found = admin.end_offsets((topic, partition) for partition in partitions)
    return {partition: offset for (_topic, partition), offset in found.items()}
