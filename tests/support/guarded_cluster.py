"""The health of a cluster for guards, as a test sets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from jobs.cluster.health import ClusterHealth, LogDir, Partitions

GB = 10**9


class Cluster(ClusterHealth):
    replicas_interval_s: float = 0.0
    log_dirs_interval_s: float = 0.0

    def __init__(self) -> None:
        self.lacking: Partitions = frozenset()
        self.dirs: tuple[LogDir, ...] = (LogDir(1, "/a", 100 * GB, 50 * GB),)
        self.error: Exception | None = None
        self.hidden: frozenset[str] | None = frozenset()
        self.topics: set[str] = set()
        self.forbidden: set[str] = set()
        self.brokers = frozenset({1, 2, 3})
        self.asked: Counter[str] = Counter()
        self.hangs: dict[int, Callable[[], object]] = {}

    def under_replicated(self) -> Partitions:
        self.asked["replicas"] += 1
        if self.error is not None:
            raise self.error
        return self.lacking

    def log_dirs(self, topics: Sequence[str] = ()) -> tuple[LogDir, ...]:
        self.asked["log dirs"] += 1
        return (
            self.dirs if topics else tuple(replace(d, own_logs=0, own_bytes=0) for d in self.dirs)
        )

    def has_topic(self, name: str, broker: int | None = None) -> bool | None:
        self.asked["topic"] += 1
        self.hangs.get(broker or 0, lambda: None)()
        if self.error is not None:
            raise self.error
        return None if name in self.forbidden else name in self.topics

    def hidden_topics(self) -> frozenset[str] | None:
        return self.hidden

    def broker_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.brokers))

    def serving(self) -> frozenset[int]:
        return self.brokers
