"""The account of each single producer over a whole trial, warm-up and drain included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from metrics.trial.tallies import Errors, errors_from, errors_summed, summed


@dataclass(frozen=True)
class ByProducer:
    """Records by the number of the producer, which writes to topic number modulo topics.

    Attributes:
        offered: due by its schedule.
        sent: handed to a socket, each once.
        acked: acknowledged.
        failed: ended in an error, by the name of Kafka's error; only of producers that have
            some, as the following.
        retried: sent again, each time.
        duplicates: that the logs may hold at most beyond the acknowledged and the failed.
    """

    offered: Mapping[int, int] = field(default_factory=dict)
    sent: Mapping[int, int] = field(default_factory=dict)
    acked: Mapping[int, int] = field(default_factory=dict)
    failed: Mapping[int, Errors] = field(default_factory=dict)
    retried: Mapping[int, int] = field(default_factory=dict)
    duplicates: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, row: Mapping[str, Any] | None) -> ByProducer:
        """From a dict, as Spark's and Arrow's rows give it."""
        values: dict[str, Any] = {name: dict(each or {}) for name, each in (row or {}).items()}
        return cls(**{**values, "failed": errors_from(values.get("failed"))})

    @classmethod
    def merged(cls, parts: Iterable[ByProducer]) -> ByProducer:
        """Of the producers of several tasks."""
        each = list(parts)
        return cls(
            offered=summed(part.offered for part in each),
            sent=summed(part.sent for part in each),
            acked=summed(part.acked for part in each),
            failed=errors_summed(part.failed for part in each),
            retried=summed(part.retried for part in each),
            duplicates=summed(part.duplicates for part in each),
        )
