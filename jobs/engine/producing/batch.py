"""A sealed batch of one producer, on its way."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.engine.batches.sections import Section

EXPIRED = "KafkaTimeoutError"
"""Error name of records that were never sent within `delivery_timeout_ms`."""

UNACKNOWLEDGED = "Unacknowledged"
"""Error name of records that were sent and not answered by the end of the drain."""


@dataclass
class Trouble:
    """What happened to a batch that was not acknowledged at once.

    Attributes:
        failures: how often it was sent in vain.
        error: the name of the last error.
        is_unsure: a broker may hold it, and would know it again by its sequence.
        copies: how often a broker may hold it without knowing it again.
    """

    failures: int = 0
    error: str = ""
    is_unsure: bool = False
    copies: int = 0


class Batch:
    """Records of one producer for one partition.

    Attributes:
        first: index of its first record in the producer's schedule.
        records: how many records it holds.
        due_s: when its first record was due, on the engine's clock [s].
        section: where its records are encoded.
        size: header included [B].
        stamp: epoch and sequence of an idempotent producer, once it was sent.
        trouble: what went wrong with it so far; None of almost every batch.
    """

    __slots__ = ("due_s", "first", "partition", "records", "section", "size", "stamp", "trouble")

    def __init__(
        self, partition: int, first: int, records: int, section: Section, due_s: float
    ) -> None:
        self.partition = partition
        self.first = first
        self.records = records
        self.section = section
        self.due_s = due_s
        self.size = section.size_of(records)
        self.stamp: tuple[int, int] | None = None
        self.trouble: Trouble | None = None

    @property
    def payload_bytes(self) -> int:
        """Keys and values [B]."""
        return self.section.payload_of(self.records)

    @property
    def last_error(self) -> str:
        """The name of the error that stands for it, if it is given up now."""
        return EXPIRED if self.trouble is None else self.trouble.error
