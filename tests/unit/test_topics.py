"""Topics of a run: their replicas and names, and the operations on the run's own topics only."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cluster.admin import NO_LEADER, AdminError, Partition
from jobs.cluster.topic_plan import (
    MARK,
    Assignment,
    TopicState,
    assignment,
    largest_batch_bytes,
    mark_of,
    require_writable,
    state_of,
    topic_name,
)
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import TopicError, Topics
from jobs.config import load_workload
from metrics.common.errors import ConfigError
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.payload import BATCH_HEADER_BYTES, record_bytes
from tests.support.patterns import producer_pattern
from tests.support.scripted_admin import FakeTime, ScriptedAdmin

NAME = "redline-run1-100B-10p"


def demo(*overrides: str) -> TrafficPattern:
    """The traffic of the demo with messages of 100 B."""
    return load_workload("demo", [f"workload.{each}" for each in overrides]).pattern(100)


class Run:
    """A run on a scripted cluster."""

    def __init__(self) -> None:
        self.admin, self.clock, self.pattern = ScriptedAdmin(), FakeTime(), demo()
        self.topics = Topics(self.admin, "run1", clock=self.clock, pause=self.clock.pause)

    def owned(self) -> list[str]:
        """The topics that belong to the run."""
        return list(self.topics.made)

    def made(self) -> TopicSet:
        """The topic of the run, after it was made."""
        topic = self.topics.create(self.pattern)
        assert topic.names == (NAME,) == self.topics.made
        self.admin.requests.clear()
        return topic

    def change(self, number: int, leader: int, isr: tuple[int, ...] = ()) -> None:
        replicas = self.admin.topics[NAME][number].replicas
        self.admin.topics[NAME][number] = Partition(leader, replicas, isr or replicas)

    def fail(self, request: str, cause: str, times: int = 1) -> None:
        self.admin.fail[request] = [AdminError(f"could not do it ({cause})", cause)] * times


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_new_topic_is_ready_only_when_all_replicas_are_in_sync(run: Run) -> None:
    def slow_start() -> None:
        leader = 1 if run.clock() > 103 else NO_LEADER
        run.change(0, leader, isr=() if run.clock() > 105 else (1,))

    run.admin.before_look = slow_start
    run.made()
    assert 105 < run.clock() < 106
    with pytest.raises(TopicError, match="already"):
        run.topics.create(run.pattern)
    assert run.owned() == [NAME]


def test_a_topic_that_does_not_become_ready_is_an_error_and_the_run_can_delete_it(run: Run) -> None:
    run.admin.before_look = lambda: run.change(4, leader=NO_LEADER)
    with pytest.raises(TopicError, match=r"after 20 s: partition 4 without a leader"):
        run.topics.create(run.pattern, deadline_s=20)
    assert 120 <= run.clock() < 121
    assert run.owned() == [NAME]


def test_a_topic_of_others_never_belongs_to_the_run(run: Run) -> None:
    run.fail("create_topic", "TopicAlreadyExistsError")
    with pytest.raises(AdminError):
        run.topics.create(run.pattern)
    assert run.owned() == []
    with pytest.raises(TopicError, match="was not created by run run1"):
        run.topics.delete([NAME])
    assert run.admin.requests == []
    run.admin.topics_of_others = {f"{NAME}-1"}
    with pytest.raises(AdminError, match="TopicAlreadyExistsError"):
        run.topics.create(demo("topic.count=3"))
    assert run.owned() == [f"{NAME}-0"], "made before the failure"
    run.fail("create_topic", "RequestTimedOutError")
    with pytest.raises(AdminError):
        run.topics.create(run.pattern)
    assert run.owned() == [f"{NAME}-0", NAME], "it may have been made"


@pytest.mark.parametrize("cause", ["InvalidConfigurationError", "PolicyViolationError"])
def test_a_topic_that_the_cluster_would_refuse_is_a_configuration_error(
    run: Run, cause: str
) -> None:
    run.fail("validate", cause, times=4)  # with the mark and without, with replicas and without
    with pytest.raises(ConfigError, match=cause):
        run.topics.create(run.pattern)
    run.admin.fail.clear()
    run.admin.properties["max.message.bytes"] = "1000"
    with pytest.raises(ConfigError, match=r"max\.message\.bytes is 1000 B"):
        run.topics.create(run.pattern)
    run.fail("validate", "PolicyViolationError", times=4)
    topic = replace(run.pattern.topic, partitions_per_broker=4_000)
    several = r"12,000 partitions, .* raise workload\.topic\.count, and lower"
    with pytest.raises(ConfigError, match=several):
        run.topics.create(replace(run.pattern, topic=topic))
    assert run.admin.requests == run.owned() == []


@pytest.mark.parametrize("cause", ["", "InvalidConfigurationError", "PolicyViolationError"])
def test_a_topic_is_marked_where_the_cluster_lets_it(run: Run, cause: str) -> None:
    run.fail("validate", cause, times=bool(cause))
    run.topics.create(run.pattern)
    assert run.admin.requests == [f"create {NAME}"]
    assert run.topics.mark == ({} if cause else mark_of("run1", is_locked=True))
    assert run.admin.configs[NAME].get(MARK) == run.topics.mark.get(MARK)


def test_several_topics_share_one_numbering(run: Run) -> None:
    several = run.topics.create(demo("topic.count=3"))
    assert several.names == (f"{NAME}-0", f"{NAME}-1", f"{NAME}-2") == run.topics.made
    assert len(several.leaders) == 90
    assert run.topics.end_offsets(several) == {number: number % 30 * 10 for number in range(90)}
    second = run.admin.topics[f"{NAME}-1"]
    second[3] = Partition(3, second[3].replicas, second[3].isr)
    run.admin.requests.clear()
    report = run.topics.check(several)
    assert report.ok and report.before.moved == (33,)
    assert run.admin.requests == [f"elect {NAME}-1 [3]"]
    run.topics.delete(several.names)
    assert run.admin.requests[1:] == [f"delete {NAME}-{number}" for number in range(3)]
    assert not run.owned()


def test_moved_leaders_are_elected_back(run: Run) -> None:
    topic = run.made()
    assert topic.leaders == (1, 2, 3) * 10
    report = run.topics.check(topic)
    assert (report.ok, report.sentences(), report.waited_s) == (True, (), 0.0)
    assert run.admin.requests == []
    run.change(0, leader=2)
    run.change(3, leader=3)
    report = run.topics.check(topic)
    assert report.ok and report.before.moved == (0, 3)
    assert run.admin.requests == [f"elect {NAME} [0, 3]"]


def test_a_failed_election_is_repeated_but_not_at_every_look(run: Run) -> None:
    topic = run.made()
    run.change(0, leader=2)
    run.fail("elect_preferred_leaders", "PreferredLeaderNotAvailableError", times=2)
    report = run.topics.check(topic)
    assert report.ok and report.sentences() == ()
    assert sum(each.startswith("elect ") for each in run.admin.requests) == 3
    assert 4 <= report.waited_s < 5
    run.change(0, leader=2)
    run.fail("elect_preferred_leaders", "PreferredLeaderNotAvailableError", times=99)
    report = run.topics.check(topic, deadline_s=5)
    assert not report.ok and 5 <= report.waited_s < 6
    assert report.sentences() == (
        f"topic {NAME} after 5 s: partition 0 led by another broker than assigned",
        "could not do it (PreferredLeaderNotAvailableError)",
    )


def test_replicas_get_time_to_catch_up(run: Run) -> None:
    topic = run.made()
    run.change(7, topic.leaders[7], isr=(topic.leaders[7],))

    def catch_up() -> None:
        if run.clock() > 110:
            run.change(7, topic.leaders[7])

    run.admin.before_look = catch_up
    report = run.topics.check(topic)
    assert report.ok and report.before.lagging == (7,)
    assert 10 < report.waited_s < 11


def test_a_silent_broker_or_a_vanished_topic_is_reported_without_an_exception(run: Run) -> None:
    topic = run.made()
    run.fail("partitions_seen_by", "RequestTimedOutError", times=999)
    report = run.topics.check(topic, deadline_s=3)
    assert not report.ok and "RequestTimedOutError" in report.sentences()[0]
    run.admin.fail.clear()
    run.admin.topics.clear()
    report = run.topics.check(topic, deadline_s=3)
    assert len(report.after.missing) == 30
    assert run.admin.requests == [], "a topic that vanished is not created again"


def test_leaders_that_moved_are_counted_by_the_broker_that_led(run: Run) -> None:
    several = run.topics.create(demo("topic.count=2"))
    assert run.topics.moved_leaders(several) == {}
    run.admin.topics["of-others"] = {0: Partition(NO_LEADER, (1,), ())}
    for name, number, leader in (("1", 1, 3), ("1", 4, 3), ("0", 2, NO_LEADER)):
        partitions = run.admin.topics[f"{NAME}-{name}"]
        partitions[number] = replace(partitions[number], leader=leader)
    assert run.topics.moved_leaders(several) == {2: 2, 3: 1}
    del run.admin.topics[f"{NAME}-0"]
    assert run.topics.moved_leaders(several) == {1: 10, 2: 12, 3: 10}


def test_a_topic_that_remains_after_its_deletion_is_an_error(run: Run) -> None:
    topic = run.made()
    run.admin.deletes = False
    with pytest.raises(TopicError, match=r"after 10 s: broker 1 still lists .*; expected no"):
        run.topics.delete(topic.names, deadline_s=10)
    assert 110 <= run.clock() < 111
    run.fail("delete_topic", "TopicDeletionDisabledError")
    with pytest.raises(AdminError, match="TopicDeletionDisabledError"):
        run.topics.delete(topic.names)
    assert run.owned() == [NAME]
    run.fail("delete_topic", "UnknownTopicOrPartitionError")
    run.admin.topics.clear()
    run.topics.delete(topic.names)
    assert run.owned() == [], "a topic that is gone counts as deleted"


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
        with pytest.raises(ConfigError, match=rf"is 3, and the cluster has {len(brokers)} serving"):
            assignment(brokers, 10, 3)
    assert topic_name("20261121-0102-abc", 100, 10) == "redline-20261121-0102-abc-100B-10p"
    for run_id in ("a b", "a/b", "ä", "x" * 250):
        with pytest.raises(ConfigError, match="cannot be part of a topic name"):
            topic_name(run_id, 100, 10)


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
    cases: list[tuple[dict[int, Partition], TopicState]] = [
        (seen(), TopicState()),
        ({**seen(), 2: Partition(NO_LEADER, (1,), ())}, TopicState()),  # not planned
        ({}, TopicState(missing=(0, 1))),
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
