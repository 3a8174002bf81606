"""Counts and sizes of the batches and records of a topic; no key and no value is stored."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from metrics.features.learn.curve import Curve
from metrics.traffic.batch_headers import BatchHeader
from metrics.traffic.payload import BATCH_HEADER_BYTES

KEYS_MAX = 500_000
"""Maximum number of different keys that are counted separately."""
_HASH_BYTES = 8


class SizeTally(Counter[int]):
    """A tally of sizes: size [B] → number of its occurrences."""

    @property
    def largest(self) -> int:
        """The largest size [B]; 0 without sizes."""
        return max(self, default=0)

    @property
    def mean(self) -> float:
        """The mean size [B]; 0 without sizes."""
        return sum(size * number for size, number in self.items()) / max(1, self.total())

    @property
    def spread(self) -> float:
        """Standard deviation of the sizes' natural logarithm [ratio]; 0 for equal sizes."""
        logs = [(math.log(size), number) for size, number in self.items() if size > 0]
        count = max(1, sum(number for _, number in logs))
        mean = sum(log * number for log, number in logs) / count
        return math.sqrt(sum((log - mean) ** 2 * number for log, number in logs) / count)


@dataclass
class RecordTally:
    """A tally of decoded records.

    Keys are counted by a hash with a random secret, which exists only in this process, so no key
    can be recognized from the stored hashes.

    Attributes:
        messages: sizes of messages, key and value together.
        keys, values: sizes of the keys (of records with a key), and sizes of the values.
        header_bytes: sizes of the values of record headers.
        plain_bytes: size of the records before compression [B].
        stored_bytes: size of the decoded records in the log [B].
        unreadable: number of batches that could not be decoded.
        by_key: hash of a key → number of records with this key.
    """

    messages: SizeTally = field(default_factory=SizeTally)
    keys: SizeTally = field(default_factory=SizeTally)
    values: SizeTally = field(default_factory=SizeTally)
    header_bytes: SizeTally = field(default_factory=SizeTally)
    plain_bytes: int = 0
    stored_bytes: int = 0
    unreadable: int = 0
    by_key: Counter[bytes] = field(default_factory=Counter)
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    def add(self, key: bytes | None, value_bytes: int, header_sizes: Sequence[int]) -> None:
        """Count one record.

        Args:
            value_bytes: size of the record's value [B].
            header_sizes: sizes of the values of the record's headers [B].
        """
        self.values[value_bytes] += 1
        self.messages[value_bytes + len(key or b"")] += 1
        self.header_bytes.update(header_sizes)
        if key is None:
            return
        self.keys[len(key)] += 1
        hashed = hashlib.blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
        if hashed in self.by_key or len(self.by_key) < KEYS_MAX:
            self.by_key[hashed] += 1

    @property
    def ratio(self) -> float:
        """The compression ratio: size before compression divided by size after
        compression [ratio].
        """
        return self.plain_bytes / self.stored_bytes if self.stored_bytes else 1.0

    @property
    def keyed_share(self) -> float:
        """Share of records with a key [ratio]."""
        return self.keys.total() / max(1, self.messages.total())

    @property
    def headers_each(self) -> float:
        """Mean number of headers per record."""
        return self.header_bytes.total() / max(1, self.messages.total())

    @property
    def key_range(self) -> tuple[int, float]:
        """The number of different keys that were seen, and an estimate of the number of all keys
        that producers use.

        The estimate is Chao's lower bound of the number of keys. Chao's bound follows from the
        number of keys that were seen once and the number of keys that were seen twice
        (https://doi.org/10.2307/4615964).
        """
        return len(self.by_key), all_seen(self.by_key.values())

    @property
    def top_key_share(self) -> float:
        """The records with the most frequent key, divided by all records with a key [ratio]."""
        return max(self.by_key.values(), default=0) / max(1, self.keys.total())

    @property
    def top_tenth_share(self) -> float:
        """The records with the most frequent tenth of the keys, divided by all records with a key
        [ratio].
        """
        ordered = sorted(self.by_key.values(), reverse=True)
        return sum(ordered[: max(1, len(ordered) // 10)]) / max(1, self.keys.total())


def all_seen(counts: Collection[int]) -> float:
    """Chao's estimate of how many different values exist, including values that were not seen.

    Args:
        counts: one number for each different value that was seen: how often this value was seen.
    """
    once, twice = (sum(count == times for count in counts) for times in (1, 2))
    return len(counts) + once * (once - 1) / (2.0 * (twice + 1))


SAME_END_MS = 5
"""Transaction markers of one producer belong to the same transaction if the time between them is at
most this value [ms]."""
MARKERS_MAX = 10_000
"""Maximum number of transaction markers that are stored with their times, for each producer."""
OPENED_MAX = 200_000
"""Maximum number of batches that are stored with their times, for each topic."""


class Opened(NamedTuple):
    """The time at which a producer opened a batch.

    Attributes:
        producer_id: id of the producer.
        partition: partition of the batch.
        first_ms: time of the first record of the batch [ms since the epoch].
    """

    producer_id: int
    partition: int
    first_ms: int


@dataclass
class ProducerTally:
    """A tally of the batches of one producer id.

    Attributes:
        batches: number of batches, without transaction markers.
        ends_ms: times of the producer's transaction markers [ms since the epoch].
    """

    batches: int = 0
    ends_ms: list[int] = field(default_factory=list)

    @property
    def transactions(self) -> list[int]:
        """The end time of each transaction, in order [ms since the epoch]."""
        found: list[int] = []
        for each in sorted(self.ends_ms):
            if not found or each - found[-1] > SAME_END_MS:
                found.append(each)
        return found


@dataclass
class BatchTally:
    """A tally of the batches of a topic.

    Attributes:
        batches, records, offsets, size_bytes: sums over all batches except transaction markers.
        batch_records: number of records → number of batches with this many records.
        open_ms: sum over all batches of the time between the first and the latest record [ms].
        wide_ms: sum of the estimated times [ms] for which batches with several records were open.
            Records are assumed to arrive at random. So the estimate for a batch of n records is
            n/(n - 1) times the time between the first and the latest record.
        last_ms: time of the latest record [ms since the epoch].
        followers: number of records that follow the first record of their batch. Batches with
            append times of the broker are left out.
        spans: time between the first and the latest record of a batch [ms] → number of batches with
            this time. Only batches with several records count.
        idempotent, transactional: number of batches of idempotent producers, and number of batches
            of transactional producers.
        append_times: number of batches with append times of the broker (LogAppendTime).
        older: number of message sets with a format older than v2.
        producers: producer id → tally of its batches.
        opened: opening times of the first `OPENED_MAX` batches that have a producer id.
    """

    batches: int = 0
    records: int = 0
    offsets: int = 0
    size_bytes: int = 0
    codecs: Counter[str] = field(default_factory=Counter)
    batch_records: Counter[int] = field(default_factory=Counter)
    batch_sizes: Counter[int] = field(default_factory=Counter)
    open_ms: int = 0
    wide_ms: float = 0.0
    last_ms: int = 0
    followers: int = 0
    spans: Counter[int] = field(default_factory=Counter)
    idempotent: int = 0
    transactional: int = 0
    markers: int = 0
    append_times: int = 0
    older: int = 0
    producers: dict[int, ProducerTally] = field(default_factory=lambda: defaultdict(ProducerTally))
    opened: list[Opened] = field(default_factory=list)

    def add(self, partition: int, batch: BatchHeader) -> None:
        """Count one batch of a partition."""
        if batch.is_control:
            self.markers += 1
            ends = self.producers[batch.producer_id].ends_ms
            if len(ends) < MARKERS_MAX:
                ends.append(batch.max_ms)
            return
        # Compaction can leave the header of a producer's last batch without records.
        if not batch.records:
            return
        self.batches += 1
        self.records += batch.records
        self.offsets += batch.offsets
        self.size_bytes += batch.size_bytes
        self.codecs[batch.codec] += 1
        self.batch_records[batch.records] += 1
        self.batch_sizes[batch.size_bytes] += 1
        self.transactional += batch.is_transactional
        self.append_times += batch.has_append_time
        self.last_ms = max(self.last_ms, batch.max_ms)
        if not batch.has_append_time and batch.max_ms >= batch.first_ms:
            span_ms = batch.max_ms - batch.first_ms
            self.open_ms += span_ms
            self.followers += batch.records - 1
            if batch.records > 1:
                self.spans[span_ms] += 1
                self.wide_ms += span_ms * batch.records / (batch.records - 1)
        if batch.producer_id >= 0:
            self.idempotent += 1
            self.producers[batch.producer_id].batches += 1
            if not batch.has_append_time and len(self.opened) < OPENED_MAX:
                self.opened.append(Opened(batch.producer_id, partition, batch.first_ms))

    # --- derived figures -----------------------------------------------------------

    @property
    def record_bytes(self) -> float:
        """Mean size of a record in the log, without batch headers [B]."""
        return (self.size_bytes - self.batches * BATCH_HEADER_BYTES) / self.records

    @property
    def records_per_batch(self) -> float:
        """Mean number of records per batch."""
        return self.records / self.batches

    @property
    def codec(self) -> str:
        """The codec of most batches."""
        return self.codecs.most_common(1)[0][0] if self.codecs else "none"

    @property
    def writers(self) -> dict[int, ProducerTally]:
        """Producer id → its tally, for each producer id that wrote records."""
        return {number: each for number, each in self.producers.items() if each.batches}


def quantile_of(counts: Counter[int], share: float) -> int:
    """The quantile at `share`: the lowest counted value such that at least this share of all
    counted values is equal or lower; 0 without values.

    Args:
        counts: value → number of its occurrences.
        share: from 0 to 1 [ratio].
    """
    left = share * sum(counts.values())
    for value, number in sorted(counts.items()):
        left -= number
        if left <= 0:
            return value
    return max(counts, default=0)


UNEVEN_FROM = 1.5
"""The records of a topic may be spread unevenly if the busiest partition has more than this many
times the mean share of records [ratio].
"""
BATCH_SIZE = 16_384
"""Number of bytes that a producer with Kafka's defaults writes to a partition before it chooses
another partition [B].
"""
_SURE_SD = 3.0


@dataclass(frozen=True)
class GroupFacts:
    """A consumer group that has committed offsets of a topic.

    Attributes:
        name: id of the group.
        members: number of members; None if the brokers do not report it.
        lag: number of records between the committed offsets and the ends of the partitions.
        state: Kafka's name of the state, such as Stable or Empty; empty if unknown.
    """

    name: str
    members: int | None
    lag: int
    state: str = ""

    @property
    def is_reading(self) -> bool:
        """True if the group has members, or if the number of its members is not known."""
        return self.members is None or self.members > 0


@dataclass(frozen=True)
class TopicFacts:
    """A topic as the cluster describes it.

    Attributes:
        name: name of the topic.
        leaders: partition → broker that leads the partition.
        replication_factor: number of replicas of a partition.
        config: properties of the topic by Kafka's names; empty if this user may not read them.
        groups: the consumer groups that have committed offsets of the topic.
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
        """The topic's `min.insync.replicas`; 1 if unknown."""
        value = self.config.get("min.insync.replicas", "1")
        return int(value) if value.isdigit() else 1

    @property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted."""
        return "compact" in self.config.get("cleanup.policy", "")

    @property
    def readers(self) -> tuple[GroupFacts, ...]:
        """The consumer groups that currently read the topic."""
        return tuple(group for group in self.groups if group.is_reading)


@dataclass(frozen=True)
class TopicSeen:
    """What is known about one topic: its description, its offsets and the batches that were read.

    Attributes:
        facts: the description of the topic.
        batches: tally of its recent batches.
        curve: number of its records over time.
        now_per_s: records per second in the time range that was read [1/s].
        read_share: share of the time range's data that was read [ratio].
        partition_shares: partition → its share of the records of the last day [ratio].
        records: tally of decoded records; None without decoding.
    """

    facts: TopicFacts
    batches: BatchTally
    curve: Curve
    now_per_s: float
    read_s: float
    read_share: float = 1.0
    partition_shares: Mapping[int, float] = field(default_factory=dict)
    records: RecordTally | None = None

    @property
    def largest_over_mean(self) -> float:
        """The share of the busiest partition, divided by the mean share [ratio]; 1 for an even
        spread.
        """
        shares = self.partition_shares
        return max(shares.values()) * len(shares) if shares else 1.0

    @property
    def busiest(self) -> int:
        """The partition with the most records."""
        return max(self.partition_shares, key=self.partition_shares.__getitem__)

    @property
    def is_skewed(self) -> bool:
        """True if the busiest partition has more records than it can have by chance when producers
        choose all partitions with equal probability.
        """
        return self.largest_over_mean > max(UNEVEN_FROM, self._by_chance)

    @property
    def _by_chance(self) -> float:
        """The share of records that the busiest of several equal partitions has by chance, divided
        by the mean share [ratio].

        A producer writes `batch.size` bytes to a partition, and then chooses the next partition
        (KIP-794). The number of times that a partition is chosen has a Poisson distribution. Among
        P partitions, the largest number exceeds the mean by about sqrt(2 ln P) standard deviations.
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
        """Broker → the share of the topic's records in partitions that this broker
        leads [ratio].
        """
        found: dict[int, float] = {}
        for partition, share in self.partition_shares.items():
            broker = self.facts.leaders.get(partition, -1)
            found[broker] = found.get(broker, 0.0) + share
        return found
