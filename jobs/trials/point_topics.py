"""The topic of the message size being searched: made fresh, warmed up on once, deleted."""

from __future__ import annotations

from jobs.brokers.topics import Topic
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

    def open(self, message_bytes: int) -> Topic:
        """A fresh topic for this message size."""
        bench = self._bench
        self._topic = bench.topics.create(bench.workload, message_bytes)
        if self._warm_up_max_s > 0:
            warm_up(bench, self._topic, self._warm_up_max_s)
            self._warm_up_max_s = 0.0
        return self._topic

    def close(self) -> None:
        """Delete the open topic, if there is one."""
        topic, self._topic = self._topic, None
        if topic is not None:
            self._bench.topics.delete(topic)
