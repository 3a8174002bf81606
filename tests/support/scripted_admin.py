"""An admin client with a cluster in memory, for tests of the requests and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from jobs.cluster.admin import (
    AdminError,
    Broker,
    ClusterInfo,
    DescribedTopic,
    KafkaAdmin,
    Partition,
    TopicSize,
)


class ScriptedAdmin(KafkaAdmin):
    """Three brokers in memory.

    Attributes:
        topics: topic → partition → the state that all brokers see.
        configs: topic → the properties with which it was created.
        requests: requests that change the cluster, in order.
        fail: method → errors that it raises, one per call.
        topics_of_others: names that already exist.
        before_look: called before each look at a topic, so that a test can change the state.
    """

    def __init__(self, broker_ids: Sequence[int] = (1, 2, 3)) -> None:
        self.broker_ids = list(broker_ids)
        self.topics: dict[str, dict[int, Partition]] = {}
        self.properties: dict[str, str | None] = {"max.message.bytes": "1048588"}
        self.requests: list[str] = []
        self.fail: dict[str, list[AdminError]] = {}
        self.before_look: Callable[[], None] = lambda: None
        self.deletes = True
        self.topics_of_others: set[str] = set()
        self.configs: dict[str, dict[str, str]] = {}

    def _may_fail(self, method: str) -> None:
        if self.fail.get(method):
            raise self.fail[method].pop(0)

    def close(self) -> None:
        self.requests.append("close")

    def describe_cluster(self) -> ClusterInfo:
        brokers = tuple(Broker(each, "localhost", 9_000 + each) for each in self.broker_ids)
        return ClusterInfo("scripted", brokers, (), (4, 1))

    def create_topic(
        self,
        topic: str,
        placement: Mapping[int, Sequence[int]] | TopicSize,
        config: Mapping[str, str],
        validate_only: bool = False,
    ) -> dict[str, str | None]:
        self._may_fail("validate" if validate_only else "create_topic")
        if not validate_only:
            if topic in self.topics_of_others:
                cause = "TopicAlreadyExistsError"
                raise AdminError(f"could not do it ({cause})", cause)
            self.requests.append(f"create {topic}")
            self.configs[topic] = dict(config)
            if isinstance(placement, TopicSize):
                raise AssertionError("this cluster follows assignments; see fake_cluster")
            self.topics[topic] = {
                number: Partition(each[0], tuple(each), tuple(each))
                for number, each in placement.items()
            }
        return {**self.properties, **config}

    def delete_topic(self, topic: str) -> None:
        self.requests.append(f"delete {topic}")
        self._may_fail("delete_topic")
        if self.deletes:
            self.topics.pop(topic, None)

    def partitions_seen_by(
        self, broker_id: int, topics: Sequence[str]
    ) -> dict[str, dict[int, Partition] | None]:
        self._may_fail("partitions_seen_by")
        self.before_look()
        return {topic: self.topics.get(topic) for topic in topics}

    def describe_topics(
        self,
        what: str = "look at all topics",
        names: Sequence[str] | None = None,
        broker_id: int | None = None,
        timeout_ms: int = 0,
    ) -> list[DescribedTopic]:
        self._may_fail("describe_topics")
        wanted = self.topics if names is None else names
        return [DescribedTopic(each, self.topics[each]) for each in wanted if each in self.topics]

    def elect_preferred_leaders(self, partitions: Iterable[tuple[str, int]]) -> None:
        wanted = sorted(partitions)
        for topic in sorted({topic for topic, _ in wanted}):
            self.requests.append(f"elect {topic} {[p for of, p in wanted if of == topic]}")
        self._may_fail("elect_preferred_leaders")
        for topic, number in wanted:
            old = self.topics[topic][number]
            self.topics[topic][number] = Partition(old.replicas[0], old.replicas, old.isr)

    def query(self, what: str, request: Any, *_: Any, **_named: Any) -> Any:
        """Take each record as the first, and show no log directory."""
        record = {"error_code": 0, "record_errors": (), "error_message": "", "base_offset": 0}
        return SimpleNamespace(**record, results=())

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {each: each[1] * 10 for each in partitions}


class FakeTime:
    """A clock that advances only in `pause`."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def pause(self, duration_s: float) -> None:
        self.now_s += duration_s
