"""A sealed batch of one producer, from its sealing to its settlement.

The partitions of records with keys: each record goes to one of its own.

Kafka's producer puts a record with a key into the open batch of the key's partition. When the first
of a broker's batches has waited for `linger.ms`, all of its open batches go into one request. Here
the records that a linger gathered are divided over the partitions of one broker at random, as keys
divide them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.engine.batches.sections import Section
from metrics.traffic.clients import ProducerPattern, zipf_weights

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


class KeySpread:
    """The choice of a partition for each record of one producer.

    Args:
        partitions: the partitions of the producer's topic.
        index: index of the producer.

    Attributes:
        partitions: the partitions of the producer's topic.
    """

    __slots__ = ("_rng", "_weights", "partitions")

    def __init__(self, pattern: ProducerPattern, partitions: range, index: int) -> None:
        self.partitions = partitions
        self._rng = random.Random(f"{pattern.seed}/keys/{index}")
        weights = zipf_weights(len(partitions), pattern.options.partition_skew)
        self._weights = dict(zip(partitions, weights, strict=True))

    def shares(self, records: int, among: Sequence[int]) -> Mapping[int, int]:
        """Partition → number of records, of those among these partitions that get some."""
        weights = [self._weights[each] for each in among]
        return Counter(self._rng.choices(among, weights, k=records))
