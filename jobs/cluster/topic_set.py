"""The topics that a trial writes to, and the result of their check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.cluster.placement import LeaderCounts, leader_counts
from jobs.cluster.topic_plan import Assignment, TopicState, leader_of
from jobs.engine.task.partitions import Partitions
from metrics.traffic.pattern import TopicOptions, TrafficPattern


@dataclass(frozen=True)
class TopicSet:
    """The topics that a trial writes to at the same time; all have the same shape, except in a mix.

    Attributes:
        names: names of the topics.
        message_bytes: size of the messages that are written to them [B].
        replicas: the assignment of the partitions of each topic, which must stay as it is; where
            the cluster placed them, of the partitions of all topics, numbered through.
        offline: brokers that are offline on purpose; the next replica leads in their place.
        is_own_placement: whether the cluster placed the replicas, instead of the run.
        parts: the topics of each part of a mix, which have shapes of their own, in order; empty
            for other traffic.
        brokers: ids of all brokers that serve, where the cluster placed the replicas.
        given: the shape of topics of `cluster.topics`; None for topics that the run made.
    """

    names: tuple[str, ...]
    message_bytes: int
    replicas: Assignment
    offline: frozenset[int] = frozenset()
    is_own_placement: bool = False
    brokers: tuple[int, ...] = ()
    parts: tuple[TopicSet, ...] = ()
    given: TopicOptions | None = None

    @classmethod
    def of_parts(cls, parts: Sequence[TopicSet], message_bytes: int) -> TopicSet:
        """The topics of a mix; those of the only part where there is one.

        Args:
            message_bytes: mean size of the mix's messages [B].
        """
        names = tuple(name for each in parts for name in each.names)
        return cls(
            names,
            message_bytes,
            {},
            parts[0].offline,
            any(each.is_own_placement for each in parts),
            tuple(sorted({broker for each in parts for broker in each.brokers})),
            tuple(parts),
        )

    @property
    def numbered(self) -> tuple[tuple[int, TopicSet], ...]:
        """The number of the first partition, and the topics; of a mix, for each of its parts."""
        found, first = [], 0
        for each in self.parts or (self,):
            found.append((first, each))
            first += each.per_topic * len(each.names)
        return tuple(found)

    @property
    def partition_names(self) -> dict[int, tuple[str, int]]:
        """The number of each partition → its topic, and its number there."""
        return {
            first + number: each.partitions.of(number)
            for first, each in self.numbered
            for number in range(len(each.partitions))
        }

    def __str__(self) -> str:
        more = len(self.names) - 1
        return f"{self.names[0]}{f' and {more} more' if more else ''}"

    @property
    def partitions(self) -> Partitions:
        """All partitions, numbered through all topics."""
        return Partitions(self.names, self.per_topic)

    @property
    def per_topic(self) -> int:
        """Number of partitions of each topic."""
        count = len(self.replicas)
        return count // len(self.names) if self.is_own_placement else count

    def replicas_of(self, position: int) -> Assignment:
        """The assignment of the partitions of one topic, by its position among the names."""
        if not self.is_own_placement:
            return self.replicas
        first = position * self.per_topic
        return {number: self.replicas[first + number] for number in range(self.per_topic)}

    @property
    def leaders(self) -> tuple[int, ...]:
        """Broker id that leads partition 0, 1, 2, …, numbered through all topics."""
        if self.parts:
            return tuple(leader for part in self.parts for leader in part.leaders)
        each = tuple(
            leader_of(self.replicas[number], self.offline) for number in sorted(self.replicas)
        )
        return each if self.is_own_placement else each * len(self.names)

    @property
    def partition_replicas(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Topic and number of each partition → its replicas, the planned leader first."""
        return {
            (name, number): tuple(replicas)
            for _, each in self.numbered
            for position, name in enumerate(each.names)
            for number, replicas in each.replicas_of(position).items()
        }

    @property
    def leader_counts(self) -> LeaderCounts:
        """How many of the partitions each broker leads."""
        return leader_counts(self.leaders, self.brokers)

    @property
    def caveat(self) -> str:
        """A clause for figures measured with these topics; empty where leaders are even."""
        return self.leader_counts.caveat if self.is_own_placement else ""

    def placement_note(self, planned_per_broker: int) -> str:
        """A sentence on a placement that the cluster chose; empty where the run placed replicas."""
        if not self.is_own_placement or self.given:
            return ""
        planned = planned_per_broker * len(self.brokers)
        more = f" instead of {planned}, as leaders were uneven" if self.per_topic > planned else ""
        counts = self.leader_counts.counts.values()
        least, most = min(counts), max(counts)
        led = f"{most}" if least == most else f"{least} to {most}"
        return (
            f"topic {self}: the cluster placed the replicas itself; {self.per_topic} "
            f"partitions{more}; each broker leads {led}"
        )

    def fit(self, pattern: TrafficPattern) -> TrafficPattern:
        """The pattern with the number of partitions that the topics have.

        The cluster that placed them may have more than the workload asks for. Topics that others
        made have a shape and properties of their own.
        """
        if self.parts:
            pairs = zip(self.parts, pattern.parts, strict=True)
            return replace(pattern, parts=tuple(own.fit(part) for own, part in pairs))
        if self.given is not None:
            return replace(pattern, topic=self.given)
        if not self.is_own_placement or not self.brokers:
            return pattern
        per_broker = max(1, round(self.per_topic / len(self.brokers)))
        return replace(pattern, topic=replace(pattern.topic, partitions_per_broker=per_broker))


@dataclass(frozen=True)
class TopicReport:
    """The result of the check of topics before a trial.

    Attributes:
        topics: the topics that were checked, for messages.
        before: their differences from the plan when the check began.
        after: their differences when it ended.
        waited_s: time until they were healthy, or until the deadline [s].
        trouble: why the last election failed, or empty.
    """

    topics: str
    before: TopicState
    after: TopicState
    waited_s: float
    trouble: str = ""

    @property
    def ok(self) -> bool:
        """Whether a trial can begin."""
        return self.after.healthy

    def sentences(self) -> tuple[str, ...]:
        """The reasons why no trial can begin; empty when one can."""
        if self.ok:
            return ()
        found = (
            f"topic {self.topics} after {self.waited_s:.0f} s: {'; '.join(self.after.sentences())}"
        )
        return (found, self.trouble) if self.trouble else (found,)
