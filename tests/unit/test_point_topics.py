"""The topics of the traffic of a search: new ones for another size, and none left over."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.cluster.admin import AdminError
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from jobs.console.events import Level, Notice, RecordingReporter
from jobs.trials.context import RunContext
from jobs.trials.point_topics import PointTopics
from metrics.traffic.axes import NP
from metrics.traffic.pattern import TrafficPattern
from tests.support.scripted_admin import FakeTime, ScriptedAdmin

WORKLOAD = load_workload("demo", ["workload.topic.count=2"])
NAMES = ("redline-run1-100B-10p-0", "redline-run1-100B-10p-1")


def traffic(message_bytes: int, producers: int, partitions: int = 10) -> TrafficPattern:
    """The traffic of this number of producers."""
    pattern = NP.apply(WORKLOAD.pattern(message_bytes), producers)
    return replace(pattern, topic=replace(pattern.topic, partitions_per_broker=partitions))


@pytest.fixture
def admin() -> ScriptedAdmin:
    return ScriptedAdmin()


@pytest.fixture
def reporter() -> RecordingReporter:
    return RecordingReporter()


@pytest.fixture
def topics(admin: ScriptedAdmin, reporter: RecordingReporter) -> PointTopics:
    clock = FakeTime()
    keeper = Topics(admin, "run1", clock=clock, pause=clock.pause)
    cluster = SimpleNamespace(given="my own.yml", starts_brokers=False)
    context = SimpleNamespace(
        topics=keeper, reporter=reporter, generator=SimpleNamespace(groups=set()), run_id="run1",
        config=SimpleNamespace(cluster=cluster),
    )  # fmt: skip
    return PointTopics(cast(RunContext, context))


def test_another_load_keeps_the_topics_and_another_size_has_new_ones(
    topics: PointTopics, admin: ScriptedAdmin
) -> None:
    first = topics.open(traffic(100, 4))
    assert topics.open(traffic(100, 8)) is first
    topics.open(traffic(1_000, 4))
    topics.open(traffic(1_000, 4, partitions=20))
    larger = [name.replace("100B", "1000B") for name in NAMES]
    assert admin.requests == [
        f"{verb} {name}"
        for verb, names in (
            ("create", NAMES), ("delete", NAMES), ("create", larger), ("delete", larger),
            ("create", [name.replace("10p", "20p") for name in larger]),
        )
        for name in names
    ]  # fmt: skip


def test_topics_whose_replicas_others_moved_are_made_anew(
    topics: PointTopics, admin: ScriptedAdmin, reporter: RecordingReporter
) -> None:
    first = topics.open(traffic(100, 4))
    old = admin.topics[NAMES[0]][0]
    admin.topics[NAMES[0]][0] = replace(old, leader=3, replicas=(3, 2), isr=(3, 2))
    again = topics.open(traffic(100, 4))
    assert again.replicas == first.replicas
    verbs = ("create", "delete", "create")
    assert admin.requests == [f"{verb} {name}" for verb in verbs for name in NAMES]
    (notice,) = [each for each in reporter.events if isinstance(each, Notice)]
    assert notice.text.startswith("the replicas of topic redline-run1-100B-10p-0")


def test_topics_of_a_failed_creation_are_deleted(topics: PointTopics, admin: ScriptedAdmin) -> None:
    admin.topics_of_others = {NAMES[1]}
    with pytest.raises(AdminError):
        topics.open(traffic(100, 4))
    topics.close()
    assert admin.requests == [f"create {NAMES[0]}", f"delete {NAMES[0]}"]
    topics.close()
    assert len(admin.requests) == 2


def test_topics_that_cannot_be_deleted_do_not_hide_the_first_error(
    topics: PointTopics, admin: ScriptedAdmin, reporter: RecordingReporter
) -> None:
    admin.topics_of_others = {NAMES[1]}
    admin.fail["delete_topic"] = [AdminError("no broker answers", "KafkaConnectionError")]
    with pytest.raises(AdminError, match="TopicAlreadyExists"), topics:
        topics.open(traffic(100, 4))
    assert warnings(reporter) == [REMAIN]


def test_topics_of_an_earlier_size_are_deleted_at_the_next_occasion(
    topics: PointTopics, admin: ScriptedAdmin, reporter: RecordingReporter
) -> None:
    admin.fail["delete_topic"] = [AdminError("no broker answers", "KafkaConnectionError")]
    with topics:
        topics.open(traffic(100, 4))
        topics.close()
        topics.open(traffic(1_000, 4))
    assert warnings(reporter) == [
        "topics are not deleted yet: no broker answers; the run tries again later"
    ]
    assert {f"delete {name}" for name in NAMES} <= set(admin.requests)


def test_topics_of_brokers_that_the_run_starts_end_with_them(
    topics: PointTopics, admin: ScriptedAdmin, reporter: RecordingReporter
) -> None:
    cluster = SimpleNamespace(name="demo", starts_brokers=True)
    topics._context.config = SimpleNamespace(cluster=cluster)  # type: ignore[misc,assignment]
    admin.fail["delete_topic"] = [AdminError("no broker answers", "KafkaConnectionError")]
    with topics:
        topics.open(traffic(100, 4))
    (text,) = warnings(reporter)
    assert text.endswith("no broker answers; the topics are deleted with the brokers of this run")


REMAIN = (
    "topics of the run may remain: no broker answers; redline cleanup --cluster 'my own.yml' "
    "--run run1 --yes deletes them"
)


def warnings(reporter: RecordingReporter) -> list[str]:
    notices = (event for event in reporter.events if isinstance(event, Notice))
    return [notice.text for notice in notices if notice.level is Level.WARNING]
