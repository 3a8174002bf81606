"""The topic of the message size being searched: made fresh, warmed up on once, deleted."""

from __future__ import annotations

from jobs.bench import Bench
from jobs.load import Target
from jobs.measure import wait_until_idle
from jobs.reporter_model import PhaseStarted
from jobs.topics import Topic


class PointTopics:
    """Opens one topic at a time; `close` deletes it and confirms that it is gone.

    Args:
        warm_up_s: load on the first topic before its first trial [s]; the JVMs of brokers
            that have just started reach less than half of their speed.
    """

    def __init__(self, bench: Bench, warm_up_s: float) -> None:
        self._bench = bench
        self._warm_up_s = warm_up_s
        self._topic: Topic | None = None

    def open(self, message_bytes: int) -> Topic:
        """A fresh topic for this message size."""
        bench = self._bench
        self._topic = bench.topics.create(bench.workload, message_bytes)
        if self._warm_up_s:
            self._warm_up(self._topic)
            self._warm_up_s = 0.0
        return self._topic

    def close(self) -> None:
        """Delete the open topic, if there is one."""
        topic, self._topic = self._topic, None
        if topic is not None:
            self._bench.topics.delete(topic)

    def _warm_up(self, topic: Topic) -> None:
        bench = self._bench
        bench.reporter.report(PhaseStarted("warming up the brokers' JVMs"))
        target = Target(topic.name, topic.leaders, bench.addresses)
        np = max(1, bench.goal.search.np_start_max // 2)
        name = f"{bench.run_id}-warm-up"
        bench.generator.offer(name, target, topic.message_bytes, np, 0.0, self._warm_up_s)
        wait_until_idle(bench)
