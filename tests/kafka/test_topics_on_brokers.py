"""Topics on real brokers: one, several, over racks, and their leaders."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import TopicPartition

from jobs.cluster.admin import AdminError, KafkaAdmin, Partition
from jobs.cluster.connect import connect
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.common.errors import ConfigError
from metrics.traffic.clients import ClientName, ConsumerOptions
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow, merge
from tests.support.engine_bench import mismatches
from tests.support.patterns import plan
from tests.support.processes import becomes
from tests.support.threads_barrier import run_stage

pytestmark = pytest.mark.together


@pytest.fixture
def topics(admin: KafkaAdmin) -> Iterator[Topics]:
    keeper = Topics(admin, f"test-{uuid.uuid4().hex[:8]}")
    yield keeper
    keeper.delete(keeper.made)


@pytest.fixture
def pattern() -> TrafficPattern:
    return load_workload("demo").pattern(1_000)


@pytest.fixture
def topic(topics: Topics, pattern: TrafficPattern) -> TopicSet:
    return topics.create(pattern)


def seen_by(admin: KafkaAdmin, broker: int, topic: TopicSet) -> dict[int, Partition] | None:
    (seen,) = admin.partitions_seen_by(broker, topic.names).values()
    return seen


def reassign(admin: KafkaAdmin, topic: TopicSet, partition: int, replicas: tuple[int, ...]) -> None:
    """Reassign a partition, like an operator who moves replicas during a run."""
    key = TopicPartition(topic.names[0], partition)
    assert admin.client.alter_partition_reassignments({key: list(replicas)}) == {key: None}
    deadline = time.monotonic() + 20
    for broker in set(topic.leaders):
        while (seen := seen_by(admin, broker, topic)) is None or (
            seen[partition].replicas != replicas
        ):
            assert time.monotonic() < deadline, f"broker {broker} still sees {seen}"
            time.sleep(0.05)


def test_the_cluster_is_described(kafka_testbed: Testbed, admin: KafkaAdmin) -> None:
    info = admin.describe_cluster()
    assert info.broker_ids == kafka_testbed.broker_ids
    assert info.fenced == ()
    assert {f"{host}:{port}" for host, port in info.addresses.values()} == set(
        kafka_testbed.bootstrap_servers
    )
    version = tuple(int(part) for part in kafka_testbed.state.spec.kafka_version.split(".")[:2])
    assert info.api_version[:2] == version
    config = admin.broker_config(info.broker_ids[0])
    assert int(config["replica.lag.time.max.ms"] or 0) > 0


def test_every_broker_leads_ten_partitions_and_follows_ten(
    kafka_testbed: Testbed, admin: KafkaAdmin, topic: TopicSet
) -> None:
    for broker in kafka_testbed.broker_ids:
        seen = seen_by(admin, broker, topic)
        assert seen is not None
        assert Counter(each.leader for each in seen.values()) == dict.fromkeys(
            kafka_testbed.broker_ids, 10
        )
        followers = Counter(each.replicas[1] for each in seen.values())
        assert followers == dict.fromkeys(kafka_testbed.broker_ids, 10)
        assert all(set(each.isr) == set(each.replicas) for each in seen.values())
        assert tuple(seen[number].leader for number in sorted(seen)) == topic.leaders
    config = admin.topic_config(topic.names[0])
    assert config["segment.bytes"] == load_workload("demo").topic.config["segment.bytes"]


def test_a_leader_that_moved_is_elected_back(
    admin: KafkaAdmin, topics: Topics, topic: TopicSet
) -> None:
    assert topics.check(topic).ok
    first, second = topic.replicas[0]
    reassign(admin, topic, 0, (second, first))
    shown = topics.check(topic, deadline_s=1)
    assert not shown.ok
    assert shown.after.reassigned == (0,)
    assert "partition 0 with other replicas than assigned" in shown.sentences()[0]

    admin.elect_preferred_leaders([(topic.names[0], 0)])
    reassign(admin, topic, 0, (first, second))
    report = topics.check(topic, deadline_s=30)
    assert report.ok, report.sentences()
    assert report.before.moved == (0,)
    for broker in set(topic.leaders):
        seen = seen_by(admin, broker, topic)
        assert seen is not None
        assert seen[0].leader == first


def test_a_deleted_topic_is_unknown_to_every_broker(
    kafka_testbed: Testbed, admin: KafkaAdmin, topics: Topics, topic: TopicSet
) -> None:
    topics.delete(topic.names)
    assert topic.names[0] not in admin.topic_names()
    for broker in kafka_testbed.broker_ids:
        assert seen_by(admin, broker, topic) is None
    assert topics.made == ()
    assert not topics.check(topic, deadline_s=0).ok
    assert topic.names[0] not in admin.topic_names(), "a check does not create the topic"


def test_a_topic_that_exists_is_not_taken_over(
    admin: KafkaAdmin, topics: Topics, topic: TopicSet, pattern: TrafficPattern
) -> None:
    run_id = topic.names[0].removeprefix("redline-").rsplit("-", 2)[0]
    with pytest.raises(AdminError, match="TopicAlreadyExistsError"):
        Topics(admin, run_id).create(pattern)
    assert topics.check(topic).ok


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("topic.config.no.such.property=1", "Unknown topic config name: no.such.property"),
        ("topic.config.retention.bytes=many", "Invalid value many"),
        (
            "topic.config.max.message.bytes=500",
            "--set workload.topic.config.max.message.bytes=16384",
        ),
        ("topic.replication_factor=4", "the cluster has 3 serving brokers"),
    ],
)
def test_an_unwritable_topic_is_refused_and_not_created(
    admin: KafkaAdmin, topics: Topics, override: str, part: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        topics.create(load_workload("demo", [f"workload.{override}"]).pattern(1_000))
    assert part in str(caught.value)
    assert topics.made == ()
    assert not [name for name in admin.topic_names() if name.startswith("redline-test-")]


BROKERS = 3
LEADERS = 10
CASES = [("4.1.2", 2, 2), ("4.1.2", 3, 2), ("4.1.2", 2, 3), ("2.8.2", 2, 2)]


@pytest.mark.long
@pytest.mark.parametrize(("version", "racks", "replication"), CASES)
def test_replicas_are_spread_over_racks_and_each_broker_leads_ten(
    version: str, racks: int, replication: int
) -> None:
    small = {"racks": racks, "heap_mb": 256}
    workload = load_workload("demo", [f"workload.topic.replication_factor={replication}"])
    with (
        start("calibrated", brokers=BROKERS, kafka_version=version, overrides=small) as testbed,
        connect(testbed.bootstrap_servers) as admin,
    ):
        rack_of = {each.id: each.rack for each in admin.describe_cluster().brokers}
        assert rack_of == {i: f"rack-{(i - 1) % racks + 1}" for i in range(1, BROKERS + 1)}
        topics = Topics(admin, f"racks-{uuid.uuid4().hex[:8]}")
        made = topics.create(workload.pattern(1_000))
        try:
            assert not made.is_own_placement
            for broker in rack_of:
                (seen,) = admin.partitions_seen_by(broker, made.names).values()
                assert seen is not None
                led = Counter(each.leader for each in seen.values())
                assert led == dict.fromkeys(rack_of, LEADERS)
                for each in seen.values():
                    assert len(set(each.replicas)) == replication
                    assert set(each.isr) == set(each.replicas)
                    held = {rack_of[replica] for replica in each.replicas}
                    assert len(held) == min(racks, replication)
            assert topics.check(made).ok
        finally:
            topics.delete(made.names)


TOPICS = 3
PATTERN = load_workload(
    "demo", [f"workload.topic.count={TOPICS}", "workload.topic.partitions_per_broker=2"]
).pattern(1_000)
LIBRARIES = [pytest.param(name, marks=pytest.mark.long) for name in ("kafka-python", "librdkafka")]
RATE_RECORDS_PER_S = 200.0


@pytest.fixture
def keeper(admin: KafkaAdmin) -> Iterator[Topics]:
    made = Topics(admin, f"several-{uuid.uuid4().hex[:6]}")
    yield made
    made.delete(made.made)


def run(
    admin: KafkaAdmin, keeper: Topics, topics: TopicSet, producers: int, **fields: Any
) -> ClientWindow:
    trial = plan(
        trial_id=uuid.uuid4().hex[:8],
        topics=topics.names,
        leaders=topics.leaders,
        brokers=admin.describe_cluster().addresses,
        start_lead_s=1.0,
        end_offsets=keeper.end_offsets(topics),
        producers=producers,
        message_bytes=1_000,
        rate_records_per_s=RATE_RECORDS_PER_S,
        pool_bytes=200_000,
        warmup_s=0.5,
        measure_s=1.5,
        **fields,
    )
    rows = run_stage(trial)
    assert [row.error for row in rows] == [None] * len(rows)
    return merge(rows)


def by_topic(topics: TopicSet, records: dict[int, int]) -> list[int]:
    """Sums of the records by topic; the numbers of partitions run over all topics."""
    sums = dict.fromkeys(topics.names, 0)
    for number, count in records.items():
        sums[topics.partitions.of(number)[0]] += count
    return list(sums.values())


@pytest.mark.parametrize("client", ["wire", *LIBRARIES])
@pytest.mark.parametrize("members", [2, 7])
def test_producers_write_to_the_topics_in_turns_and_every_group_reads_all(
    admin: KafkaAdmin, keeper: Topics, client: ClientName, members: int
) -> None:
    topics = keeper.create(PATTERN)
    assert len(topics.leaders) == 18
    # A topic has 6 partitions, so that 7 members share the topics.
    consumers = ConsumerOptions(
        groups=1, members=members, client=client, check_crcs=client == "wire"
    )
    seen = run(admin, keeper, topics, 5, client=client, consumers=consumers, consumer_tasks=1)
    ends = keeper.end_offsets(topics)
    acked = seen.counts.acked_by_partition
    assert acked == {number: end for number, end in ends.items() if end}
    # Producers 0 and 3 write to the first topic, 1 and 4 to the second, 2 to the third; on a busy
    # machine fewer records than scheduled.
    by = seen.counts.by_producer.acked
    assert by_topic(topics, acked) == [by[0] + by[3], by[1] + by[4], by[2]]
    assert all(0 < by[producer] <= RATE_RECORDS_PER_S * 2.0 for producer in range(5))
    (group,) = seen.groups
    assert group.records_total == seen.counts.acked_total == sum(ends.values())
    assert (group.reread_records, group.counts.errors) == (0, {})
    assert mismatches(seen, dict.fromkeys(ends, 0), ends) == []


def test_a_deleted_topic_is_named_and_the_others_are_deleted(
    admin: KafkaAdmin, keeper: Topics
) -> None:
    topics = keeper.create(PATTERN)
    assert keeper.check(topics).ok
    admin.delete_topic(topics.names[1])
    assert becomes(lambda: topics.names[1] not in admin.topic_names())
    report = keeper.check(topics, deadline_s=1.0)
    assert report.after.missing == tuple(range(6, 12))
    assert "and 2 more" in report.sentences()[0]
    keeper.delete(topics.names)
    assert keeper.made == ()
    assert not set(topics.names) & admin.topic_names()


def test_an_idempotent_producer_writes_only_to_its_topic(admin: KafkaAdmin, keeper: Topics) -> None:
    topics = keeper.create(PATTERN)
    seen = run(admin, keeper, topics, 3, acks="all", enable_idempotence=True)
    assert seen.counts.failed_total == 0
    assert sum(keeper.end_offsets(topics).values()) == seen.counts.acked_total > 0
    assert min(by_topic(topics, seen.counts.acked_by_partition)) > 0
