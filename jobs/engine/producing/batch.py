"""Batches of producers, and the sequences that identify the batches of idempotent producers."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.engine.batches.sections import Section
from metrics.common.errors import RedlineError

EXPIRED = "KafkaTimeoutError"
"""Error name of records that were not sent within `delivery_timeout_ms`."""

UNACKNOWLEDGED = "Unacknowledged"
"""Error name of records that were sent but not acknowledged until the end of the drain."""

SEQUENCES = 2**31
"""Number of different sequence numbers that a record of an idempotent producer can have. After the
highest sequence number, the numbers begin again at 0.
"""

_EPOCH_MAX = 2**15 - 1


@dataclass
class Trouble:
    """The failures of a batch.

    Attributes:
        failures: number of failed sends of the batch.
        error: name of the last error.
        is_unsure: whether a broker may have the batch, and would recognize a retry by the sequence.
        copies: number of possible copies of the batch in the log. If the log has such a copy, the
            broker does not recognize a retry as a repetition.
    """

    failures: int = 0
    error: str = ""
    is_unsure: bool = False
    copies: int = 0


class Batch:
    """Records of one producer for one partition.

    Attributes:
        first: index of the batch's first record in the producer's schedule.
        records: number of records.
        due_s: time at which the first record was due, on the engine's clock [s].
        section: the section with the encoded records.
        size: size of the batch, header included [B].
        stamp: epoch and sequence, set when an idempotent producer sends the batch.
        trouble: the batch's failures; None for almost every batch.
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
        """Name of the error to report if the batch is given up now."""
        return EXPIRED if self.trouble is None else self.trouble.error


class EpochExhaustedError(RedlineError):
    """A partition needed more epochs than exist, because its sequence broke too often."""


class ProducerIdState:
    """The producer id of one producer, and its epochs and sequences per partition.

    Every batch of an idempotent producer carries the producer id, an epoch and the sequence of the
    first record. A broker accepts the batches of a partition only in the order of their sequences.
    If a batch fails for good, the sequence of its partition is broken. The partition then starts
    again at sequence 0 in the next epoch. A producer without transactions increases its own epoch
    (KIP-360). For a producer with transactions, the coordinator aborts the transaction, and then
    increases the epoch of all partitions.

    Attributes:
        producer_id, epoch: the producer id and the epoch that a broker assigned.
    """

    __slots__ = ("_acknowledged", "_epochs", "_next", "epoch", "producer_id")

    def __init__(self, producer_id: int = -1, epoch: int = 0) -> None:
        self.renew_all(producer_id, epoch)

    def renew_all(self, producer_id: int, epoch: int) -> None:
        """Start again in all partitions with a new epoch. During the call, no batch may be in
        flight.
        """
        self.producer_id = producer_id
        self.epoch = epoch
        self._epochs: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}

    def epoch_of(self, partition: int) -> int:
        """The epoch for the next batches of the partition."""
        return self._epochs.get(partition, self.epoch)

    def stamp(self, batch: Batch) -> tuple[int, int]:
        """Epoch and sequence of a batch; the first send of the batch sets epoch and sequence."""
        if batch.stamp is None:
            partition = batch.partition
            sequence = self._next.get(partition, 0)
            self._next[partition] = (sequence + batch.records) % SEQUENCES
            batch.stamp = (self.epoch_of(partition), sequence)
        return batch.stamp

    def acknowledge(self, batch: Batch) -> None:
        """Note that the broker has acknowledged the batch."""
        if batch.stamp is not None and batch.stamp[0] == self.epoch_of(batch.partition):
            self._acknowledged[batch.partition] = (batch.stamp[1] + batch.records) % SEQUENCES

    def is_next(self, batch: Batch) -> bool:
        """True if the broker has all earlier batches, and therefore expects this batch next."""
        partition = batch.partition
        expected = (self.epoch_of(partition), self._acknowledged.get(partition, 0))
        return batch.stamp == expected

    def is_current(self, batch: Batch) -> bool:
        """Whether the batch can be sent in the current epoch of its partition. The batch has the
        current epoch, or was never sent and has no epoch yet.
        """
        return batch.stamp is None or batch.stamp[0] == self.epoch_of(batch.partition)

    def renew(self, batch: Batch) -> None:
        """Remove a batch's stamp of an older epoch, which brokers would not recognize."""
        if self.is_current(batch) or batch.trouble is None:
            return
        batch.stamp = None
        batch.trouble.copies += 1 if batch.trouble.is_unsure else 0
        batch.trouble.is_unsure = False

    def withdraw(self, batch: Batch) -> bool:
        """Take back the sequence of a batch that no broker has; False if later batches follow."""
        if batch.stamp is None:
            return True
        sequence = batch.stamp[1]
        if (sequence + batch.records) % SEQUENCES != self._next[batch.partition]:
            return False
        self._next[batch.partition] = sequence
        return True

    def start_again(self, partition: int) -> None:
        """Start the partition again at sequence 0 in the next epoch.

        Raises:
            EpochExhaustedError: the last epoch is used up.
        """
        epoch = self.epoch_of(partition) + 1
        if epoch > _EPOCH_MAX:
            raise EpochExhaustedError(
                f"partition {partition} lost its sequence {epoch} times; expected a cluster that "
                "accepts most batches; run a shorter trial, and see its produce errors"
            )
        self._epochs[partition] = epoch
        self._next[partition] = 0
        self._acknowledged[partition] = 0
