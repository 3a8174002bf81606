"""A sealed batch of one producer, from its sealing to its settlement."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.engine.batches.sections import Section

EXPIRED = "KafkaTimeoutError"
"""Error name of records that were never sent within `delivery_timeout_ms`."""

UNACKNOWLEDGED = "Unacknowledged"
"""Error name of records that were sent and had no answer by the end of the drain."""


@dataclass
class Trouble:
    """History of a batch that was not acknowledged at once.

    Attributes:
        failures: number of its failed sends.
        error: the name of the last error.
        is_unsure: whether a broker may hold it, and would recognize it by its sequence.
        copies: number of copies that a broker may hold without recognizing the batch.
    """

    failures: int = 0
    error: str = ""
    is_unsure: bool = False
    copies: int = 0


class Batch:
    """Records of one producer for one partition.

    Attributes:
        first: index of its first record in the producer's schedule.
        records: number of its records.
        due_s: when its first record was due, on the engine's clock [s].
        section: the section with its encoded records.
        size: its size, header included [B].
        stamp: epoch and sequence of an idempotent producer, once it was sent.
        trouble: history of its failures; None for almost every batch.
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
    def last_error(self) -> str:
        """Name of the error with which it fails if it is given up now."""
        return EXPIRED if self.trouble is None else self.trouble.error
