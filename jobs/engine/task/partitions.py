"""Numbers for the partitions of all topics of a trial.

Everything between the wire and the tables knows a partition by its number alone: partition p of
topic t has the number t · (partitions of a topic) + p. With one topic, that is p itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Partitions:
    """The topics of a trial, which all have the same number of partitions.

    Attributes:
        topics: their names, in the order in which producers take them.
        per_topic: number of partitions of each topic.
    """

    topics: tuple[str, ...]
    per_topic: int

    @cached_property
    def _firsts(self) -> dict[str, int]:
        return {topic: index * self.per_topic for index, topic in enumerate(self.topics)}

    def __len__(self) -> int:
        """Number of partitions of all topics together."""
        return len(self.topics) * self.per_topic

    def number(self, topic: str, partition: int) -> int | None:
        """The number of a partition; None if it does not belong to the trial."""
        first = self._firsts.get(topic)
        if first is None or not 0 <= partition < self.per_topic:
            return None
        return first + partition

    def of(self, number: int) -> tuple[str, int]:
        """The topic of a number, and the partition in that topic."""
        return self.topics[number // self.per_topic], number % self.per_topic

    def topic_of(self, producer: int) -> tuple[str, range]:
        """The topic that a producer writes to, and the numbers of its partitions.

        Producers take the topics in turns, so that they spread evenly, up to one.
        """
        index = producer % len(self.topics)
        first = index * self.per_topic
        return self.topics[index], range(first, first + self.per_topic)
