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


def test_a_plan_that_cannot_be_made_is_refused() -> None:
    assert assignment([3, 1, 2], 1, 2) == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    for brokers in ([], [1, 2]):
        with pytest.raises(ConfigError, match=rf"is 3, and the cluster has {len(brokers)} brokers"):
            assignment(brokers, 10, 3)
    assert topic_name("20261121-0102-abc", 100, 10) == "redline-20261121-0102-abc-100B-10p"
    for run_id in ("a b", "a/b", "ä", "x" * 250):
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


def test_the_release_and_planned_outages_count() -> None:
    properties: dict[str, str | None] = {"min.insync.replicas": "3"}
    refused = pytest.raises(ConfigError, match=r"require min\.insync\.replicas [23]; expected")
    for acks, release, losable, is_fine in (
        ("all", (3, 6), 0, False),
        ("all", (3, 7), 0, True),  # a partition needs no more replicas than it has
        ("all", (3, 7), 1, False),
        ("1", (3, 6), 0, True),
        ("1", (4, 1), 1, False),  # the high watermark would stand still
    ):
        pattern = demo(f"producer.acks={acks}")
        assert pattern.topic.replication_factor == 2
        with nullcontext() if is_fine else refused:
            require_writable(pattern, properties, release=release, losable=losable)
    require_writable(demo("producer.acks=all"), {})


WANTED: Assignment = {0: (1, 2), 1: (2, 1)}


def seen(
    leader: int = 1, replicas: tuple[int, ...] = (1, 2), isr: tuple[int, ...] = (2, 1)
) -> dict[int, Partition]:
    """The partitions of a topic: 1 is in order, and 0 is as given."""
    return {0: Partition(leader, replicas, isr), 1: Partition(2, (2, 1), (2, 1))}


def test_every_difference_is_seen() -> None:
    cases: list[tuple[dict[int, Partition] | None, TopicState]] = [
        (seen(), TopicState()),
        ({**seen(), 2: Partition(NO_LEADER, (1,), ())}, TopicState()),  # not planned
        (None, TopicState(missing=(0, 1))),
        ({1: Partition(2, (2, 1), (1, 2))}, TopicState(missing=(0,))),
        (seen(leader=2), TopicState(moved=(0,))),
        (seen(leader=NO_LEADER), TopicState(leaderless=(0,))),
        (seen(isr=(1,)), TopicState(lagging=(0,))),
        (seen(leader=2, isr=(2,)), TopicState(moved=(0,), lagging=(0,))),
        (seen(replicas=(2, 1)), TopicState(reassigned=(0,))),
        (seen(replicas=(1, 3), isr=(1, 3)), TopicState(reassigned=(0,))),
    ]
    for found, state in cases:
        assert state_of(WANTED, found) == state
        assert state.healthy == (state == TopicState())
    joined = TopicState(moved=(2,)) | TopicState(moved=(1, 2), silent=("broker 3 is silent",))
    assert joined.sentences() == (
        "2 partitions (1, 2) led by another broker than assigned",
        "broker 3 is silent",
    ), "the views of two brokers"
    assert TopicState(lagging=tuple(range(9))).sentences() == (
        "9 partitions (0, 1, 2, 3, 4, …) with a replica out of sync",
    )
