"""The topics of the traffic being searched: made fresh, and deleted when they have served."""

from __future__ import annotations

from jobs.axes import Traffic
from jobs.brokers.topic_set import TopicSet
from jobs.config import Topic as TopicConfig
from jobs.trials.bench import Bench


class PointTopics:
    """Opens the topics of one traffic at a time; `close` deletes them and confirms it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._topics: TopicSet | None = None
        self._made_for: tuple[int, TopicConfig] | None = None

    def open(self, traffic: Traffic) -> TopicSet:
        """The topics for this traffic: the open ones where they fit, else fresh ones."""
        wanted = (traffic.bpm, traffic.workload.topic)
        if self._topics is not None and self._made_for == wanted:
            return self._topics
        self.close()
        self._topics = self._bench.topics.create(traffic.workload, traffic.bpm)
        self._made_for = wanted
        return self._topics

    def close(self) -> None:
        """Delete all topics of the run that are left, those of a creation that failed too."""
        self._topics = self._made_for = None
        self._bench.topics.delete(self._bench.topics.made)
