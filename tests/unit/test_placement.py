"""Clusters that place replicas themselves: the accepted placements, and added partitions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.admin import NO_LEADER, Partition
from jobs.cluster.connect import connect
from jobs.cluster.topic_set import (
    GROWTH_MAX,
    LeaderCounts,
    TopicSet,
    grown_partitions,
    leader_counts,
    placed,
)
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from jobs.console.events import Level, Notice, RecordingReporter
from jobs.trials.context import RunContext, TrialHistory
from jobs.trials.point_topics import PointTopics
from metrics.traffic.pattern import TrafficPattern
from tests.support.fake_cluster import FakeCluster, Habits, Replicas

ids = st.integers(0, 1_001)


def test_leaders_within_a_tenth_of_the_mean_are_even() -> None:
    for even in ((11, 9, 10), (30,), (1, 1, 1), (110, 90, 100)):
        assert LeaderCounts(dict(enumerate(even))).are_even
    for uneven in ((12, 9, 9), (10, 10, 7), (0, 20), (2, 1, 0), (111, 89, 100)):
        assert not LeaderCounts(dict(enumerate(uneven))).are_even
    assert leader_counts([0, 0, 1001], [0, 1, 1001]).counts == {0: 2, 1: 0, 1001: 1}


@given(counts=st.dictionaries(ids, st.integers(0, 200), min_size=1))
def test_the_caveat_names_the_most_and_the_mean_of_uneven_leaders(counts: dict[int, int]) -> None:
    found = LeaderCounts(counts)
    mean = sum(counts.values()) / len(counts)
    assert found.are_even == all(
        0.9 * mean - 1e-9 <= n <= 1.1 * mean + 1e-9 for n in counts.values()
    )
    assert bool(found.caveat) != found.are_even
    assert found.caveat == "" or f"{max(counts.values())} at most" in found.caveat


def test_partitions_grow_only_while_leaders_are_uneven_and_never_beyond_ten_times() -> None:
    """Every placement of up to six partitions on up to three brokers."""
    for brokers, per_topic in itertools.product((1, 2, 3), range(1, 7)):
        for leaders in itertools.product(range(brokers), repeat=per_topic):
            found = leader_counts(leaders, range(brokers))
            for planned in range(1, per_topic + 1):
                wanted = grown_partitions(found, per_topic, planned)
                most = GROWTH_MAX * planned
                if found.are_even or per_topic >= most:
                    assert wanted == per_topic
                else:
                    assert per_topic < wanted <= min(2 * per_topic, most)


def test_a_placement_is_complete_when_each_partition_has_a_leader() -> None:
    whole = {0: Partition(2, (1, 2, 3), (1,)), 1: Partition(1, (), ())}
    assert placed(whole) == {0: (2, 1, 3), 1: (1,)}
    assert placed({**whole, 1: Partition(NO_LEADER, (1,), ())}) is None
    assert placed({0: whole[0], 2: whole[0]}) is None
    assert placed({}) is placed(None) is None


# --- a cluster that ignores or refuses assignments -----------------------------


def in_turns(brokers: int = 3) -> Callable[[int, int], Replicas]:
    """Leaders take turns, and the replicas come in the order of their ids."""
    return lambda count, before: [
        ((before + n) % brokers, (before + n + 1) % brokers) for n in range(count)
    ]


def at_random(seed: int) -> Callable[[int, int], Replicas]:
    chance = random.Random(seed)
    return lambda count, _before: [tuple(chance.sample(range(3), 2)) for _ in range(count)]


def evening(count: int, before: int) -> Replicas:
    """Leaders are uneven at first and even with twice as many partitions."""
    led = (6, 12, 12) if before else (14, 8, 8)
    assert sum(led) == count
    return [(broker, (broker + 1) % 3) for broker, times in enumerate(led) for _ in range(times)]


def on_the_first(count: int, _before: int) -> Replicas:
    return [(0, 1)] * count


class Unprobed(Topics):
    """Topics of simulated brokers, which hold no records."""

    def probe(self, topics: TopicSet, pattern: TrafficPattern) -> None:
        pass


@contextmanager
def topics_on(**habits: Any) -> Iterator[tuple[Topics, FakeCluster]]:
    known = {"broker_ids": (0, 1, 2), "racks": (None,) * 3}
    with FakeCluster(Habits(**(known | habits))) as cluster, connect(cluster.addresses) as admin:
        yield Unprobed(admin, "run1"), cluster


def traffic(*overrides: str) -> TrafficPattern:
    return load_workload("demo", [f"workload.{each}" for each in overrides]).pattern(100)


def test_a_cluster_that_follows_assignments_keeps_them() -> None:
    with topics_on() as (topics, cluster):
        made = topics.create(traffic())
    assert made.leaders == (0, 1, 2) * 10
    assert (made.is_own_placement, topics.caveats) == (False, ())
    assert cluster.requests == ["create redline-run1-100B-10p assigned"]


def test_an_even_placement_of_the_cluster_is_taken() -> None:
    with topics_on(place=in_turns()) as (topics, cluster):
        made = topics.create(traffic())
        assert topics.check(made, deadline_s=1).ok
        rows = cluster.topics[made.names[0]]
        rows[0] = tuple(reversed(rows[0]))
        now = topics.refresh(made)
        assert now.leaders[0] == rows[0][0] == 1, "the cluster moved it"
        assert topics.check(now, deadline_s=1).ok
    assert made.leaders == (0, 1, 2) * 10
    assert (made.is_own_placement, topics.caveats, len(cluster.requests)) == (True, (), 1)
    assert made.fit(traffic()) == traffic()


@pytest.mark.parametrize("code", [35, 39, 42, 44])
def test_a_cluster_that_refuses_assignments_places_them_itself(code: int) -> None:
    with topics_on(place=in_turns(), refuses_assignments=code) as (topics, cluster):
        made = topics.create(traffic())
    assert cluster.requests == ["create redline-run1-100B-10p 30"]
    assert made.leaders == (0, 1, 2) * 10


def test_an_uneven_placement_grows_until_it_is_even_enough() -> None:
    with topics_on(place=evening) as (topics, cluster):
        made = topics.create(traffic())
        offsets = topics.end_offsets(made)
    name, grown = made.names[0], len(made.leaders)
    assert grown == len(cluster.topics[name]) == 60
    assert [each for each in cluster.requests if "grow" in each][-1] == f"grow {name} {grown}"
    assert made.leader_counts.are_even
    assert made.leaders == tuple(each[0] for each in cluster.topics[name])
    assert len(made.partitions) == len(offsets) == grown
    assert made.fit(traffic()).topic.partitions_per_broker == grown // 3
    assert topics.caveats == ()


def test_a_placement_that_stays_uneven_is_taken_with_a_caveat() -> None:
    with topics_on(place=on_the_first) as (topics, cluster):
        made = topics.create(traffic())
    assert len(made.leaders) == len(cluster.topics[made.names[0]]) == 300
    assert topics.caveats == (made.caveat,) == ("leaders uneven: 300 at most, 100 on average",)


def test_several_topics_are_even_together() -> None:
    with topics_on(place=at_random(1)) as (topics, cluster):
        made = topics.create(traffic("topic.count=3"))
        offsets = topics.end_offsets(made)
    assert made.leader_counts.are_even
    assert made.leaders == tuple(each[0] for name in made.names for each in cluster.topics[name])
    assert made.partitions.of(made.per_topic) == (made.names[1], 0)
    assert offsets == {number: number % made.per_topic * 10 for number in range(3 * made.per_topic)}


def test_fewer_brokers_than_replicas_are_accepted_where_the_cluster_hides_its_brokers() -> None:
    with topics_on(place=in_turns(1), broker_ids=(0,), racks=(None,)) as (topics, cluster):
        made = topics.create(traffic("topic.replication_factor=3"))
    assert made.leaders == (0,) * 10
    assert cluster.requests == ["create redline-run1-100B-10p 10"]


def test_racks_of_brokers_are_used() -> None:
    with topics_on(broker_ids=(0, 1, 2, 3), racks=("a", "a", "b", "b")) as (topics, cluster):
        topics.create(traffic("topic.replication_factor=2"))
        (replicas,) = cluster.topics.values()
    assert all({0, 1} & {*each} and {2, 3} & {*each} for each in replicas)


def kept_topics(topics: Topics) -> tuple[PointTopics, RunContext, RecordingReporter]:
    """The topics of a run on these brokers, with the run's context and what it reports."""
    reporter = RecordingReporter()
    context = SimpleNamespace(
        guards=SimpleNamespace(owner_words=""), topics=topics, reporter=reporter,
        caveats=("no metrics",), history=TrialHistory(),
    )  # fmt: skip
    return PointTopics(cast(RunContext, context)), cast(RunContext, context), reporter


def notices(reporter: RecordingReporter, level: Level) -> list[str]:
    return [e.text for e in reporter.events if isinstance(e, Notice) and e.level is level]


@pytest.mark.parametrize(
    "place", [None, in_turns(), at_random(1)], ids=["as assigned", "in turns", "at random"]
)
def test_a_run_notes_once_how_a_cluster_placed_its_replicas(
    place: Callable[[int, int], Replicas] | None, snapshot: SnapshotAssertion
) -> None:
    with topics_on(place=place) as (topics, _):
        keeper, _, reporter = kept_topics(topics)
        keeper.open(traffic())
        keeper.open(traffic())
    assert notices(reporter, Level.NOTE) == snapshot
    assert not notices(reporter, Level.WARNING)


def test_a_run_warns_of_uneven_leaders_once_and_states_them_as_a_caveat() -> None:
    with topics_on(place=on_the_first, refuses_partitions=37) as (topics, _):
        keeper, context, reporter = kept_topics(topics)
        made = keeper.open(traffic())
        assert keeper.open(traffic()) == made
        caveats = RunContext.all_caveats.fget(context)  # type: ignore[attr-defined]
        keeper.close()
        assert topics.made == ()
    uneven = "leaders uneven: 30 at most, 10 on average"
    assert notices(reporter, Level.WARNING) == [f"topic {made}: {uneven}"]
    assert caveats == ("no metrics", uneven)
