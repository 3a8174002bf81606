"""The topic of the traffic being searched: made fresh, and deleted when it has served."""

from __future__ import annotations

from jobs.axes import Traffic
from jobs.brokers.topics import Topic
from jobs.config import Topic as TopicConfig
from jobs.trials.bench import Bench


class PointTopics:
    """Opens one topic at a time; `close` deletes it and confirms that it is gone."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._topic: Topic | None = None
        self._made_for: tuple[int, TopicConfig] | None = None

    def open(self, traffic: Traffic) -> Topic:
        """The topic for this traffic: the open one where it fits, else a fresh one."""
        wanted = (traffic.bpm, traffic.workload.topic)
        if self._topic is not None and self._made_for == wanted:
            return self._topic
        self.close()
        self._topic = self._bench.topics.create(traffic.workload, traffic.bpm)
        self._made_for = wanted
        return self._topic

    def close(self) -> None:
        """Delete the open topic, if there is one."""
        topic, self._topic = self._topic, None
        self._made_for = None
        if topic is not None:
            self._bench.topics.delete(topic)
