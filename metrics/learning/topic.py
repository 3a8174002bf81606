"""What is known of one topic: its place in the cluster, its readers, and what was read of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from metrics.learning.curve import Curve
from metrics.learning.decoded import RecordTally
from metrics.learning.tally import BatchTally

UNEVEN_FROM = 1.5
"""Partitions are uneven where the busiest one has so many times the mean share [ratio]."""
BATCH_SIZE = 16_384
"""Bytes that a producer of Kafka's defaults writes to a partition before it chooses again [B]."""
_SURE_SD = 3.0


@dataclass(frozen=True)
class GroupFacts:
    """A consumer group that has committed offsets of a topic.

    Attributes:
        name: id of the group.
        members: its members; None where the brokers do not report them.
        lag: records from its committed offsets to the ends of the partitions.
        state: its state by Kafka's name, such as Stable or Empty; empty where it is unknown.
    """

    name: str
    members: int | None
    lag: int
    state: str = ""

    @property
    def is_reading(self) -> bool:
        """Whether it has members, or may have some."""
        return self.members is None or self.members > 0


@dataclass(frozen=True)
class TopicFacts:
    """A topic as the cluster describes it.

    Attributes:
        name: its name.
        leaders: partition → broker that leads it.
        replication_factor: replicas of a partition.
        config: its properties by Kafka's names; empty where this user may not read them.
        groups: the consumer groups that have committed offsets of it.
    """

    name: str
    leaders: Mapping[int, int]
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[GroupFacts, ...] = ()

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.leaders)

    @property
    def min_insync(self) -> int:
        """Its `min.insync.replicas`; 1 where it is unknown."""
        value = self.config.get("min.insync.replicas", "1")
        return int(value) if value.isdigit() else 1

    @property
    def is_compacted(self) -> bool:
        """Whether its log is compacted."""
        return "compact" in self.config.get("cleanup.policy", "")

    @property
    def readers(self) -> tuple[GroupFacts, ...]:
        """The groups that read it now."""
        return tuple(group for group in self.groups if group.is_reading)


@dataclass(frozen=True)
class TopicSeen:
    """What was read and looked up of one topic.

    Attributes:
        facts: the topic.
        batches: what its recent batches show.
        curve: its records over time.
        now_per_s: records per second in the time from which batches were read [1/s].
        stretch_s: length of that time [s].
        read_share: share of its data of that time that was read [ratio].
        partition_shares: partition → its share of the records of the last day [ratio].
        records: what decoded records show; None where none were decoded.
    """

    facts: TopicFacts
    batches: BatchTally
    curve: Curve
    now_per_s: float
    stretch_s: float
    read_share: float = 1.0
    partition_shares: Mapping[int, float] = field(default_factory=dict)
    records: RecordTally | None = None

    @property
    def largest_over_mean(self) -> float:
        """The share of the busiest partition over the mean share [ratio]; 1 for an even spread."""
        shares = self.partition_shares
        return max(shares.values()) * len(shares) if shares else 1.0

    @property
    def busiest(self) -> int:
        """The partition with the most records."""
        return max(self.partition_shares, key=self.partition_shares.__getitem__)

    @property
    def is_skewed(self) -> bool:
        """Whether the busiest partition has more than equal partitions would have by chance."""
        return self.largest_over_mean > max(UNEVEN_FROM, self._by_chance)

    @property
    def may_be_even(self) -> bool:
        """Whether the busiest partition has much more than the mean, which may be chance."""
        return self.largest_over_mean > UNEVEN_FROM and not self.is_skewed

    @property
    def _by_chance(self) -> float:
        """The highest share over the mean that equal partitions have by chance [ratio].

        A producer fills a partition with `batch.size` bytes before it chooses the next one
        (KIP-794). The number of choices of a partition is a Poisson number, and the largest one of
        P such numbers exceeds their mean by about sqrt(2 ln P) standard deviations.
        """
        today, batches = self.curve.today, self.batches
        partitions = len(self.partition_shares)
        if not (today.counts and batches.batches and partitions):
            return math.inf
        chosen_bytes = max(BATCH_SIZE, batches.size_bytes / batches.batches)
        bytes_each = (today.counts[-1] - today.counts[0]) * batches.record_bytes / partitions
        if bytes_each <= 0:
            return math.inf
        deviations = math.sqrt(2 * math.log(partitions)) + _SURE_SD
        return 1.0 + deviations / math.sqrt(bytes_each / chosen_bytes)

    @property
    def broker_shares(self) -> dict[int, float]:
        """Broker → the share of the topic's records whose partitions it leads [ratio]."""
        found: dict[int, float] = {}
        for partition, share in self.partition_shares.items():
            broker = self.facts.leaders.get(partition, -1)
            found[broker] = found.get(broker, 0.0) + share
        return found
