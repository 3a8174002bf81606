"""The topics that a trial writes to, and the result of their check."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.cluster.topic_plan import Assignment, TopicState, leader_of
from jobs.engine.task.partitions import Partitions


@dataclass(frozen=True)
class TopicSet:
    """The topics that a trial writes to at the same time; all have the same shape.

    Attributes:
        names: names of the topics.
        message_bytes: size of the messages that are written to them [B].
        replicas: the assignment of the partitions of each topic, which must stay as it is.
        offline: brokers that are offline on purpose; the next replica leads in their place.
    """

    names: tuple[str, ...]
    message_bytes: int
    replicas: Assignment
    offline: frozenset[int] = frozenset()

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
            leader_of(self.replicas[number], self.offline) for number in sorted(self.replicas)
        )
        return each * len(self.names)


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
