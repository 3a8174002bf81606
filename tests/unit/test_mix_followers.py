"""Followers that fall behind in a mix whose parts have different replication factors."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import Topics
from metrics.trial.evidence import FollowerLag, ReplicaEnds

ORDERS = TopicSet(("orders",), 100, {0: (1, 2, 3), 1: (2, 3, 1)})
LOGS = TopicSet.assigned(("logs-1", "logs-2"), 100, {0: (3,)})
CLICKS = TopicSet(("clicks",), 100, {0: (1, 3)})
MIX = TopicSet.of_parts((ORDERS, LOGS, CLICKS), 100)
Held = dict[int, Iterable[tuple[str, int]]]


class Brokers:
    """Brokers by the records of each partition and what a broker lacks of them."""

    def __init__(self) -> None:
        self.records = 0
        self.lacking: dict[tuple[int, str], int] = {}
        self.hidden: tuple[int, str] | None = None
        self.held: Held = {}

    def replica_ends(self, held: Held) -> dict[int, dict[tuple[str, int], int]]:
        self.held = {broker: list(names) for broker, names in held.items()}
        return {
            broker: {
                (topic, number): self.records - self.lacking.get((broker, topic), 0)
                for topic, number in names
                if (broker, topic) != self.hidden
            }
            for broker, names in self.held.items()
        }


def ends(brokers: object, topics: TopicSet = MIX) -> ReplicaEnds | None:
    return Topics(cast(KafkaAdmin, brokers), "run").replica_ends(topics)


def test_each_broker_is_asked_for_its_replicas_and_compared_with_the_leaders() -> None:
    brokers = Brokers()
    first = ends(brokers)
    brokers.records, brokers.lacking = 100, {(3, "clicks"): 40}
    last = ends(brokers)
    assert {broker: len(list(names)) for broker, names in brokers.held.items()} == (
        {1: 3, 2: 2, 3: 5}
    )
    assert first is not None and last is not None
    assert last.written == {1: 100, 2: 100, 3: 300}
    assert last.copied == {1: 100, 2: 100, 3: 260}
    lag = FollowerLag.between(first, last)
    assert lag is not None
    assert (lag.broker_id, lag.followers) == (3, 3)
    assert lag.share == pytest.approx(40 / 500)


def test_the_lag_is_unknown_where_a_replica_is_not_reported() -> None:
    brokers = Brokers()
    brokers.hidden = (2, "orders")
    assert ends(brokers) is None

    def refuse(_: object) -> None:
        raise AdminError("no answer", "KafkaTimeoutError")

    assert ends(SimpleNamespace(replica_ends=refuse)) is None


def test_without_followers_no_broker_is_asked() -> None:
    assert ends(None, LOGS) is None
