"""The topic of the traffic being searched: made fresh, warmed up on once, deleted."""

from __future__ import annotations

from jobs.axes import Traffic
from jobs.brokers.topics import Topic
from jobs.config import Topic as TopicConfig
from jobs.trials.bench import Bench
from jobs.trials.warm_up import warm_up


class PointTopics:
    """Opens one topic at a time; `close` deletes it and confirms that it is gone.

    Args:
        warm_up_max_s: load on the first topic before its first trial, at most [s]; for
            brokers that have just started.
    """

    def __init__(self, bench: Bench, warm_up_max_s: float) -> None:
        self._bench = bench
        self._warm_up_max_s = warm_up_max_s
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
        if self._warm_up_max_s > 0:
            warm_up(self._bench, self._topic, self._warm_up_max_s)
            self._warm_up_max_s = 0.0
        return self._topic

    def close(self) -> None:
        """Delete the open topic, if there is one."""
        topic, self._topic = self._topic, None
        self._made_for = None
        if topic is not None:
            self._bench.topics.delete(topic)
