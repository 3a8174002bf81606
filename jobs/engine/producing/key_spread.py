"""The partitions of records with keys: each record goes to one of its own.

Kafka's producer puts a record with a key into the open batch of the key's partition. When the first
of a broker's batches has waited for `linger.ms`, all of its open batches go into one request. Here
the records that a linger gathered are divided over the partitions of one broker at random, as keys
divide them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from metrics.traffic.producer import ProducerPattern
from metrics.traffic.skew import zipf_weights


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
