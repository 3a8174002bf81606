"""Guards and causes of INVALID on real brokers that other tests use, too."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.cluster.health import ClusterHealth
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from jobs.config.goal import GuardLimits as Limits
from jobs.engine.stage import run_task
from jobs.testbed.handle import Testbed
from jobs.trials.control_server import ControlServer, TaskChannel
from jobs.trials.guards import Guards
from jobs.trials.recovery import Baseline, wait_until_at_rest, why_not_idle, windows_between
from metrics.common.errors import GuardStopError
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource
from search.model import Verdict
from tests.bench.engine import Alone
from tests.support.loaded_brokers import LoadedBrokers, TrialOutcome, loaded
from tests.support.patterns import pattern, plan, producer_pattern
from tests.support.processes import after, becomes, beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.together

WORKLOAD = load_workload(
    "demo", ["workload.topic.replication_factor=1", "workload.topic.partitions_per_broker=1"]
)
MESSAGES = producer_pattern(1_000, 200.0, linger_ms=10.0)
MUCH = producer_pattern(10_000, 500.0, linger_ms=50.0, batch_size=262_144)
REPLICAS = {0: [1, 2], 1: [2, 1]}


class HealthWithoutReassignments(ClusterHealth):
    """Health that takes a replica that is being added for one that fell behind."""

    def _adding(
        self, partitions: Mapping[str, Sequence[int]] | None = None
    ) -> dict[tuple[str, int], frozenset[int]]:
        return {}


def test_a_guard_ends_a_load_when_a_topic_of_others_is_under_replicated(
    spark: SparkSession, kafka_testbed: Testbed
) -> None:
    with (
        connect(kafka_testbed.bootstrap_servers) as admin,
        connect(kafka_testbed.bootstrap_servers) as of_others,
        others_topic(of_others, spark._jvm, kafka_testbed) as other,
        ControlServer("127.0.0.1", "127.0.0.1") as server,
        server.channel(1) as channel,
    ):
        run_id = uuid.uuid4().hex[:6]
        topics = Topics(admin, run_id)
        health = HealthWithoutReassignments(admin)
        guards = Guards(Limits(), health, lambda name: run_id in name, pytest.fail)
        guards.open()
        topic = topics.create(WORKLOAD.pattern(1_000))
        trial = plan(
            trial_id=run_id,
            topics=topic.names,
            pattern=replace(pattern(warmup_s=0.5, measure_s=120.0), producer=MESSAGES),
            leaders=topic.leaders,
            brokers=admin.describe_cluster().addresses,
            control=channel.address,
        )
        with (
            guards.watch(trial.pattern, channel),
            fall_behind_under_load(of_others, other, channel) as began_s,
        ):
            row = run_task(trial, Alone())
        assert time.monotonic() - began_s[0] < 60.0
        assert not ClusterHealth(admin).under_replicated(), "a reassignment adds the replica"
        assert row.error is not None and "the driver has ended" in row.error
        with pytest.raises(GuardStopError, match=f"partition 0 of the topic {other}"):
            guards.require_untripped()
        topics.delete(topic.names)
        left = admin.topic_names()
    assert other in left
    assert not set(topic.names) & left


@contextmanager
def others_topic(admin: KafkaAdmin, jvm: object, testbed: Testbed) -> Iterator[str]:
    """A topic with more data than one fetch, whose new replicas then fetch 1 kB/s."""
    throttle = {"follower.replication.throttled.replicas": "*"}
    with loaded(testbed, jvm) as brokers, brokers.topic({0: [1]}, throttle) as name:
        brokers.trial(name, {0: [1]}, MUCH, producers=4, measure_s=1.0, warmup_s=0.2)
        rate = "follower.replication.throttled.rate"
        brokers.alter(ConfigResourceType.BROKER, "2", {rate: "1000"})
        try:
            yield name
        finally:
            undone = {TopicPartition(name, 0): None}
            admin.client.alter_partition_reassignments(undone)
            resource = ConfigResource(ConfigResourceType.BROKER, "2", {rate: "1000000000"})
            admin.client.alter_configs([resource], raise_on_unknown=False)


@contextmanager
def fall_behind_under_load(
    admin: KafkaAdmin, topic: str, channel: TaskChannel
) -> Iterator[list[float]]:
    """Add a replica that is out of sync when the load has begun; yields the time."""
    began_s: list[float] = []

    def add_replica() -> None:
        becomes(lambda: channel.start_s is not None, 60.0)
        began_s.append(time.monotonic())
        admin.client.alter_partition_reassignments({TopicPartition(topic, 0): [1, 2]})

    with beside(add_replica):
        yield began_s


def test_brokers_report_their_disks(kafka_testbed: Testbed) -> None:
    with connect(kafka_testbed.bootstrap_servers) as admin:
        dirs = ClusterHealth(admin).log_dirs()
        assert {each.broker_id for each in dirs} == set(kafka_testbed.broker_ids)
        assert all(each.is_known and 0.0 < each.used_share < 1.0 for each in dirs)
        topic = f"held-{uuid.uuid4().hex[:6]}"
        admin.create_topic(topic, {0: [1, 2], 1: [2, 1], 2: [1, 3]}, {})
        health, logs = ClusterHealth(admin), {1: 3, 2: 2, 3: 1}
        assert becomes(
            lambda: {each.broker_id: each.own_logs for each in health.log_dirs([topic])} == logs,
            10.0,
        )
        assert ClusterHealth(admin).hidden_topics() == frozenset()
        assert topic in (admin.topics_held_by(1) or ())
        assert health.has_topic(topic)
        assert not any(health.has_topic(f"not-{topic}") for _ in range(2)), "nor is it created"
        admin.delete_topic(topic)
        full = Guards(
            Limits(disk_free_bytes_min=10**18), ClusterHealth(admin), str.isdigit, pytest.fail
        )
        with pytest.raises(GuardStopError, match=r"of broker 1 has .* left, less than 1000000 TB"):
            full.open()


def short_trial(brokers: LoadedBrokers, topic: str) -> TrialOutcome:
    return brokers.trial(topic, REPLICAS, MESSAGES, producers=1, measure_s=4.0, warmup_s=0.5)


def causes(seen: TrialOutcome) -> set[tuple[str, int | None]]:
    """Rule and broker of each reason for INVALID; a busy machine may add further ones."""
    assert seen.judgement.verdict is Verdict.INVALID, seen.judgement.reasons
    return {(reason.indicator, reason.broker_id) for reason in seen.judgement.reasons}


def test_leaders_that_move_make_a_trial_invalid(brokers: LoadedBrokers) -> None:
    with brokers.topic(REPLICAS, {}) as topic:
        turned = {0: [2, 1], 1: [2, 1]}
        with after(2.5, lambda: brokers.move_leaders(topic, turned)):
            seen = short_trial(brokers, topic)
    assert ("leaders_moved", 1) in causes(seen)


def test_partitions_of_others_that_get_leaders_do_not_matter(
    brokers: LoadedBrokers, kafka_testbed: Testbed
) -> None:
    with connect(kafka_testbed.bootstrap_servers) as admin, brokers.topic(REPLICAS, {}) as topic:
        name = f"others-{topic}"
        with after(2.5, lambda: admin.create_topic(name, {0: [1], 1: [2], 2: [3]}, {})):
            seen = short_trial(brokers, topic)
        assert name in admin.topic_names()
        admin.delete_topic(name)
    assert "leaders_moved" not in {each.indicator for each in seen.judgement.reasons}


class CutSource:
    """A source that fails for one broker after some polls."""

    def __init__(self, source: MetricsSource, broker_id: int, polls: int) -> None:
        self.name, self.nodes = source.name, source.nodes
        self._source, self._broker_id, self._polls = source, broker_id, polls

    def open(self) -> None: ...

    def close(self) -> None: ...

    def sample_all(self) -> Sequence[BrokerSample]:
        self._polls -= 1
        return [
            BrokerSample(each.broker_id, each.at_s, error="cut")
            if each.broker_id == self._broker_id and self._polls < 0
            else each
            for each in self._source.sample_all()
        ]


def test_a_broker_whose_metrics_are_cut_makes_a_trial_invalid(brokers: LoadedBrokers) -> None:
    brokers.source = CutSource(brokers.source, broker_id=2, polls=3)  # type: ignore[assignment]
    with brokers.topic(REPLICAS, {}) as topic:
        seen = short_trial(brokers, topic)
    assert ("metrics_incomplete", 2) in causes(seen)


@pytest.mark.long
def test_brokers_come_to_rest_after_a_load(
    brokers: LoadedBrokers, spark: SparkSession, kafka_testbed: Testbed
) -> None:
    with brokers.topic(REPLICAS, {}) as topic, loaded(kafka_testbed, spark._jvm) as looking:
        reported: list[str] = []
        with beside(lambda: brokers.trial(topic, REPLICAS, MUCH, 2, 3.0, 0.0)):
            earlier, busy, deadline_s = looking.source.sample_all(), False, time.monotonic() + 60.0
            while not busy and time.monotonic() < deadline_s:
                later = looking.source.sample_all()
                windows = windows_between(looking.source, earlier, later)
                busy = any(why_not_idle(window, Baseline()) for window in windows)
                earlier = later
            recovery = wait_until_at_rest(looking.source, report=reported.append)
    assert busy and reported, "the brokers were busy at first"
    assert recovery.not_idle == ()
    assert recovery.since_s is not None
