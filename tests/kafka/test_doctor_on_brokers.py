"""`redline doctor` on real brokers, with a running Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka.admin import ACLOperation, ResourceType

from jobs.checks.finding import Finding, Severity
from jobs.cluster.connect import connect
from jobs.cluster.topics import Topics
from jobs.config import load
from jobs.config.yaml_file import parse_map, yaml_text
from jobs.console.events import RecordingReporter
from jobs.engine.network.options import NAME_PREFIX as PREFIX
from jobs.features.doctor import examination
from jobs.features.doctor.examination import Examination
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.limit import LimitRun
from jobs.runs.options import RunOptions
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_text, start
from jobs.testbed.places import free_ports
from jobs.trials.context import Session
from jobs.trials.control_server import control_of
from metrics.common.errors import ConfigError
from tests.support.acls import GUARDED, grant
from tests.support.commands import finished
from tests.support.engine_bench import bench_on
from tests.support.rows import traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.together

PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
GRANTED = (
    (ResourceType.TOPIC, ACLOperation.CREATE),
    (ResourceType.TOPIC, ACLOperation.DELETE),
    (ResourceType.TOPIC, ACLOperation.DESCRIBE),
    (ResourceType.TOPIC, ACLOperation.WRITE),
    (ResourceType.TOPIC, ACLOperation.READ),
    (ResourceType.GROUP, ACLOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, ACLOperation.WRITE),
    (ResourceType.CLUSTER, ACLOperation.DESCRIBE_CONFIGS),
    (ResourceType.CLUSTER, ACLOperation.DESCRIBE),
)


@pytest.fixture
def cluster_file(kafka_testbed: Testbed, tmp_path: Path) -> Path:
    """The file of a cluster with the brokers of the run, outside a testbed."""
    return written(kafka_testbed, tmp_path)


def written(testbed: Testbed, folder: Path) -> Path:
    path = folder / "brokers.yaml"
    path.write_text(cluster_text(testbed.folder, testbed.state))
    return path


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the doctor use the session of all tests, and not close it."""
    monkeypatch.setattr(
        examination,
        "open_session",
        lambda stack, *_, **_named: Session(spark, stack.enter_context(control_of(spark))),
    )


def examined(cluster_file: Path, *overrides: str, probes: bool = False) -> dict[str, Finding]:
    options, reporter = RunOptions(cluster_file.parent), RecordingReporter()
    made = Examination(
        str(cluster_file), "demo", "default", overrides, options, reporter, probes=probes
    )
    return {each.check: each for each in made.make()}


def test_healthy_brokers_have_no_findings(cluster_file: Path) -> None:
    found = examined(cluster_file)
    assert {
        check: each.found for check, each in found.items() if each.severity is not Severity.OK
    } == {}
    assert {check for check in found if check not in PAGE} == set()
    assert found["brokers"].found.startswith("3 brokers")
    assert found["permissions"].found == "delete, write, lock the cluster"
    assert found["brokers, from executors"].found == "3 brokers reached from 1 executor"
    assert found["brokers' metrics"].found.endswith("by driver-jvm")


def test_each_problem_is_reported_and_the_other_checks_continue(cluster_file: Path) -> None:
    (shut,) = free_ports(1)
    text = parse_map(cluster_file.read_text(), cluster_file.name).data
    text["jmx"]["endpoints"][2] = f"127.0.0.1:{shut}"
    cluster_file.write_text(yaml_text(text))
    found = examined(
        cluster_file,
        "workload.trial.measure_s=1",
        "workload.trial.sample_interval_s=0.2",
        "workload.topic.config.cleanup.policy=nonsense",
    )
    problems = {
        each.check: each.found for each in found.values() if each.severity is Severity.PROBLEM
    }
    assert sorted(problems) == ["brokers' metrics", "length of a trial", "topics"]
    assert "broker 2 does not answer JMX" in problems["brokers' metrics"]
    assert "replica.lag.time.max.ms" in problems["length of a trial"]
    assert "cleanup.policy" in problems["topics"]
    assert found["executors' clocks"].severity is Severity.OK


def test_a_probe_meets_the_rules_for_records_and_leaves_no_topic(
    cluster_file: Path, kafka_testbed: Testbed
) -> None:
    with connect(kafka_testbed.bootstrap_servers) as admin:
        for run_id in ("doctor-20200101-000000-abcd", "doctor-29990101-000000-abcd"):
            Topics(admin, run_id).create(traffic(1, 100, 1000.0))
        others = frozenset({f"{PREFIX}doctor-29990101-000000-abcd-100B-10p"})  # one that goes on
        probed = examined(cluster_file, probes=True)["probe"]
        assert probed == Finding(
            Severity.OK, "probe", "3 brokers stored a record of each message size, and returned it"
        )
        assert {name for name in admin.topic_names() if "doctor" in name} == others
        # Records are older than this when they arrive; the description of a topic is no refusal.
        bound = "workload.topic.config.message.timestamp.before.max.ms=0"
        found = examined(cluster_file, bound, probes=True)["topics"]
        assert found.severity is Severity.PROBLEM
        assert "refused a record of this workload" in found.found and "timestamp" in found.found
        config = load(str(cluster_file), "demo", "default", [bound])
        with pytest.raises(ConfigError, match="refused a record of this workload"):
            execute(
                LimitRun(config),
                RunOrder(cluster_file.parent, reporter=RecordingReporter(), run_id="no"),
            )
        assert {name for name in admin.topic_names() if "doctor" in name} == others
        admin.delete_topic(*others)


@pytest.mark.long
def test_each_missing_acl_is_named_and_the_documented_ones_suffice(tmp_path: Path) -> None:
    everything = (
        "workload.topic.replication_factor=1",
        "workload.consumers.groups=1",
        "workload.producer.acks=all",
        "workload.producer.enable_idempotence=true",
        "workload.producer.transaction_duration_ms=1000",
    )
    with (
        start("secured", brokers=1, overrides=GUARDED, name="acls") as testbed,
        connect([f"127.0.0.1:{testbed.brokers[1].port}"]) as superuser,
    ):
        file = written(testbed, tmp_path)
        order = RunOrder(tmp_path, reporter=RecordingReporter(), run_id="lacking")
        with pytest.raises(ConfigError, match="lacks the permission to delete; expected the ACL"):
            execute(LimitRun(load(str(file), "demo", "default", everything)), order)
        for resource, operation in GRANTED:
            if (resource, operation) == (ResourceType.TOPIC, ACLOperation.WRITE):
                sentence = "lacks the permission to write; expected the ACL Write on topics"
                assert sentence in refused(file, tmp_path)
            found = examined(file, *everything)
            lacking = [each for each in found.values() if each.severity is not Severity.OK]
            assert lacking, (resource, operation)
            grant(superuser, resource, operation)
        found = examined(file, *everything)
        assert found["permissions"].found == (
            "delete, write, read, join a group, write in transactions, lock the cluster"
        )
        assert {
            each.sentence for each in found.values() if each.severity is not Severity.OK
        } == set()
        assert superuser.topic_names() == frozenset(), "not even the topic of transactions"
        superuser.create_topic("orders", {0: [1]}, {})
        hidden = examined(file, *everything)["guards"]
        assert hidden.severity is Severity.WARNING
        assert "may not describe (1, orders among them)" in hidden.found
        commits_with_these_rights(testbed)


def commits_with_these_rights(testbed: Testbed) -> None:
    """Offer a load with transactions as the user of the cluster's file."""
    options = testbed.client_security().client_kwargs()
    with bench_on(testbed, options, name="redline-rights") as bench:
        done = bench.run(acks="all", enable_idempotence=True, transaction_duration_ms=200.0)
    assert done.counts.transactions_committed > 0
    assert (done.counts.failed_total, done.counts.transactions_aborted) == (0, 0)


def refused(cluster_file: Path, folder: Path) -> str:
    """The output of a run that is refused with doctor's message, before Spark starts."""
    options = ("--cluster", str(cluster_file), "--workload", "demo", "--yes", "--no-lock",
               "--set", "workload.topic.replication_factor=1")  # fmt: skip
    text = finished("find-limit", *options, folder=folder, deadline_s=60.0, code=2)
    assert "starting Spark" not in text
    return text
