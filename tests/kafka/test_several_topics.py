"""A workload with several topics on real brokers: each record is in its producer's topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from metrics.traffic.clients import ClientName, ConsumerOptions
from metrics.trial.client import ClientWindow
from metrics.trial.task import merge
from tests.support.engine_bench import mismatches
from tests.support.patterns import plan
from tests.support.processes import becomes
from tests.support.threads_barrier import run_stage

pytestmark = pytest.mark.together

TOPICS = 3
PATTERN = load_workload(
    "demo",
    [f"workload.topic.count={TOPICS}", "workload.topic.partitions_per_broker=2"],
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
