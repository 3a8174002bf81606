"""The topics that are written to at the same time, and what a check of them found."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.cluster.topic_plan import Assignment, TopicState, leader_of
from jobs.engine.task.partitions import Partitions


@dataclass(frozen=True)
class TopicSet:
    """The topics of this run that are written to at the same time, one or more of the same shape.

    Attributes:
        names: of the topics.
        message_bytes: size of the messages that are written to them [B].
        replicas: of the partitions of each of them; what was assigned, and must stay so.
        away: brokers that are offline on purpose: what they would lead, the next replica leads.
    """

    names: tuple[str, ...]
    message_bytes: int
    replicas: Assignment
    away: frozenset[int] = frozenset()

    def __str__(self) -> str:
        more = len(self.names) - 1
        return f"{self.names[0]}{f' and {more} more' if more else ''}"

    @property
    def partitions(self) -> Partitions:
        """All partitions, numbered through all topics."""
        return Partitions(self.names, len(self.replicas))

    @property
    def leaders(self) -> tuple[int, ...]:
        """Broker id that leads partition 0, 1, 2, …, numbered through all topics."""
        each = tuple(
            leader_of(self.replicas[number], self.away) for number in sorted(self.replicas)
        )
        return each * len(self.names)


@dataclass(frozen=True)
class TopicReport:
    """What a check before a trial found and left.

    Attributes:
        topics: what was checked.
        before: how it differed when the check began.
        after: how it differs now.
        waited_s: how long it took to become well, or until the deadline [s].
        trouble: why the last election failed, or empty.
    """

    topics: str
    before: TopicState
    after: TopicState
    waited_s: float
    trouble: str = ""

    @property
    def ok(self) -> bool:
        """True when a trial may begin."""
        return self.after.healthy

    def sentences(self) -> tuple[str, ...]:
        """Why no trial may begin, a sentence each; empty when one may."""
        if self.ok:
            return ()
        found = (
            f"topic {self.topics} after {self.waited_s:.0f} s: {'; '.join(self.after.sentences())}"
        )
        return (found, self.trouble) if self.trouble else (found,)
