"""Two scripted brokers for gates, whose load a test changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jobs.cluster.opening import LastLoad
from jobs.cluster.topic_plan import TopicState
from jobs.cluster.topic_set import TopicReport, TopicSet
from jobs.console.events import RecordingReporter
from jobs.trials.gates import Gates
from metrics.sources.beans import HANDLER_IDLE_NS, UPTIME_MS
from metrics.sources.sample import BrokerSample
from tests.support.contexts import run_context
from tests.support.scripted_source import ScriptedSource

TOPIC = TopicSet(("t",), 100, {0: (1, 2)})
BROKERS = frozenset({1, 2})


class Cluster(ScriptedSource):
    """Two brokers, up for an hour, whose idle fraction and disk a test changes."""

    def __init__(self, idle: float = 1.0, up_s: float = 3_600.0) -> None:
        super().__init__((1, 2), now_s=10_000.0)
        self.idle = idle
        self.written_per_s = 0.0
        self.short = self.lag = self.waiting = 0.0
        self.started_s = self.now_s - up_s
        self._seen_s, self._idle_s, self._written = self.now_s, 0.0, 0.0
        self.checks: list[TopicState] = []

    def sample_all(self) -> list[BrokerSample]:
        self.now_s += 0.01
        passed_s, self._seen_s = self.now_s - self._seen_s, self.now_s
        self._idle_s += self.idle * passed_s
        self._written += self.written_per_s * passed_s
        values = {
            UPTIME_MS: (self.now_s - self.started_s) * 1000.0,
            HANDLER_IDLE_NS: self._idle_s * 1e9,
            "disk_write_bytes": self._written,
            "produce_total_ms_count": 20_000.0,
            "under_replicated_partitions": self.short,
            "replica_max_lag_records": self.lag,
            "request_queue_size": self.waiting,
        }
        return [BrokerSample(i, self.now_s, values) for i in BROKERS]

    def check(self, topic: TopicSet) -> TopicReport:
        state = self.checks.pop(0) if self.checks else TopicState()
        return TopicReport(topic.names[0], state, state, 60.0)


def gates_of(
    cluster: ScriptedSource,
    first: Any = None,
    reporter: RecordingReporter | None = None,
    *,
    is_shared: bool = False,
    last_load: LastLoad | None = None,
) -> Gates:
    """The gates of a scripted cluster."""
    opened = SimpleNamespace(last_load=last_load or LastLoad(), admin=None)
    context = run_context(
        source=cluster, reporter=reporter or RecordingReporter(), cluster=opened, topics=cluster,
        config=SimpleNamespace(cluster=SimpleNamespace(is_exclusive=not is_shared)),
    )  # fmt: skip
    return Gates(context, first, cluster.clock, cluster.pause)
