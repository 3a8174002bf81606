"""The admin requests of a run on brokers of older releases with ZooKeeper."""

from __future__ import annotations

import uuid

import pytest

from jobs.cluster.connect import connect
from jobs.cluster.health import ClusterHealth
from jobs.cluster.permissions import permissions, quotas_of
from jobs.cluster.sources import changed_properties, replicas_by_broker
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from jobs.testbed.launcher import start

pytestmark = pytest.mark.long


@pytest.mark.parametrize("version", ["2.8.2", "3.6.2"])
def test_every_request_of_a_run_is_answered(version: str) -> None:
    with (
        start("calibrated", brokers=2, kafka_version=version) as testbed,
        connect(testbed.bootstrap_servers, testbed.client_security().client_kwargs()) as admin,
    ):
        info = admin.describe_cluster()
        assert len(info.broker_ids) == 2
        assert info.cluster_id
        release = tuple(int(part) for part in version.split(".")[:2])
        assert info.api_version[:2] == release
        first = info.broker_ids[0]
        assert int(admin.broker_config(first, ["num.io.threads"])["num.io.threads"] or 0) > 0
        assert changed_properties(admin, first)
        assert admin.features() is not None

        topics = Topics(admin, f"older-{uuid.uuid4().hex[:8]}")
        pattern = load_workload("demo", ["workload.topic.replication_factor=2"]).pattern(1_000)
        made = topics.create(pattern)
        assert not made.is_own_placement
        assert made.leader_counts.are_even
        assert set(topics.end_offsets(made).values()) == {0}
        assert made.names[0] in admin.topic_names()
        kept = pattern.topic.properties["retention.bytes"]
        assert admin.topic_config(made.names[0])["retention.bytes"] == kept
        admin.elect_preferred_leaders([(made.names[0], 0)])
        assert topics.check(made).ok
        assert admin.topics_held_by(first) is not None
        dirs = ClusterHealth(admin).log_dirs(made.names)
        assert sum(each.own_logs for each in dirs) == 2 * len(made.leaders)
        assert all(each.path for each in dirs)
        assert all(each.is_known == (release >= (3, 3)) for each in dirs)
        assert ClusterHealth(admin).under_replicated() == frozenset()
        assert ClusterHealth(admin).hidden_topics() == frozenset()
        assert sum(each.leader_partitions for each in replicas_by_broker(admin).values()) >= 20
        assert admin.empty_groups() == frozenset()
        assert quotas_of(admin) == []
        assert all(each.is_granted and each.is_known for each in permissions(admin, first, "none"))
        admin.create_partitions(made.names[0], 24)
        topics.delete(made.names)
        assert made.names[0] not in admin.topic_names()
