"""The operations of a run on its own topics only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.cluster.admin import NO_LEADER, AdminError, Partition
from jobs.cluster.topic_plan import MARK, mark_of
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import TopicError, Topics
from jobs.config import load_workload
from metrics.common.errors import ConfigError
from metrics.traffic.pattern import TrafficPattern
from tests.support.scripted_admin import FakeTime, ScriptedAdmin

NAME = "redline-run1-100B-10p"


@pytest.fixture
def admin() -> ScriptedAdmin:
    return ScriptedAdmin()


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime()


@pytest.fixture
def topics(admin: ScriptedAdmin, clock: FakeTime) -> Topics:
    return Topics(admin, "run1", clock=clock, pause=clock.pause)


def demo(*overrides: str) -> TrafficPattern:
    """The traffic of the demo with messages of 100 B."""
    return load_workload("demo", [f"workload.{each}" for each in overrides]).pattern(100)


@pytest.fixture
def pattern() -> TrafficPattern:
    return demo()


@pytest.fixture
def topic(topics: Topics, pattern: TrafficPattern, admin: ScriptedAdmin) -> TopicSet:
    made = topics.create(pattern)
    admin.requests.clear()
    return made


def change(admin: ScriptedAdmin, number: int, leader: int, isr: tuple[int, ...] = ()) -> None:
    replicas = admin.topics[NAME][number].replicas
    admin.topics[NAME][number] = Partition(leader, replicas, isr or replicas)


def failure(cause: str) -> AdminError:
    return AdminError(f"could not do it ({cause})", cause)


def test_a_new_topic_is_ready_only_when_all_replicas_are_in_sync(
    topics: Topics, pattern: TrafficPattern, admin: ScriptedAdmin, clock: FakeTime
) -> None:
    def slow_start() -> None:
        leader = 1 if clock() > 103 else NO_LEADER
        change(admin, 0, leader, isr=() if clock() > 105 else (1,))

    admin.before_look = slow_start
    topics.create(pattern)
    assert 105 < clock() < 106
    with pytest.raises(TopicError, match="already"):
        topics.create(pattern)


def test_a_topic_that_does_not_become_ready_is_an_error_and_the_run_can_delete_it(
    topics: Topics, pattern: TrafficPattern, admin: ScriptedAdmin, clock: FakeTime
) -> None:
    admin.before_look = lambda: change(admin, 4, leader=NO_LEADER)
    with pytest.raises(TopicError, match=r"after 20 s: partition 4 without a leader"):
        topics.create(pattern, deadline_s=20)
    assert 120 <= clock() < 121
    assert topics.made == (NAME,)


def test_a_topic_of_others_never_belongs_to_the_run(
    topics: Topics, pattern: TrafficPattern, admin: ScriptedAdmin
) -> None:
    admin.fail["create_topic"] = [failure("TopicAlreadyExistsError")]
    with pytest.raises(AdminError):
        topics.create(pattern)
    assert topics.made == ()
    with pytest.raises(TopicError, match="was not made by run run1"):
        topics.delete([NAME])
    assert admin.requests == []
    admin.topics_of_others = {f"{NAME}-1"}
    with pytest.raises(AdminError, match="TopicAlreadyExistsError"):
        topics.create(demo("topic.count=3"))
    assert topics.made == (f"{NAME}-0",), "made before the failure"
    admin.fail["create_topic"] = [failure("RequestTimedOutError")]
    with pytest.raises(AdminError):
        topics.create(pattern)
    assert topics.made == (f"{NAME}-0", NAME), "it may have been made"


@pytest.mark.parametrize("cause", ["InvalidConfigurationError", "PolicyViolationError"])
def test_a_topic_that_the_cluster_would_refuse_is_a_configuration_error(
    topics: Topics, pattern: TrafficPattern, admin: ScriptedAdmin, cause: str
) -> None:
    # With the mark and without, with replicas and without.
    admin.fail["validate"] = [failure(cause)] * 4
    with pytest.raises(ConfigError, match=cause):
        topics.create(pattern)
    admin.fail.clear()
    admin.properties["max.message.bytes"] = "1000"
    with pytest.raises(ConfigError, match=r"max\.message\.bytes 1000 B"):
        topics.create(pattern)
    assert admin.requests == []
    assert topics.made == ()


@pytest.mark.parametrize("cause", ["", "InvalidConfigurationError", "PolicyViolationError"])
def test_a_topic_is_marked_where_the_cluster_lets_it(
    topics: Topics, pattern: TrafficPattern, admin: ScriptedAdmin, cause: str
) -> None:
    admin.fail["validate"] = [failure(cause)] if cause else []
    topics.create(pattern)
    assert topics.mark == ({} if cause else mark_of("run1", is_locked=True))
    assert admin.configs[NAME].get(MARK) == topics.mark.get(MARK)


def test_a_topic_too_large_for_one_request_is_an_error_with_the_remedy(
    topics: Topics, pattern: TrafficPattern, admin: ScriptedAdmin
) -> None:
    admin.fail["validate"] = [failure("PolicyViolationError")] * 4
    large = replace(pattern, topic=replace(pattern.topic, partitions_per_broker=4_000))
    several = r"12,000 partitions, .* by workload\.topic\.count and fewer"
    with pytest.raises(ConfigError, match=several):
        topics.create(large)


def test_several_topics_share_one_numbering(topics: Topics, admin: ScriptedAdmin) -> None:
    several = topics.create(demo("topic.count=3"))
    assert several.names == (f"{NAME}-0", f"{NAME}-1", f"{NAME}-2") == topics.made
    assert len(several.leaders) == 90
    assert topics.end_offsets(several) == {number: number % 30 * 10 for number in range(90)}
    second = admin.topics[f"{NAME}-1"]
    second[3] = Partition(3, second[3].replicas, second[3].isr)
    admin.requests.clear()
    report = topics.check(several)
    assert report.before.moved == (33,)
    assert admin.requests == [f"elect {NAME}-1 [3]"]
    assert report.ok
    topics.delete(several.names)
    assert admin.requests[1:] == [f"delete {NAME}-{number}" for number in range(3)]
    assert not topics.made


def test_moved_leaders_are_elected_back(
    topics: Topics, topic: TopicSet, admin: ScriptedAdmin
) -> None:
    assert topic.leaders == (1, 2, 3) * 10
    report = topics.check(topic)
    assert (report.ok, report.sentences(), report.waited_s, admin.requests) == (True, (), 0.0, [])
    change(admin, 0, leader=2)
    change(admin, 3, leader=3)
    report = topics.check(topic)
    assert report.ok
    assert report.before.moved == (0, 3)
    assert admin.requests == [f"elect {NAME} [0, 3]"]


def test_a_failed_election_is_repeated_but_not_at_every_look(
    topics: Topics, topic: TopicSet, admin: ScriptedAdmin, clock: FakeTime
) -> None:
    change(admin, 0, leader=2)
    admin.fail["elect_preferred_leaders"] = [failure("PreferredLeaderNotAvailableError")] * 2
    report = topics.check(topic)
    assert report.ok
    assert sum(each.startswith("elect ") for each in admin.requests) == 3
    assert 4 <= report.waited_s < 5
    assert report.sentences() == ()


def test_replicas_get_time_to_catch_up(
    topics: Topics, topic: TopicSet, admin: ScriptedAdmin, clock: FakeTime
) -> None:
    change(admin, 7, leader=topic.leaders[7], isr=(topic.leaders[7],))

    def catch_up() -> None:
        if clock() > 110:
            change(admin, 7, leader=topic.leaders[7])

    admin.before_look = catch_up
    report = topics.check(topic)
    assert report.ok
    assert report.before.lagging == (7,)
    assert 10 < report.waited_s < 11


def test_a_topic_that_cannot_be_restored_is_reported(
    topics: Topics, topic: TopicSet, admin: ScriptedAdmin, clock: FakeTime
) -> None:
    change(admin, 0, leader=2)
    admin.fail["elect_preferred_leaders"] = [failure("PreferredLeaderNotAvailableError")] * 99
    report = topics.check(topic, deadline_s=5)
    assert not report.ok
    assert 5 <= report.waited_s < 6
    assert report.sentences() == (
        f"topic {NAME} after 5 s: partition 0 led by another broker than assigned",
        "could not do it (PreferredLeaderNotAvailableError)",
    )


def test_a_silent_broker_or_a_vanished_topic_is_reported_without_an_exception(
    topics: Topics, topic: TopicSet, admin: ScriptedAdmin
) -> None:
    admin.fail["partitions_seen_by"] = [failure("RequestTimedOutError")] * 999
    report = topics.check(topic, deadline_s=3)
    assert not report.ok
    assert "RequestTimedOutError" in report.sentences()[0]
    admin.fail.clear()
    admin.topics.clear()
    report = topics.check(topic, deadline_s=3)
    assert len(report.after.missing) == 30
    assert admin.requests == [], "a topic that vanished is not created again"


def test_leaders_that_moved_are_counted_by_the_broker_that_led(
    topics: Topics, admin: ScriptedAdmin
) -> None:
    several = topics.create(demo("topic.count=2"))
    assert topics.moved_leaders(several) == {}
    admin.topics["of-others"] = {0: Partition(NO_LEADER, (1,), ())}
    for number in (1, 4):  # led by broker 2
        old = admin.topics[f"{NAME}-1"][number]
        admin.topics[f"{NAME}-1"][number] = Partition(3, old.replicas, old.isr)
    old = admin.topics[f"{NAME}-0"][2]
    admin.topics[f"{NAME}-0"][2] = Partition(NO_LEADER, old.replicas, old.isr)
    assert topics.moved_leaders(several) == {2: 2, 3: 1}
    del admin.topics[f"{NAME}-0"]
    assert topics.moved_leaders(several) == {1: 10, 2: 12, 3: 10}


def test_a_topic_that_remains_after_its_deletion_is_an_error(
    topics: Topics, topic: TopicSet, admin: ScriptedAdmin, clock: FakeTime
) -> None:
    admin.deletes = False
    with pytest.raises(TopicError, match=r"after 10 s: broker 1 still knows .*; expected no"):
        topics.delete(topic.names, deadline_s=10)
    assert 110 <= clock() < 111
    admin.fail["delete_topic"] = [failure("TopicDeletionDisabledError")]
    with pytest.raises(AdminError, match="TopicDeletionDisabledError"):
        topics.delete(topic.names)
    assert topics.made == (NAME,)
    admin.fail["delete_topic"] = [failure("UnknownTopicOrPartitionError")]
    admin.topics.clear()
    topics.delete(topic.names)
    assert topics.made == (), "a topic that is gone counts as deleted"
