"""The release and the place of the metadata, from the environment of a run."""

from __future__ import annotations

import pytest

from metrics.comparing.release import changed_release, release_of
from metrics.tables.environment import difference

ROLES, ZOOKEEPER = "config.process.roles", "config.zookeeper.connect"
WITH_ZOOKEEPER = {"broker.version": "3.6.2", f"broker.{ZOOKEEPER}": "z:2181"}
WITH_KRAFT = {"broker.version": "4.1.2", f"broker.{ROLES}": "broker"}


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        (WITH_ZOOKEEPER, "Kafka 3.6.2 with ZooKeeper"),
        (WITH_KRAFT, "Kafka 4.1.2 with KRaft"),
        (
            {"broker.version": "4.1.2", f"broker.{ROLES}": "broker,controller"},
            "Kafka 4.1.2 with KRaft controllers in brokers",
        ),
        (
            {
                "broker.1.version": "3.10.0",
                "broker.2.version": "3.9.2",
                "broker.3.version": "3.9.2",
                f"broker.{ROLES}": "broker",
            },
            "Kafka 3.9.2 and 3.10.0 with KRaft",
        ),
        (
            {
                "broker.version": "3.9.2",
                f"broker.1.{ROLES}": "broker",
                f"broker.2.{ZOOKEEPER}": "z:2181",
            },
            "Kafka 3.9.2 with ZooKeeper and KRaft",
        ),
        ({"broker.version": "4.1", "broker.config": "unreadable"}, "Kafka 4.1"),
        (
            {
                "broker.version": "4.1",
                "broker.config": "unreadable",
                "cluster.metadata.version": "27",
            },
            "Kafka 4.1 with KRaft",
        ),
        ({f"broker.{ROLES}": "broker"}, "Kafka with KRaft"),
        ({"controller.version": "4.1.2", "spark.version": "4.1.0"}, ""),
    ],
)
def test_the_release_is_read_from_the_facts(environment: dict[str, str], text: str) -> None:
    assert release_of(environment).text == text


def test_only_changed_facts_are_named() -> None:
    zookeeper, kraft = release_of(WITH_ZOOKEEPER), release_of(WITH_KRAFT)
    assert changed_release(zookeeper, kraft) == (
        "Kafka 3.6.2 with ZooKeeper",
        "Kafka 4.1.2 with KRaft",
    )
    newer = release_of({**WITH_KRAFT, "broker.version": "4.3.1"})
    assert changed_release(kraft, newer) == ("Kafka 4.1.2", "Kafka 4.3.1")
    moved = release_of({**WITH_KRAFT, "broker.version": "3.6.2"})
    assert changed_release(zookeeper, moved) == (
        "Kafka 3.6.2 with ZooKeeper",
        "Kafka 3.6.2 with KRaft",
    )
    assert changed_release(kraft, kraft) is None


def test_an_unknown_fact_has_not_changed() -> None:
    kraft, unknown = release_of(WITH_KRAFT), release_of({})
    assert changed_release(kraft, unknown) is None
    assert changed_release(unknown, kraft) is None
    bare = release_of({"broker.version": "4.1.2"})
    assert changed_release(kraft, bare) is None


def test_the_address_of_zookeeper_is_no_difference() -> None:
    other = {**WITH_ZOOKEEPER, f"broker.{ZOOKEEPER}": "other:2181"}
    assert difference(WITH_ZOOKEEPER, other) == ()
    before = {f"broker.1.{ZOOKEEPER}": "z:2181", "broker.1.cores": "4"}
    after = {f"broker.1.{ZOOKEEPER}": "other:2181", "broker.1.cores": "8"}
    (found,) = difference(before, after)
    assert found.name == "broker.1.cores"
