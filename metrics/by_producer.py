"""The account of each single producer over a whole trial, warm-up and drain included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class ByProducer:
    """Records by the number of the producer, which writes to topic number modulo topics.

    Attributes:
        offered: due by its schedule.
        sent: handed to a socket, each once.
        acked: acknowledged.
        failed: ended in an error; only of producers that have some, as the following.
        retried: sent again, each time.
        duplicates: that the logs may hold at most beyond the acknowledged and the failed.
    """

    offered: Mapping[int, int] = field(default_factory=dict)
    sent: Mapping[int, int] = field(default_factory=dict)
    acked: Mapping[int, int] = field(default_factory=dict)
    failed: Mapping[int, int] = field(default_factory=dict)
    retried: Mapping[int, int] = field(default_factory=dict)
    duplicates: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, row: Mapping[str, Any] | None) -> ByProducer:
        """From a dict, as Spark's and Arrow's rows give it."""
        return cls(**{name: dict(each or {}) for name, each in (row or {}).items()})

    @classmethod
    def merged(cls, parts: Iterable[ByProducer]) -> ByProducer:
        """Of the producers of several tasks."""
        totals: dict[str, Counter[int]] = {item.name: Counter() for item in fields(cls)}
        for part in parts:
            for name, total in totals.items():
                total.update(getattr(part, name))
        return cls(**{name: dict(total) for name, total in totals.items()})
