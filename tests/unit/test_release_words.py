"""The release and the place of the metadata, from the environment of a run."""

from __future__ import annotations

from metrics.comparing.cause import changed_release, release_of
from metrics.tables.rows import difference

ROLES, ZOOKEEPER = "config.process.roles", "config.zookeeper.connect"
WITH_ZOOKEEPER = {"broker.version": "3.6.2", f"broker.{ZOOKEEPER}": "z:2181"}
WITH_KRAFT = {"broker.version": "4.1.2", f"broker.{ROLES}": "broker"}


def test_the_release_is_read_from_the_facts() -> None:
    version, roles, zookeeper = "broker.version", f"broker.{ROLES}", f"broker.2.{ZOOKEEPER}"
    several = {f"broker.{n}.version": v for n, v in enumerate(("3.10.0", "3.9.2", "3.9.2"), 1)}
    unreadable = {version: "4.1", "broker.config": "unreadable"}
    cases: list[tuple[dict[str, str], str]] = [
        (WITH_ZOOKEEPER, "Kafka 3.6.2 with ZooKeeper"),
        (WITH_KRAFT, "Kafka 4.1.2 with KRaft"),
        ({version: "4.1.2", roles: "broker,controller"},
         "Kafka 4.1.2 with KRaft controllers in brokers"),
        ({**several, roles: "broker"}, "Kafka 3.9.2 and 3.10.0 with KRaft"),
        ({version: "3.9.2", f"broker.1.{ROLES}": "broker", zookeeper: "z:2181"},
         "Kafka 3.9.2 with ZooKeeper and KRaft"),
        (unreadable, "Kafka 4.1"),
        ({**unreadable, "cluster.metadata.version": "27"}, "Kafka 4.1 with KRaft"),
        ({roles: "broker"}, "Kafka with KRaft"),
        ({"controller.version": "4.1.2", "spark.version": "4.1.0"}, ""),
    ]  # fmt: skip
    for environment, text in cases:
        assert release_of(environment).text == text


def test_only_changed_facts_are_named() -> None:
    zookeeper, kraft = release_of(WITH_ZOOKEEPER), release_of(WITH_KRAFT)
    both = ("Kafka 3.6.2 with ZooKeeper", "Kafka 4.1.2 with KRaft")
    newer = release_of({**WITH_KRAFT, "broker.version": "4.3.1"})
    moved = release_of({**WITH_KRAFT, "broker.version": "3.6.2"})
    bare, unknown = release_of({"broker.version": "4.1.2"}), release_of({})
    assert changed_release(zookeeper, kraft) == both
    assert changed_release(kraft, newer) == ("Kafka 4.1.2", "Kafka 4.3.1")
    assert changed_release(zookeeper, moved) == (both[0], "Kafka 3.6.2 with KRaft")
    for before, after in ((kraft, kraft), (kraft, unknown), (unknown, kraft), (kraft, bare)):
        assert changed_release(before, after) is None


def test_the_address_of_zookeeper_is_no_difference() -> None:
    before = {f"broker.1.{ZOOKEEPER}": "z:2181", f"broker.{ZOOKEEPER}": "z:2181", "cores": "4"}
    after = dict.fromkeys(before, "other:2181") | {"cores": "8"}
    assert [each.name for each in difference(before, after)] == ["cores"]
