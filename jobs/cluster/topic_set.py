"""The topics that a trial writes to, and the result of the check of these topics.

Elastic services and clusters with a balancer ignore or refuse the run's assignment of replicas. For
such clusters this module decides whether to add partitions. The module sends no requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.cluster.admin import NO_LEADER, Partition
from jobs.cluster.topic_plan import Assignment, TopicState, leader_of
from jobs.engine.task.plan import Partitions
from metrics.traffic.pattern import LEADERS_MAX, TopicOptions, TrafficPattern
from metrics.units import format_some

REFUSED_ASSIGNMENTS = frozenset(
    {
        "IncompatibleBrokerVersion",
        "InvalidReplicationAssignmentError",
        "InvalidRequestError",
        "PolicyViolationError",
        "UnsupportedVersionError",
    }
)
"""Errors with which brokers may refuse the assignment of replicas in a request to create a topic. A
request without the assignment may succeed.
"""

TOLERANCE = 0.1
"""Leaders are even if each broker's number of leaders deviates from the mean by at most this share
[ratio]."""

GROWTH_MAX = 10
"""Largest number of partitions, as a multiple of the planned number."""


@dataclass(frozen=True)
class LeaderCounts:
    """For each broker: how many partitions of a trial this broker leads.

    Attributes:
        counts: broker → number of partitions that the broker leads; 0 for a broker without leaders.
    """

    counts: Mapping[int, int]

    @property
    def total(self) -> int:
        """Number of partitions."""
        return sum(self.counts.values())

    @property
    def are_even(self) -> bool:
        """Whether each broker's number of leaders differs from the mean by at most `TOLERANCE`."""
        # In integers, so that a number exactly at the tolerance is even.
        brokers = len(self.counts)
        return all(
            abs(each * brokers - self.total) * 10 <= self.total * round(TOLERANCE * 10)
            for each in self.counts.values()
        )

    @property
    def caveat(self) -> str:
        """A clause about uneven leaders for reports; empty if the leaders are even."""
        if self.are_even:
            return ""
        most, mean = max(self.counts.values()), self.total / len(self.counts)
        return f"leaders uneven: {most} at most, {mean:.3g} on average"


def leader_counts(leaders: Sequence[int], brokers: Sequence[int]) -> LeaderCounts:
    """For each broker: how many partitions this broker leads.

    Args:
        leaders: leaders of all partitions.
        brokers: all brokers that serve clients; a broker that leads no partition has 0.
    """
    counts = Counter(leaders)
    return LeaderCounts({broker: counts[broker] for broker in sorted({*brokers, *counts})})


def grown_partitions(found: LeaderCounts, per_topic: int, planned: int, topics: int = 1) -> int:
    """The number of partitions that each topic should have next; `per_topic` if this number is
    enough.

    The number doubles until all brokers lead about equally many partitions (see `TOLERANCE`), up to
    `GROWTH_MAX` times the planned number. If the cluster places replicas at random, additional
    partitions make the numbers of leaders more equal. If the cluster places replicas round-robin,
    additional partitions are not needed.

    Args:
        per_topic: partitions that each topic has.
        planned: planned number of partitions of each topic.
        topics: number of topics.
    """
    most = min(planned * GROWTH_MAX, LEADERS_MAX // max(1, topics))
    if found.are_even or per_topic >= most:
        return per_topic
    return min(per_topic * 2, most)


def placed(found: Mapping[int, Partition] | None) -> Assignment | None:
    """The placement that a broker reports; None if a partition is missing or has no leader.

    The leader is the first replica of a partition. The followers are in the order of their ids,
    because a cluster that places replicas may report them in any order.
    """
    if not found or sorted(found) != list(range(len(found))):
        return None
    if any(each.leader == NO_LEADER for each in found.values()):
        return None
    return {
        number: (each.leader, *sorted({*each.replicas} - {each.leader}))
        for number, each in sorted(found.items())
    }


@dataclass(frozen=True)
class TopicSet:
    """The topics that a trial writes to at the same time; in a mix their shapes may differ.

    Attributes:
        names: names of the topics.
        message_bytes: size of the messages that the trial writes [B].
        replicas: partition → its replicas; the topics' partitions are numbered consecutively.
            Replicas that the run placed must stay on their brokers.
        offline: brokers that are offline on purpose; each partition's next replica leads instead.
        is_own_placement: True if the cluster placed the replicas; False if the run placed them.
        parts: the topics of each part of a mix, in the order of the parts; empty for traffic
            without parts.
        brokers: ids of all brokers that serve clients, if the cluster placed the replicas.
        given: the shape of the topics of `cluster.topics`; None for topics that the run created.
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
    def assigned(
        cls,
        names: tuple[str, ...],
        message_bytes: int,
        replicas: Assignment,
        offline: frozenset[int] = frozenset(),
    ) -> TopicSet:
        """Topics whose replicas the run placed, with the same assignment for each topic."""
        of_all = [each for _ in names for each in replicas.values()]
        return cls(names, message_bytes, dict(enumerate(of_all)), offline)

    @classmethod
    def of_parts(cls, parts: Sequence[TopicSet], message_bytes: int) -> TopicSet:
        """The topics of a mix.

        Args:
            message_bytes: mean size of the mix's messages [B].
        """
        names = tuple(name for each in parts for name in each.names)
        return cls(
            names,
            message_bytes,
            dict(enumerate(each for part in parts for each in part.replicas.values())),
            parts[0].offline,
            any(each.is_own_placement for each in parts),
            tuple(sorted({broker for each in parts for broker in each.brokers})),
            tuple(parts),
        )

    @property
    def numbered(self) -> tuple[tuple[int, TopicSet], ...]:
        """Pairs (number of the first partition, topics), one for each part of a mix; for traffic
        without parts, one such pair.
        """
        found, first = [], 0
        for each in self.parts or (self,):
            found.append((first, each))
            first += len(each.replicas)
        return tuple(found)

    @property
    def partition_names(self) -> dict[int, tuple[str, int]]:
        """Consecutive number of a partition → its topic, and its number in the topic."""
        return {
            first + number: each.partitions.of(number)
            for first, each in self.numbered
            for number in each.replicas
        }

    def __str__(self) -> str:
        return format_some(self.names)

    @property
    def partitions(self) -> Partitions:
        """All partitions of the topics, numbered consecutively."""
        return Partitions(self.names, self.per_topic)

    @property
    def per_topic(self) -> int:
        """Number of partitions of each topic."""
        return len(self.replicas) // len(self.names)

    @property
    def leaders(self) -> tuple[int, ...]:
        """Ids of the leaders of all partitions, in the order of the partitions' consecutive
        numbers.
        """
        return tuple(leader_of(each, self.offline) for each in self.replicas.values())

    @property
    def partition_replicas(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Topic and number of each partition → its replicas, the planned leader first."""
        return {name: self.replicas[number] for number, name in self.partition_names.items()}

    @property
    def leader_counts(self) -> LeaderCounts:
        """For each broker: how many partitions of these topics this broker leads."""
        return leader_counts(self.leaders, self.brokers)

    @property
    def caveat(self) -> str:
        """A clause about uneven leaders, for reports. Empty if the leaders are even, or if the run
        placed the replicas.
        """
        return self.leader_counts.caveat if self.is_own_placement else ""

    def placement_note(self, planned_per_broker: int) -> str:
        """A note about a placement by the cluster; empty if the run placed the replicas."""
        if not self.is_own_placement or self.given:
            return ""
        planned = planned_per_broker * len(self.brokers)
        more = f" instead of {planned} to balance leaders" if self.per_topic > planned else ""
        counts = self.leader_counts.counts.values()
        least, most = min(counts), max(counts)
        led = f"{most}" if least == most else f"{least} to {most}"
        return (
            f"topic {self}: the cluster chose the brokers of the replicas; {self.per_topic} "
            f"partitions{more}; each broker leads {led} of them"
        )

    def fit(self, pattern: TrafficPattern) -> TrafficPattern:
        """The pattern with the real numbers of partitions and replicas of the topics.

        If the cluster placed the replicas, topics may have more partitions than the workload plans.
        Topics of `cluster.topics` have their own numbers of partitions and replicas, and their own
        properties.
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
        before: how the topics differed from the plan when the check began.
        after: how the topics differed from the plan when the check ended.
        waited_s: time until the topics were healthy, or until the deadline [s].
        trouble: error of the last election of leaders; empty without an error.
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
        """The reasons why no trial can begin; empty if a trial can begin."""
        if self.ok:
            return ()
        found = (
            f"topic {self.topics} after {self.waited_s:.0f} s: {'; '.join(self.after.sentences())}"
        )
        return (found, self.trouble) if self.trouble else (found,)
