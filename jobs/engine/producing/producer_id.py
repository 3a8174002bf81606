"""Producer id, epochs and sequences of an idempotent producer, by which brokers recognize repeats.

Every batch carries the producer id, an epoch and the sequence of its first record; a broker takes a
partition's batches only in sequence. Where a batch failed for good and breaks the sequence, the
partition starts again at 0 in the next epoch. A producer without transactions raises its own epoch
(KIP-360); with transactions the coordinator does it for all partitions, once the transaction of
that batch is aborted.
"""

from __future__ import annotations

from jobs.engine.producing.batch import Batch
from metrics.common.errors import RedlineError

SEQUENCES = 2**31
"""Number of sequences, which are counted modulo this."""

_EPOCH_MAX = 2**15 - 1


class EpochExhaustedError(RedlineError):
    """A partition whose sequence was broken more often than there are epochs."""


class ProducerIdState:
    """The producer id of one producer, and its epochs and sequences by partition.

    Attributes:
        producer_id, epoch: the id and the epoch that a broker gave.
    """

    __slots__ = ("_acknowledged", "_epochs", "_next", "epoch", "producer_id")

    def __init__(self, producer_id: int, epoch: int = 0) -> None:
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
