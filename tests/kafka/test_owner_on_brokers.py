"""The bounds of a cluster's owner in a topic of real brokers, and the pinned id of a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from kafka import KafkaProducer

from jobs.checks.cluster import owner_findings
from jobs.checks.finding import Severity
from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.cluster.health import ClusterHealth
from jobs.cluster.opening import OpenCluster
from jobs.cluster.owner_topic import OwnerTopics
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from jobs.config.goal import GuardLimits
from jobs.engine.stage import run_task
from jobs.testbed.handle import Testbed
from jobs.trials.control_server import ControlServer
from jobs.trials.guards import Guards
from metrics.common.errors import ConfigError, GuardStopError
from tests.bench.engine import Alone
from tests.support.patterns import pattern, plan, producer_pattern
from tests.support.processes import PATIENCE_S, becomes, beside

pytestmark = pytest.mark.together

COMPACTED = {"cleanup.policy": "compact"}
WORKLOAD = load_workload(
    "demo", ["workload.topic.replication_factor=1", "workload.topic.partitions_per_broker=1"]
)

Write = Callable[[bytes | None], None]


@pytest.fixture
def topic(admin: KafkaAdmin) -> Iterator[str]:
    """A name of its own, as an owner's topic binds all other tests on these brokers, too."""
    name = f"owner-of-{uuid.uuid4().hex[:6]}"
    yield name
    if name in admin.topic_names():
        admin.delete_topic(name)


def written(testbed: Testbed, topic: str, record: bytes | None, **options: str) -> None:
    producer = KafkaProducer(bootstrap_servers=testbed.bootstrap_servers, **options)
    producer.send(topic, key=b"notes", value=b"of no meaning")
    producer.send(topic, key=b"bounds", value=record).get(timeout=PATIENCE_S)
    producer.close()


def test_the_last_record_of_the_topic_holds(
    kafka_testbed: Testbed, admin: KafkaAdmin, topic: str
) -> None:
    owners = OwnerTopics(admin, [topic])
    assert owners.read() == {}
    assert topic not in admin.topic_names(), "looking for it does not create it"
    admin.create_topic(topic, {0: [2]}, COMPACTED)
    assert becomes(lambda: topic in admin.topic_names())
    with pytest.raises(ConfigError, match=f"topic {topic} has no record with the key bounds"):
        becomes(lambda: owners.read() != {})
    written(kafka_testbed, topic, b'{"np_max": 20}')
    assert owners.read()[topic].given == {"np_max": 20}
    written(kafka_testbed, topic, b"np_max: 10\nfail_closed: true\n", compression_type="gzip")
    assert owners.read()[topic].given == {"np_max": 10, "fail_closed": True}
    assert OwnerTopics(admin, [topic]).read() == owners.read()
    written(kafka_testbed, topic, b'{"producers": 10}')
    for reader in (owners, OwnerTopics(admin, [topic]), owners):
        with pytest.raises(ConfigError, match=f"topic {topic}, record bounds.*producers is an un"):
            reader.read()
    written(kafka_testbed, topic, None)
    with pytest.raises(ConfigError, match="has no record with the key bounds"):
        owners.read()


def test_the_doctor_names_a_user_who_may_change_the_bounds_and_changes_nothing(
    kafka_testbed: Testbed, admin: KafkaAdmin, topic: str
) -> None:
    opened = OpenCluster(admin, admin.describe_cluster())
    (none,) = owner_findings(opened, topic)
    assert (none.severity, none.found) == (
        Severity.OK,
        f"no bounds, because the topic {topic} does not exist",
    )
    admin.create_topic(topic, {0: [2]}, COMPACTED)
    assert becomes(lambda: topic in admin.topic_names())
    written(kafka_testbed, topic, b'{"np_max": 20}')
    ends = admin.end_offsets([(topic, 0)])
    stated, changeable = owner_findings(opened, topic)
    assert "np_max 20" in stated.found
    assert changeable.severity is Severity.WARNING
    assert "to write to and delete the topic" in changeable.found
    assert admin.end_offsets([(topic, 0)]) == ends, "nothing was written"
    assert OwnerTopics(admin, [topic]).read()[topic].given == {"np_max": 20}


def test_a_running_load_ends_when_the_owner_tightens(
    kafka_testbed: Testbed, admin: KafkaAdmin, topic: str
) -> None:
    admin.create_topic(topic, {0: [2]}, COMPACTED)
    assert becomes(lambda: topic in admin.topic_names())
    written(kafka_testbed, topic, b'{"np_max": 4}')
    said: list[str] = []
    guards = Guards(GuardLimits(), ClusterHealth(admin), lambda _: True, said.append)
    guards.owner = OwnerTopics(admin, [topic]).read
    guards.read_bounds()
    guards.open()
    with pytest.raises(GuardStopError, match=r"5 producers, more than 4 \(np_max of the"):
        guards.admit(pattern(producers=5))
    guards.tripped = None
    topics = Topics(admin, uuid.uuid4().hex[:6])
    made = topics.create(WORKLOAD.pattern(1_000))
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(1) as channel:
        producer = producer_pattern(1_000, 200.0, linger_ms=10.0)
        trial = plan(
            trial_id=topic,
            topics=made.names,
            pattern=replace(pattern(producers=2, warmup_s=0.5, measure_s=120.0), producer=producer),
            leaders=made.leaders,
            brokers=admin.describe_cluster().addresses,
            control=channel.address,
        )
        guards.admit(trial.pattern)

        def tighten() -> None:
            if becomes(lambda: channel.written > 0):
                written(kafka_testbed, topic, b'{"load_bytes_per_s_max": 1000}')

        with guards.watch(trial.pattern, channel), beside(tighten):
            row = run_task(trial, Alone())
    topics.delete(made.names)
    assert row.error is not None and "the driver has ended" in row.error, "it lasted for 120 s"
    with pytest.raises(GuardStopError, match=f"load_bytes_per_s_max of the .* topic {topic}"):
        guards.require_untripped()
    assert "load_bytes_per_s_max 1000" in said[-1] and "from now on" in said[-1]


def test_another_cluster_than_the_pinned_one_is_refused(
    kafka_testbed: Testbed, admin: KafkaAdmin
) -> None:
    own = admin.describe_cluster().cluster_id
    connect(kafka_testbed.bootstrap_servers, cluster_id=own).close()
    with pytest.raises(ConfigError) as caught:
        connect(kafka_testbed.bootstrap_servers, cluster="orders", cluster_id="another")
    assert own in str(caught.value) and "cluster_id: another" in str(caught.value)
