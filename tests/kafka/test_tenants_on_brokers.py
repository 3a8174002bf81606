"""Runs of users with few rights on brokers with ACLs: a prefix of their own, and given topics."""

from __future__ import annotations

import json
import logging
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.connect import connect
from jobs.setup.jars import kafka_jars
from jobs.setup.preflight import java_command
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_text, start
from tests.support.acls import GUARDED
from tests.support.commands import finished
from tests.support.java_traffic import kafka_tools_jars

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]
log = logging.getLogger(__name__)

DOCS = Path(__file__).parents[2] / "docs"
SHORT = (
    "--workload", "demo", "--yes",
    "--set=workload.message_bytes=[1000]", "--set=workload.trial.measure_s=4",
    "--set=goal.search.load_cap=2", "--set=goal.search.load_start_max=2",
    "--set=goal.search.steady_s=0",
    "--set=goal.search.accept_lower_bound=true", "--set=cluster.warm_up_max_s=2",
)  # fmt: skip
"""A search that ends at two producers."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[Testbed]:
    """Two brokers with ACLs, behind TLS and a login; the plain listener is the owner's."""

    with start("secured", brokers=2, overrides=GUARDED, name="tenants") as testbed:
        yield testbed


@pytest.fixture
def owner(guarded: Testbed) -> Iterator[KafkaAdmin]:
    """A client with all rights; the user of the runs loses its rights at the end."""
    with connect([plain(guarded)]) as admin:
        yield admin
        everything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
        admin.client.delete_acls(
            [ACLFilter(None, "*", ACLOperation.ANY, ACLPermissionType.ANY, everything)]
        )


def plain(testbed: Testbed) -> str:
    return f"127.0.0.1:{testbed.brokers[1].port}"


def grant(testbed: Testbed, *lines: str) -> None:
    """Run lines of kafka-acls.sh, as the owner of the cluster does."""
    jars = (*kafka_jars(), *kafka_tools_jars())
    for line in lines:
        words = shlex.split(line.replace("…", plain(testbed)))
        assert words[0] == "kafka-acls.sh"
        main = "org.apache.kafka.tools.AclCommand"
        done = subprocess.run(
            [java_command(), "-cp", ":".join(map(str, jars)), main, *words[1:]],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def documented(beginning: str) -> list[str]:
    """The commands of kafka-acls.sh in lines of docs/shared-clusters.md that begin like this."""
    text = (DOCS / "shared-clusters.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(beginning)]
    found = [each for row in rows for each in re.findall(r"kafka-acls\.sh [^`]+", row)]
    assert found, beginning
    return found


def ran(job: str, *options: str, folder: Path, code: int = 0) -> str:
    text = finished(job, *options, folder=folder, deadline_s=240.0, code=code)
    log.warning("%s ended with %d:\n%s", job, code, text)
    return " ".join(text.split())


def written(testbed: Testbed, folder: Path, *lines: str) -> str:
    path = folder / "shared.yaml"
    text = cluster_text(testbed.folder, testbed.state)
    path.write_text("\n".join((text, *lines, "")), encoding="utf-8")
    return str(path)


def test_a_tenant_with_one_prefix_has_all_that_a_run_needs(
    guarded: Testbed, owner: KafkaAdmin, tmp_path: Path
) -> None:
    own = documented("| access to topics and groups")
    others = documented("| access to the cluster and to other topics")
    owner.create_topic("orders", {0: [1, 2]}, {})
    cluster = ("--cluster", written(guarded, tmp_path, "name_prefix: team-a-"))
    grant(guarded, *(each.replace("redline-", "team-a-") for each in own))
    text = ran("doctor", *cluster, *SHORT[:2], *SHORT[3:], folder=tmp_path, code=2)
    assert "permissions ok" in text, text
    assert "could not read the configuration of broker 1 (ClusterAuthorizationFailedError)" in text
    assert "may not describe the topic redline-owner" in text
    assert "so no guard watches the disks; this requires Kafka 3.3 or later and the ACL" in text

    grant(guarded, *others, *documented("kafka-acls.sh"))
    owner.create_topic("redline-owner", {0: [1, 2]}, {"cleanup.policy": "compact"})
    with KafkaProducer(bootstrap_servers=plain(guarded)) as producer:
        producer.send("redline-owner", key=b"bounds", value=b"np_max: 9").get(timeout=60)
    text = ran("doctor", *cluster, *SHORT[:2], *SHORT[3:], folder=tmp_path)
    assert "permissions ok delete, write, lock the cluster" in text
    assert "owner's bounds ok np_max 9 (topic redline-owner)" in text
    text = ran("find-limit", *cluster, *SHORT, folder=tmp_path)
    assert "may not describe" not in text and "no canaries" not in text
    assert owner.topic_names() - {"__consumer_offsets"} == {"orders", "redline-owner"}
    text = ran("cleanup", *cluster, folder=tmp_path)
    assert "0 of 0 leftovers" in text, text
    owner.delete_topic("orders")
    owner.delete_topic("redline-owner")


def test_given_topics_are_used_as_they_are_and_stay(
    guarded: Testbed, owner: KafkaAdmin, tmp_path: Path
) -> None:
    name, properties = "team-b-load", {"retention.ms": "7200000", "retention.bytes": "100000000"}
    placement = {number: (1 + number % 2, 2 - number % 2) for number in range(6)}
    owner.create_topic(name, placement, properties)
    before = owner.topic_config(name)
    user = "kafka-acls.sh --bootstrap-server … --add --allow-principal User:redline"
    grant(
        guarded,
        f"{user} --operation Describe --operation Write --topic {name}",
        f"{user} --operation Read --group redline- --resource-pattern-type prefixed",
        f"{user} --operation Describe --operation DescribeConfigs --cluster --topic '*'",
    )
    cluster = ("--cluster", written(guarded, tmp_path, f"topics: [{name}]"))

    text = ran("doctor", *cluster, *SHORT[:2], *SHORT[3:], folder=tmp_path)
    shape = "topic team-b-load is used unchanged: 6 partitions, 2 replicas instead of the"
    assert f"{shape} workload's 10 partitions for each broker" in text
    assert "permissions ok write, lock the cluster" in text
    assert "no canaries" in text and "lacks the permission" not in text
    closed = "--set=goal.guards.fail_closed=true"
    text = ran("find-limit", *cluster, *SHORT, closed, folder=tmp_path, code=2)
    assert "no canaries" in text, text
    text = ran("find-limit", *cluster, *SHORT, folder=tmp_path)
    assert "for 2 h 00 min (retention.ms 7200000)" in text and "no canaries" in text
    assert "may remain" not in text
    summary = json.loads(max((tmp_path / "out").glob("*/summary.json")).read_text())
    assert summary["replication_factor"] == 2
    assert summary["boundaries"][0]["pattern"]["partitions_per_broker"] == "3"
    assert summary["environment"]["topic.config.retention.ms"] == "7200000"

    text = ran("find-limit", *cluster, *SHORT, folder=tmp_path, code=2)
    assert "team-b-load of cluster.topics holds" in text, text
    assert "cluster.topics_hold_data: true" in text and "starting Spark" not in text
    held = "--set=cluster.topics_hold_data=true"
    ran("traffic", *cluster, *SHORT[:4], "--np=2", "--trials=1", held, folder=tmp_path)

    text = ran("cleanup", *cluster, "--yes", folder=tmp_path)
    assert "0 of 0 leftovers" in text, text
    assert owner.topic_names() - {"__consumer_offsets"} == {name}
    assert owner.topic_config(name) == before
    ends = owner.end_offsets([(name, number) for number in placement])
    assert min(ends.values()) > 100
    owner.delete_topic(name)
