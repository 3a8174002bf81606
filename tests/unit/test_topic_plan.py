"""Replicas that load every broker alike, names, and how a topic differs from its plan."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cluster.admin import NO_LEADER, Partition
from jobs.cluster.topic_plan import (
    Assignment,
    TopicState,
    assignment,
    largest_batch_bytes,
    require_writable,
    state_of,
    topic_name,
)
from jobs.config import load_workload
from metrics.common.errors import ConfigError
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.payload import BATCH_HEADER_BYTES, record_bytes
from tests.support.patterns import producer_pattern

ids = st.sets(st.integers(0, 10_000), min_size=1, max_size=25)


@given(brokers=ids, per_broker=st.integers(1, 40), data=st.data())
def test_every_broker_leads_and_follows_alike(
    brokers: set[int], per_broker: int, data: st.DataObject
) -> None:
    replication = data.draw(st.integers(1, len(brokers)))
    plan = assignment(list(brokers), per_broker, replication)

    assert sorted(plan) == list(range(per_broker * len(brokers)))
    assert all(len(set(replicas)) == replication for replicas in plan.values())
    assert set().union(*plan.values()) <= brokers
    leads = Counter(replicas[0] for replicas in plan.values())
    assert leads == dict.fromkeys(brokers, per_broker)
    follows = Counter(broker for replicas in plan.values() for broker in replicas[1:])
    assert all(follows[broker] == per_broker * (replication - 1) for broker in brokers)


@given(brokers=ids, per_broker=st.integers(1, 40), data=st.data())
def test_followers_of_one_leader_are_spread_over_all_others(
    brokers: set[int], per_broker: int, data: st.DataObject
) -> None:
    replication = data.draw(st.integers(1, len(brokers)))
    plan = assignment(list(brokers), per_broker, replication)
    pairs = Counter((r[0], follower) for r in plan.values() for follower in r[1:])
    counts = [pairs[a, b] for a in brokers for b in brokers if a != b]
    assert not counts or max(counts) - min(counts) <= 1


def test_the_order_in_which_brokers_are_found_does_not_matter() -> None:
    assert assignment([3, 1, 2], 2, 2) == assignment([1, 2, 3], 2, 2)
    assert assignment([3, 1, 2], 1, 2) == {0: (1, 2), 1: (2, 3), 2: (3, 1)}


@pytest.mark.parametrize("brokers", [[], [1, 2]])
def test_more_replicas_than_brokers_are_refused(brokers: list[int]) -> None:
    with pytest.raises(ConfigError, match=rf"is 3, and the cluster has {len(brokers)} brokers"):
        assignment(brokers, 10, 3)


def test_a_topic_is_named_after_run_and_size() -> None:
    assert topic_name("20261121-0102-abc", 100, 10) == "redline-20261121-0102-abc-100B-10p"


@pytest.mark.parametrize("run_id", ["a b", "a/b", "ä", "x" * 250])
def test_a_run_id_that_cannot_be_in_a_topic_name_is_refused(run_id: str) -> None:
    with pytest.raises(ConfigError, match="cannot be part of a topic name"):
        topic_name(run_id, 100, 10)


def demo(*overrides: str, message_bytes: int = 100) -> TrafficPattern:
    return load_workload("demo", [f"workload.{each}" for each in overrides]).pattern(message_bytes)


@given(size=st.integers(1, 30_000), batch_size=st.integers(0, 40_000))
def test_no_batch_of_the_engine_is_larger_than_the_bound(size: int, batch_size: int) -> None:
    pattern = producer_pattern(size, 1_000.0, batch_size=batch_size)
    records = pattern.records_per_full_batch
    batch = BATCH_HEADER_BYTES + sum(record_bytes(i, size, 1_000.0) for i in range(records))
    bound = largest_batch_bytes(pattern)
    assert batch <= bound
    assert bound == (batch if records == 1 else batch_size)


def test_batches_larger_than_the_topic_takes_are_refused_before_any_load() -> None:
    pattern = demo()
    require_writable(pattern, {"max.message.bytes": "16384"})
    with pytest.raises(ConfigError, match=r"16384 B at message size 100 B.*16383 B") as caught:
        require_writable(pattern, {"max.message.bytes": "16383"})
    assert "--set workload.topic.config.max.message.bytes=16384" in str(caught.value)


def test_too_few_replicas_matter_with_acks_all_only() -> None:
    properties: dict[str, str | None] = {"min.insync.replicas": "3"}
    require_writable(demo("producer.acks=1"), properties)
    with pytest.raises(ConfigError, match=r"min\.insync\.replicas 3"):
        require_writable(demo("producer.acks=all"), properties)


@pytest.mark.parametrize(
    ("acks", "release", "losable", "is_fine"),
    [
        ("all", (3, 6), 0, False),
        ("all", (3, 7), 0, True),  # a partition needs no more replicas than it has
        ("all", (3, 7), 1, False),
        ("1", (3, 6), 0, True),
        ("1", (4, 1), 1, False),  # the high watermark would stand still
    ],
)
def test_the_release_and_planned_outages_count(
    acks: str, release: tuple[int, ...], losable: int, is_fine: bool
) -> None:
    pattern, properties = demo(f"producer.acks={acks}"), {"min.insync.replicas": "3"}
    assert pattern.topic.replication_factor == 2
    refused = pytest.raises(ConfigError, match=r"require min\.insync\.replicas [23]; expected")
    with nullcontext() if is_fine else refused:
        require_writable(pattern, properties, release=release, losable=losable)


def test_unknown_properties_of_the_cluster_are_not_checked() -> None:
    require_writable(demo("producer.acks=all", message_bytes=10_000), {})


WANTED: Assignment = {0: (1, 2), 1: (2, 1)}


def seen(
    leader: int = 1, replicas: tuple[int, ...] = (1, 2), isr: tuple[int, ...] = (2, 1)
) -> dict[int, Partition]:
    """The partitions of a topic: 1 is in order, and 0 is as given."""
    return {0: Partition(leader, replicas, isr), 1: Partition(2, (2, 1), (2, 1))}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (seen(), TopicState()),
        (None, TopicState(missing=(0, 1))),
        ({1: Partition(2, (2, 1), (1, 2))}, TopicState(missing=(0,))),
        (seen(leader=2), TopicState(moved=(0,))),
        (seen(leader=NO_LEADER), TopicState(leaderless=(0,))),
        (seen(isr=(1,)), TopicState(lagging=(0,))),
        (seen(leader=2, isr=(2,)), TopicState(moved=(0,), lagging=(0,))),
        (seen(replicas=(2, 1)), TopicState(reassigned=(0,))),
        (seen(replicas=(1, 3), isr=(1, 3)), TopicState(reassigned=(0,))),
    ],
)
def test_every_difference_is_seen(found: dict[int, Partition] | None, state: TopicState) -> None:
    assert state_of(WANTED, found) == state
    assert state.healthy == (state == TopicState())


def test_partitions_that_are_not_planned_do_not_matter() -> None:
    assert state_of(WANTED, {**seen(), 2: Partition(NO_LEADER, (1,), ())}).healthy


def test_two_brokers_views_join() -> None:
    joined = TopicState(moved=(2,)) | TopicState(moved=(1, 2), silent=("broker 3 is silent",))
    assert joined == TopicState(moved=(1, 2), silent=("broker 3 is silent",))
    assert joined.sentences() == (
        "2 partitions (1, 2) led by another broker than assigned",
        "broker 3 is silent",
    )
    assert TopicState(lagging=tuple(range(9))).sentences() == (
        "9 partitions (0, 1, 2, 3, 4, …) with a replica out of sync",
    )
