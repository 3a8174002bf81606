"""Replicas on real brokers in racks: spread over the racks, with even leaders."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

from jobs.cluster.connect import connect
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from jobs.testbed.launcher import start

pytestmark = pytest.mark.long

BROKERS = 3
LEADERS = 10
CASES = [("4.1.2", 2, 2), ("4.1.2", 3, 2), ("4.1.2", 2, 3), ("2.8.2", 2, 2)]


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
