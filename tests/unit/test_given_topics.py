"""Topics of `cluster.topics`: checked before any load, used as they are, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.checks.cluster import permission_rules
from jobs.cluster.admin import NO_LEADER, AdminError, KafkaAdmin, Partition
from jobs.cluster.given_topics import fitted, given_topics, notes, warnings
from jobs.cluster.permissions import Permission
from jobs.cluster.topic_plan import leftovers, mark_of, topic_name
from jobs.cluster.topics import TopicError, Topics
from jobs.config import Cluster, Configuration, load
from jobs.console.events import RecordingReporter
from jobs.features.sweep.cases import load_sweep
from jobs.runs.estimate import plan_of
from jobs.trials.canaries import NO_CANARIES, open_canaries
from jobs.trials.context import RunContext
from jobs.trials.point_topics import PointTopics
from metrics.common.errors import ConfigError
from metrics.planning.load_needs import peak_log_bytes
from tests.support.scripted_admin import FakeTime, ScriptedAdmin

PROPERTIES = {
    "retention.ms": "3600000",
    "retention.bytes": "-1",
    "segment.bytes": "1048576",
    "min.insync.replicas": "2",
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
}
KEYS = ["workload.payload.key_bytes=8", "workload.producer.partitioner_ignore_keys=true"]
MIX = """
mix:
  small: {producers: 2, message_bytes: 100, producer: {rate_bytes_per_s: 10000},
          topic: {replication_factor: 1, count: 2}}
  large: {producers: 2, message_bytes: 9000, producer: {rate_bytes_per_s: 900000},
          topic: {replication_factor: 1}}
trial: {warmup_s: 2, measure_s: 8}
"""


@dataclass
class Existing(ScriptedAdmin):
    """Three brokers with topics that others made.

    Attributes:
        properties_of: topic → its properties; None where this user may not read them.
        records: topic → records in each of its partitions.
    """

    properties_of: dict[str, dict[str, str] | None] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def add(
        self, name: str, leaders: Sequence[int] = (1, 2, 3, 1, 2, 3), replicas: int = 2
    ) -> None:
        self.topics[name] = {
            number: Partition(
                leader,
                (held := tuple((leader - 1 + each) % 3 + 1 for each in range(replicas))),
                held,
            )
            for number, leader in enumerate(leaders)
        }
        self.properties_of[name] = dict(PROPERTIES)

    def topic_names(self) -> frozenset[str]:
        return frozenset(self.topics)

    def broker_config(
        self, broker_id: int, names: Sequence[str] | None = None
    ) -> dict[str, str | None]:
        return {}

    def empty_groups(self) -> frozenset[str]:
        return frozenset()

    def topic_config(self, topic: str, names: Sequence[str] | None = None) -> dict[str, Any]:
        found = self.properties_of[topic]
        if found is None:
            raise AdminError("could not read them", "TopicAuthorizationFailedError")
        return {name: found.get(name) for name in names or found}

    def begin_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        ends = self.end_offsets(partitions)
        return {each: end - self.records.get(each[0], 0) for each, end in ends.items()}


@pytest.fixture
def admin() -> Existing:
    made = Existing()
    made.add("load")
    return made


def config(
    tmp_path: Path, *keys: str, workload: str = "demo", overrides: Sequence[str] = ()
) -> Any:
    path = tmp_path / "shared.yaml"
    keys = ("bootstrap_servers: [localhost:9092]", "jmx: {port: 9999}", *keys)
    path.write_text("\n".join(keys))
    return load(str(path), workload, "default", overrides)


def described(admin: Existing, cluster: Cluster) -> str:
    with pytest.raises(ConfigError) as caught:
        given_topics(admin, cluster)
    return str(caught.value)


def used(admin: Existing, asked: Configuration, losable: int = 0) -> tuple[Configuration, Topics]:
    given, clock = given_topics(admin, asked.cluster), FakeTime()
    topics = Topics(admin, "run1", clock, clock.pause, given=given, losable=losable)
    return fitted(asked, given), topics


def test_what_keeps_a_load_from_a_given_topic(
    admin: Existing, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    cluster = config(tmp_path, "topics: [load]").cluster
    (found,) = given_topics(admin, cluster)
    assert (found.records, found.trouble) == (0, "")
    admin.records["load"] = 7
    held = described(admin, cluster)
    allowed = config(tmp_path, "topics: [load]", "topics_hold_data: true").cluster
    assert given_topics(admin, allowed)[0].records == 42
    assert given_topics(admin, cluster, may_hold_data=True)[0].records == 42, "its own run's"
    admin.topics["load"][4] = replace(admin.topics["load"][4], leader=NO_LEADER)
    leaderless = described(admin, cluster)
    del admin.topics["load"]
    missing = described(admin, cluster)
    hidden = AdminError("it is hidden", "TopicAuthorizationFailedError")
    admin.fail["partitions_seen_by"] = [hidden]
    assert [held, leaderless, missing, described(admin, cluster)] == snapshot
    owners = config(tmp_path, "topics: [redline-owner]").cluster
    assert "bounds of the cluster's owner" in described(admin, owners)


def test_the_topics_own_shape_replaces_the_workloads(
    admin: Existing, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    asked = config(tmp_path, "topics: [load]")
    offline, keeper = used(admin, asked, losable=1)
    with pytest.raises(ConfigError, match=r"2 replicas, of which the run stops 1 .*replicas 2; "):
        keeper.validate(offline.heaviest(1_000))
    admin.records["load"] = 3
    own, topics = used(admin, replace(asked, cluster=asked.cluster.model_copy(
        update={"topics_hold_data": True}
    )))  # fmt: skip
    topic = own.workload.topic
    assert (topic.partitions_per_broker, topic.replication_factor) == (2, 2)
    assert topic.properties == PROPERTIES
    opened = topics.create(own.heaviest(1_000))
    assert opened.names == ("load",)
    fit = opened.fit(asked.pattern(1_000, 4, 3))
    assert (fit.topic, fit.brokers) == (topic, 3), "also for a configuration that was not fitted"
    # Retention by size no longer bounds the disk space of a load.
    written = fit.written_bytes(fit.planned_records)
    assert written <= peak_log_bytes(fit) < 1.1 * written
    assert notes(asked, given_topics(admin, asked.cluster, True)) == snapshot
    assert warnings(given_topics(admin, asked.cluster, True)) == []


def test_a_mix_takes_the_given_topics_in_their_order(admin: Existing, tmp_path: Path) -> None:
    (tmp_path / "mixed.yaml").write_text(MIX)
    for name, leaders in (("b", (1, 2, 3)), ("c", (3, 2, 1)), ("a", (1, 2, 3, 1, 2, 3))):
        admin.add(name, leaders)
    asked = config(tmp_path, "topics: [b, c, a]", workload=str(tmp_path / "mixed.yaml"))
    own, topics = used(admin, asked)
    opened = topics.create(own.heaviest(1_000))
    assert [part.names for part in opened.parts] == [("b", "c"), ("a",)]
    assert [part.topic.partitions_per_broker for part in own.workload.parts] == [1, 2]
    assert own.workload.topic == own.workload.parts[1].topic, "that of the largest part"
    assert len(topics.refresh(opened).leaders) == 12
    with pytest.raises(ConfigError, match="writes to 3 topics"):
        config(tmp_path, "topics: [b, c]", workload=str(tmp_path / "mixed.yaml"))
    unequal = config(tmp_path, "topics: [b, a, c]", workload=str(tmp_path / "mixed.yaml"))
    with pytest.raises(ConfigError, match="different numbers of partitions"):
        used(admin, unequal)


def test_uneven_leaders_and_unknown_properties_are_said(
    admin: Existing, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    asked = config(tmp_path, "topics: [load]")
    admin.add("load", (1, 1, 2, 1))
    admin.properties_of["load"] = None
    given = given_topics(admin, asked.cluster)
    assert [*notes(asked, given), *warnings(given)] == snapshot
    _, topics = used(admin, asked)
    topics.create(asked.heaviest(1_000))
    assert topics.caveats == ("leaders uneven: 3 at most, 1.33 on average",)


ALL = ["workload.producer.acks=all"]


@pytest.mark.parametrize(
    ("properties", "replicas", "overrides", "words"),
    [
        ({}, 1, ALL, "1 replicas and the workload has acks=all, and the brokers require min."),
        ({}, 2, ALL, ""),
        ({"max.message.bytes": "5000"}, 2, [], "name another topic"),
        ({"cleanup.policy": "compact,delete"}, 2, [], "without keys"),
        ({"cleanup.policy": "compact"}, 2, KEYS, ""),
    ],
)
def test_loads_that_the_topic_would_refuse_are_refused(
    admin: Existing,
    tmp_path: Path,
    properties: dict[str, str],
    replicas: int,
    overrides: list[str],
    words: str,
) -> None:
    admin.add("load", replicas=replicas)
    admin.properties_of["load"] = PROPERTIES | properties
    asked, topics = used(admin, config(tmp_path, "topics: [load]", overrides=overrides))
    if not words:
        topics.validate(asked.heaviest(1_000))
        return
    with pytest.raises(ConfigError, match=words) as caught:
        topics.validate(asked.heaviest(1_000))
    assert "--set workload.topic" not in str(caught.value)


def test_a_run_requests_no_change_of_a_given_topic(admin: Existing, tmp_path: Path) -> None:
    own, topics = used(admin, config(tmp_path, "topics: [load]"))
    topics.validate(own.heaviest(100))
    context = SimpleNamespace(
        topics=topics, reporter=RecordingReporter(), generator=SimpleNamespace(groups=set())
    )
    points = PointTopics(cast(RunContext, context))
    with points:
        for message_bytes in (100, 1_000):
            opened = points.open(own.pattern(message_bytes, 2, 3))
            part = admin.topics["load"][0]
            admin.topics["load"][0] = replace(part, leader=2)
            assert not topics.check(opened, deadline_s=5.0).ok
            again = points.open(own.pattern(message_bytes, 4, 3))
            assert again.leaders[0] == 2, "the leader that it has now"
            assert topics.check(again).ok
            admin.topics["load"][0] = part
    with pytest.raises(TopicError, match="was not created by run run1"):
        topics.delete(["load"])
    assert (topics.made, admin.requests) == ((), [])


def test_cleanup_lists_nothing_about_a_given_topic(admin: Existing) -> None:
    name = topic_name("20260921-141320-8c1c", 1_000, 10)
    admin.add(name)
    admin.properties_of[name] = mark_of("20260921-141320-8c1c", is_locked=True)
    assert [each.name for each in leftovers(cast(KafkaAdmin, admin), "redline-")] == [name]
    assert leftovers(cast(KafkaAdmin, admin), "redline-", (name,)) == []


def test_configurations_that_do_not_fit_given_topics(tmp_path: Path) -> None:
    config(tmp_path, "topics: [load]")
    path = tmp_path / "replicas.yaml"
    path.write_text(
        f"description: replicas\nasks: limit\ncluster: {tmp_path / 'shared.yaml'}\n"
        "workload: demo\ngoal: default\naxes: {workload.topic.replication_factor: [1, 2]}\n"
    )
    with pytest.raises(ConfigError, match="does not change existing topics"):
        load_sweep(str(path))


def test_the_plan_counts_all_bytes_of_a_given_topic(tmp_path: Path) -> None:
    plan, before = (plan_of(config(tmp_path, *keys)) for keys in (("topics: [load]",), ()))
    assert plan.disk_bytes_max == plan.write_bytes_max == before.write_bytes_max
    assert plan.disk_bytes_max != before.disk_bytes_max
    assert any("load (cluster.topics)" in each for each in plan.notes)


def test_canaries_that_may_not_be_created_are_missing_and_leave_nothing(admin: Existing) -> None:
    refused = "could not create the topic (TopicAuthorizationFailedError)"
    admin.fail["create_topic"] = [AdminError(refused, "TopicAuthorizationFailedError")]
    said: list[str] = []
    with ExitStack() as stack:
        mark: dict[str, str] = {}
        assert open_canaries(admin, "redline-run1", 1, {}, stack, said.append, mark) is None
    assert said == [f"{NO_CANARIES}: {refused}"]
    assert admin.requests == [], "not even a deletion"
    lacking = Permission("write", "Write on topic", False, topic="load")
    (found,) = permission_rules([lacking], "redline-")
    assert "the ACL Write on topic load" in found.sentence and "prefix" not in found.sentence
