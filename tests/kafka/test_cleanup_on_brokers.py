"""`redline cleanup` on real brokers deletes leftovers of runs, and keeps topics of others."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from jobs.cleanup import cleanup
from jobs.cluster.connect import connect
from jobs.cluster.lock import RunLocks
from jobs.cluster.opening import open_cluster
from jobs.cluster.topic_plan import mark_of, topic_name
from jobs.cluster.topics import Topics
from jobs.config.loading import load_cluster
from jobs.console.events import RecordingReporter
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file
from jobs.trials.context import RunContext
from jobs.trials.point_topics import PointTopics
from metrics.common.errors import TryLaterError
from tests.support.kafka_fixtures import REFUSED_SOCKETS
from tests.support.processes import becomes

pytestmark = pytest.mark.together

RUN_ID = "20200101-000000-ab12"


def cleaned(testbed: Testbed, *options: str) -> str:
    command = ["--cluster", str(cluster_file(testbed.folder)), *options]
    done = CliRunner().invoke(cleanup, command, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return " ".join(done.output.split())


def commit(servers: Sequence[str], group: str, topic: str) -> None:
    """Create a group without members."""
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(0, "", -1)})
    consumer.close()


@pytest.mark.filterwarnings(REFUSED_SOCKETS)
def test_leftovers_of_runs_are_listed_and_then_deleted(kafka_testbed: Testbed) -> None:
    servers = kafka_testbed.bootstrap_servers
    run_topic, other_topic = topic_name(RUN_ID, 100, 1), "redline-payments-canary"
    group, other_group = f"redline-{RUN_ID}-1-group-0", "redline-billing-group-1"
    unlocked = topic_name("20200101-000000-ab13", 100, 1)
    made = {
        run_topic: mark_of(RUN_ID, is_locked=True),
        unlocked: mark_of("20200101-000000-ab13", is_locked=False),
        other_topic: {},
    }
    with connect(servers) as admin:
        for topic, mark in made.items():
            admin.create_topic(topic, {0: [1]}, mark)
        commit(servers, group, run_topic)
        commit(servers, other_group, other_topic)
        assert group in admin.empty_groups()
        output = cleaned(kafka_testbed, "--run", RUN_ID)
        assert run_topic in output and group in output
        for kind, name in (("topic", other_topic), ("group", other_group)):
            assert f"{kind} {name} is kept, because nothing proves that a run created it" in output
            assert f"--delete --{kind} {name}" in output
        assert "2020-01-01T00:00:00Z" in output
        assert "2 of" in output and "--yes deletes them" in output
        assert run_topic in admin.topic_names()

        output = cleaned(kafka_testbed, "--yes")
        assert "deleted 2 of 2" in output
        kept = "run 20200101-000000-ab13 are kept, because the run may be active without the lock"
        assert kept in output
        # Brokers learn of a topic's deletion from the controller at different times.
        assert becomes(lambda: run_topic not in admin.topic_names())
        assert {other_topic, unlocked} <= admin.topic_names()
        assert group not in admin.empty_groups() and other_group in admin.empty_groups()
        assert "deleted 1 of 1" in cleaned(kafka_testbed, "--run", "20200101-000000-ab13", "--yes")
        later = ("--run", RUN_ID, "--older-than", "1h")
        assert becomes(lambda: "0 of" in cleaned(kafka_testbed, *later))
        admin.delete_group(other_group)
        admin.delete_topic(other_topic)


def test_topics_of_a_running_run_are_kept(kafka_testbed: Testbed) -> None:
    config = load_cluster(str(cluster_file(kafka_testbed.folder)))
    with ExitStack() as stack:
        opened = open_cluster(config, RecordingReporter(), stack)
        RunLocks("redline-run-a-since-now").take(opened, lambda _: None, stack).require()
        with pytest.raises(TryLaterError):
            cleaned(kafka_testbed, "--yes")


@pytest.mark.filterwarnings(REFUSED_SOCKETS)
def test_a_run_deletes_its_own_groups_at_its_end(kafka_testbed: Testbed) -> None:
    servers = kafka_testbed.bootstrap_servers
    own_group, other_group = f"redline-{RUN_ID}-3-group-0", f"redline-{RUN_ID}x-3-group-0"
    with connect(servers) as admin:
        topic = f"orders-{uuid.uuid4().hex[:6]}"
        admin.create_topic(topic, {0: [1]}, {})
        for group in (own_group, other_group):
            commit(servers, group, topic)
        context = SimpleNamespace(
            run_id=RUN_ID,
            generator=SimpleNamespace(groups={own_group, "redline-unused-group-0"}),
            cluster=SimpleNamespace(admin=admin),
            topics=Topics(admin, RUN_ID),
            reporter=RecordingReporter(),
        )
        with PointTopics(cast(RunContext, context)):
            assert {own_group, other_group} <= admin.empty_groups()
        assert own_group not in admin.empty_groups() and other_group in admin.empty_groups()
        admin.delete_group(other_group)
        admin.delete_topic(topic)
