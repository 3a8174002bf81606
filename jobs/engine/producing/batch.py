"""Batches of producers, and the sequences by which brokers know those of idempotent ones."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.engine.batches.sections import Section
from metrics.common.errors import RedlineError

EXPIRED = "KafkaTimeoutError"
"""Error name of records that were never sent within `delivery_timeout_ms`."""

UNACKNOWLEDGED = "Unacknowledged"
"""Error name of records that were sent and had no answer by the end of the drain."""

SEQUENCES = 2**31
"""Number of sequences, which are counted modulo this."""

_EPOCH_MAX = 2**15 - 1


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


class EpochExhaustedError(RedlineError):
    """A partition whose sequence was broken more often than there are epochs."""


class ProducerIdState:
    """The producer id of one producer, and its epochs and sequences by partition.

    Every batch of an idempotent producer carries the producer id, an epoch and the sequence of its
    first record; a broker takes a partition's batches only in sequence. Where a batch failed for
    good and breaks the sequence, the partition starts again at 0 in the next epoch. A producer
    without transactions raises its own epoch (KIP-360); with transactions the coordinator does it
    for all partitions, once the transaction of that batch is aborted.

    Attributes:
        producer_id, epoch: the id and the epoch that a broker gave.
    """

    __slots__ = ("_acknowledged", "_epochs", "_next", "epoch", "producer_id")

    def __init__(self, producer_id: int = -1, epoch: int = 0) -> None:
        self.renew_all(producer_id, epoch)

    def renew_all(self, producer_id: int, epoch: int) -> None:
        """Begin anew in all partitions with the coordinator's epoch; no batch is in flight."""
        self.producer_id = producer_id
        self.epoch = epoch
        self._epochs: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}

    def epoch_of(self, partition: int) -> int:
        """The epoch in which the partition's batches are sent."""
        return self._epochs.get(partition, self.epoch)

    def stamp(self, batch: Batch) -> tuple[int, int]:
        """Epoch and sequence of a batch: those of its first sending, or else the next ones."""
        if batch.stamp is None:
            partition = batch.partition
            sequence = self._next.get(partition, 0)
            self._next[partition] = (sequence + batch.records) % SEQUENCES
            batch.stamp = (self.epoch_of(partition), sequence)
        return batch.stamp

    def acknowledge(self, batch: Batch) -> None:
        """Note that the broker has this batch."""
        if batch.stamp is not None and batch.stamp[0] == self.epoch_of(batch.partition):
            self._acknowledged[batch.partition] = (batch.stamp[1] + batch.records) % SEQUENCES

    def is_next(self, batch: Batch) -> bool:
        """True when the broker expects this batch next, as it has all batches before it."""
        partition = batch.partition
        expected = (self.epoch_of(partition), self._acknowledged.get(partition, 0))
        return batch.stamp == expected

    def is_current(self, batch: Batch) -> bool:
        """False for a batch that was stamped before its partition started again."""
        return batch.stamp is None or batch.stamp[0] == self.epoch_of(batch.partition)

    def renew(self, batch: Batch) -> None:
        """Forget a stamp of an older epoch, by which a broker would not recognize the batch."""
        if self.is_current(batch) or batch.trouble is None:
            return
        batch.stamp = None
        batch.trouble.copies += 1 if batch.trouble.is_unsure else 0
        batch.trouble.is_unsure = False

    def withdraw(self, batch: Batch) -> bool:
        """Withdraw the sequence of a batch that no broker has; False if other batches follow it."""
        if batch.stamp is None:
            return True
        sequence = batch.stamp[1]
        if (sequence + batch.records) % SEQUENCES != self._next[batch.partition]:
            return False
        self._next[batch.partition] = sequence
        return True

    def start_again(self, partition: int) -> None:
        """Begin again at sequence 0 in the next epoch.

        Raises:
            EpochExhaustedError: there is no further epoch.
        """
        epoch = self.epoch_of(partition) + 1
        if epoch > _EPOCH_MAX:
            raise EpochExhaustedError(
                f"partition {partition} lost its sequence {epoch} times; expected a cluster that "
                "takes most batches: look at the errors of shorter trials"
            )
        self._epochs[partition] = epoch
        self._next[partition] = 0
        self._acknowledged[partition] = 0
