"""Replicas that a cluster placed itself: what was placed, and whether to add partitions.

Elastic services and clusters with a balancer ignore or refuse assignments. This module decides,
and asks no broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.cluster.admin import NO_LEADER, Partition
from jobs.cluster.topic_plan import Assignment
from metrics.traffic.pattern import LEADERS_MAX

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
