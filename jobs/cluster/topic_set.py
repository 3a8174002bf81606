"""The topics that a trial writes to, and the result of their check.

Replicas that a cluster placed itself: what was placed, and whether to add partitions.

Elastic services and clusters with a balancer ignore or refuse assignments. This module decides,
and asks no broker.
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
"""Errors of a creation with assignments that one without them may avoid."""

TOLERANCE = 0.1
"""Highest deviation of a broker's leaders from the mean at which they count as even [ratio]."""

GROWTH_MAX = 10
"""Highest number of partitions, as a multiple of the planned ones."""


@dataclass(frozen=True)
class LeaderCounts:
    """How many partitions of all topics of a trial each broker leads.

    Attributes:
        counts: broker → partitions that it leads, 0 included.
    """

    counts: Mapping[int, int]

    @property
    def total(self) -> int:
        """Number of partitions."""
        return sum(self.counts.values())

    @property
    def most(self) -> int:
        """Partitions of the broker that leads most."""
        return max(self.counts.values(), default=0)

    @property
    def mean(self) -> float:
        """Mean of all brokers."""
        return self.total / len(self.counts) if self.counts else 0.0

    @property
    def are_even(self) -> bool:
        """Whether each broker is within the tolerance of the mean."""
        # Multiplied out, so that a count on the edge counts as even.
        brokers = len(self.counts)
        return all(
            abs(each * brokers - self.total) * 10 <= self.total * round(TOLERANCE * 10)
            for each in self.counts.values()
        )

    @property
    def caveat(self) -> str:
        """A clause for figures that were measured with these leaders; empty where they are even."""
        if self.are_even:
            return ""
        return f"leaders uneven: {self.most} at most, {self.mean:.3g} on average"


def leader_counts(leaders: Sequence[int], brokers: Sequence[int]) -> LeaderCounts:
    """Counts of leaders.

    Args:
        leaders: leaders of all partitions.
        brokers: all brokers that serve; one that leads nothing has 0.
    """
    counts = Counter(leaders)
    return LeaderCounts({broker: counts[broker] for broker in sorted({*brokers, *counts})})


def grown_partitions(found: LeaderCounts, per_topic: int, planned: int, topics: int = 1) -> int:
    """The number of partitions that each topic should have next; `per_topic` when it is enough.

    Partitions double until the leaders are even, up to `GROWTH_MAX` times the planned ones: more
    partitions even out a random placement, and a placement in turns is even from the beginning.

    Args:
        per_topic: partitions that each topic has.
        planned: partitions that each topic was planned to have.
        topics: number of topics.
    """
    most = min(planned * GROWTH_MAX, LEADERS_MAX // max(1, topics))
    if found.are_even or per_topic >= most:
        return per_topic
    return min(per_topic * 2, most)


def placed(found: Mapping[int, Partition] | None) -> Assignment | None:
    """The placement that a broker reports; None before each partition has a leader.

    The leader comes first and the other replicas in the order of their ids, as brokers that place
    replicas themselves may report them in any order.
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
    """The topics that a trial writes to at the same time; all have the same shape, except in a mix.

    Attributes:
        names: names of the topics.
        message_bytes: size of the messages that are written to them [B].
        replicas: the replicas of the partitions of all topics, numbered through; those that the
            run placed must stay as they are.
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
    def assigned(
        cls,
        names: tuple[str, ...],
        message_bytes: int,
        replicas: Assignment,
        offline: frozenset[int] = frozenset(),
    ) -> TopicSet:
        """Topics whose replicas the run placed, those of each topic alike."""
        of_all = [each for _ in names for each in replicas.values()]
        return cls(names, message_bytes, dict(enumerate(of_all)), offline)

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
            dict(enumerate(each for part in parts for each in part.replicas.values())),
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
            first += len(each.replicas)
        return tuple(found)

    @property
    def partition_names(self) -> dict[int, tuple[str, int]]:
        """The number of each partition → its topic, and its number there."""
        return {
            first + number: each.partitions.of(number)
            for first, each in self.numbered
            for number in each.replicas
        }

    def __str__(self) -> str:
        return format_some(self.names)

    @property
    def partitions(self) -> Partitions:
        """All partitions, numbered through all topics."""
        return Partitions(self.names, self.per_topic)

    @property
    def per_topic(self) -> int:
        """Number of partitions of each topic."""
        return len(self.replicas) // len(self.names)

    @property
    def leaders(self) -> tuple[int, ...]:
        """Broker id that leads partition 0, 1, 2, …, numbered through all topics."""
        return tuple(leader_of(each, self.offline) for each in self.replicas.values())

    @property
    def partition_replicas(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Topic and number of each partition → its replicas, the planned leader first."""
        return {name: self.replicas[number] for number, name in self.partition_names.items()}

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
