"""Answers that the protocol allows and few brokers give: each is read, or named in an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreateTopicsResponse,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from jobs.checks.cluster import permission_rules
from jobs.cluster.admin import UNREADABLE, AdminError, KafkaAdmin, Property, TopicSize
from jobs.cluster.connect import connect
from jobs.cluster.health import ClusterHealth
from jobs.cluster.lock import holder_of
from jobs.cluster.permissions import permissions
from jobs.cluster.sources import changed_properties, replicas_by_broker
from metrics.sources.client_only import Replicas
from tests.support.fake_cluster import FakeCluster, Habits

OLD = {
    DescribeClusterRequest: 0,
    DescribeConfigsRequest: 0,
    DescribeLogDirsRequest: 0,
    ElectLeadersRequest: 0,
    ListGroupsRequest: 3,
    MetadataRequest: 4,
}
LACKING = {DescribeClusterRequest: None, DescribeLogDirsRequest: None, ElectLeadersRequest: None}


@contextmanager
def connected(**habits: Any) -> Iterator[tuple[KafkaAdmin, FakeCluster]]:
    with FakeCluster(Habits(**habits)) as cluster, connect(cluster.addresses) as admin:
        cluster.topics["t"] = [(0, 1001), (1001, 0)]
        cluster.groups = {"idle": "Empty", "busy": "Stable", "odd": "Wondering"}
        yield admin, cluster


@pytest.mark.parametrize("versions", [{}, OLD, LACKING], ids=["new", "old", "lacking"])
def test_every_request_is_answered(versions: dict[Any, Any]) -> None:
    with connected(versions=versions, config_source=-1, racks=(None, "b")) as (admin, cluster):
        info = admin.describe_cluster()
        assert info.broker_ids == (0, 1001) and info.fenced == ()
        assert [each.rack for each in info.brokers] == [None, "b"]
        assert [f"{host}:{port}" for host, port in info.addresses.values()] == cluster.addresses
        assert info.cluster_id == ("" if versions is LACKING else "fake")
        assert admin.broker_config(1001) == {"num.io.threads": "8", "ssl.key.password": None}
        assert admin.broker_config(0, ["num.io.threads"])["num.io.threads"] == "8"
        assert admin.topic_config("t")["num.io.threads"] == "8"
        assert admin.topic_names() == {"t"}
        made = admin.create_topic("u", {0: (1001, 0)}, {"retention.ms": "1"})
        assert made == {"max.message.bytes": "1048588"}
        assert admin.create_topic("v", TopicSize(3, 1), {}, validate_only=True) == made
        admin.create_partitions("u", 2)
        assert cluster.requests == ["create u assigned", "grow u 2"]
        assert admin.partitions_seen_by(0, ["u", "none"])["none"] is None
        seen = admin.partitions_seen_by(1001, ["t"])["t"]
        assert seen is not None
        assert seen[1].replicas == (1001, 0)
        assert admin.end_offsets([("t", 1), ("u", 0)]) == {("t", 1): 10, ("u", 0): 0}
        if versions is not LACKING:
            admin.elect_preferred_leaders([("t", 1), ("t", 0)])
            assert admin.topics_held_by(1001) == frozenset({"t", "u"})
            assert admin.log_dirs_of(0, {"t": [0]})[0]["log_dir"] == "/data"
        assert admin.forbidden_among(0, ["t", "none"]) == frozenset()
        assert admin.empty_groups() == (frozenset() if versions is OLD else {"idle"})
        admin.delete_group("idle")
        assert "idle" not in cluster.groups
        admin.delete_topic("u")
        assert admin.topic_names() == {"t"}
        assert admin.features() == {}
        assert replicas_by_broker(admin) == {0: Replicas(1, 0, 0), 1001: Replicas(1, 0, 0)}


def test_a_source_that_is_unknown_is_neither_default_nor_configured() -> None:
    unknown = {-1: None, 0: None, 99: None}
    for source, is_default in {**unknown, 5: True, 4: False, 8: False}.items():
        with connected(config_source=source) as (admin, _):
            found = admin.broker_properties(0)["num.io.threads"]
            changed = changed_properties(admin, 0)
        assert found == Property("8", is_default)
        assert changed == ({"num.io.threads": "8"} if is_default is False else {})


def test_brokers_without_log_directories_have_no_known_disk_and_no_known_topics() -> None:
    with connected(log_dirs=()) as (admin, _):
        assert admin.topics_held_by(0) is None
        dirs = ClusterHealth(admin).log_dirs(["t"])
        words = [f"broker {each} reports no log directory" for each in (0, 1001)]
        assert [each.unknown_words for each in dirs] == words
        assert ClusterHealth(admin).hidden_topics() is None
    with connected(versions=LACKING) as (admin, _):
        assert not any(each.is_known for each in ClusterHealth(admin).log_dirs(["t"]))
        assert ClusterHealth(admin).hidden_topics() is None
        with pytest.raises(AdminError, match="IncompatibleBrokerVersion"):
            admin.elect_preferred_leaders([("t", 0)])


def test_a_topic_that_vanishes_between_two_requests_is_an_error_with_its_name() -> None:
    with connected() as (admin, cluster):
        cluster.vanishing.add("t")
        with pytest.raises(AdminError, match=r"topic t .*UnknownTopicOrPartition"):
            admin.end_offsets([("t", 0)])
        with pytest.raises(AdminError, match=r"topic t .*UnknownTopicOrPartition"):
            admin.end_offsets([("t", 0)])
        assert ClusterHealth(admin).under_replicated() == frozenset()
        assert len(ClusterHealth(admin).log_dirs(["t"])) == 2


CODED: dict[str, tuple[Callable[[KafkaAdmin], Any], str]] = {
    "describe_code": (lambda admin: admin.describe_cluster(), "describe the cluster"),
    "config_code": (lambda admin: admin.broker_config(0), "configuration of broker 0"),
    "group_code": (lambda admin: admin.delete_group("idle"), "consumer group idle"),
    "election_code": (lambda admin: admin.elect_preferred_leaders([("t", 0)]), "topic t"),
    "deletion_code": (lambda admin: admin.delete_topic("t"), "topic t"),
    "offset_code": (lambda admin: admin.end_offsets([("t", 0)]), "topic t"),
    "refuses_assignments": (lambda admin: admin.create_topic("u", {0: (0,)}, {}), "topic u"),
    "refuses_partitions": (lambda admin: admin.create_partitions("t", 9), "topic t"),
}


def test_an_error_code_that_is_unknown_is_named() -> None:
    for habit, (ask, place) in CODED.items():
        coded: dict[str, Any] = {habit: 999}
        with connected() as (admin, cluster):
            cluster.habits = replace(cluster.habits, **coded)
            with pytest.raises(AdminError, match="error code 999") as caught:
                ask(admin)
        assert place in str(caught.value)
    with connected(group_code=999) as (admin, _), pytest.raises(AdminError, match="999"):
        admin.empty_groups()
    with connected(describe_code=35) as (admin, _):
        assert admin.describe_cluster().broker_ids == (0, 1001), "by their metadata"


EMPTY: dict[Any, Callable[[KafkaAdmin], Any]] = {
    DescribeConfigsResponse: lambda admin: admin.topic_config("t"),
    DeleteGroupsResponse: lambda admin: admin.delete_group("idle"),
    CreateTopicsResponse: lambda admin: admin.create_topic("u", TopicSize(1, 1), {}),
    DeleteTopicsResponse: lambda admin: admin.delete_topic("t"),
}


def test_an_answer_without_a_result_is_an_error() -> None:
    for kind, ask in EMPTY.items():
        with (
            connected(empty_answers=frozenset({kind})) as (admin, _),
            pytest.raises(AdminError, match="cannot be read") as caught,
        ):
            ask(admin)
        assert caught.value.cause == UNREADABLE
    with connected() as (admin, _), pytest.raises(AdminError, match="broker 0"):
        holder_of(admin, [0])
    incompatible = pytest.raises(AdminError, match="IncompatibleBrokerVersion")
    with connected(versions={ApiVersionsRequest: 2}) as (admin, _), incompatible:
        admin.features()


def test_a_controller_that_moved_is_found_again_and_one_that_never_settles_is_an_error() -> None:
    with connected(denials=1) as (admin, cluster):
        admin.create_topic("u", {0: (0,)}, {})
        assert "u" in cluster.topics
    with connected(denials=9) as (admin, _), pytest.raises(AdminError, match="NotController"):
        admin.create_topic("u", {0: (0,)}, {})


def test_permissions_that_the_brokers_do_not_show_are_unknown_and_named() -> None:
    lacking = {DeleteRecordsRequest: None, HeartbeatRequest: None}
    with connected(versions=lacking) as (admin, _):
        found = permissions(admin, 1001, "redline-none", lock_group="redline-lock")
        shown = {each.action: each.is_known for each in found}
    assert shown["delete"] is shown["write"] is shown["lock the cluster"] is False
    texts = [finding.found for finding in permission_rules(found, "redline-")]
    assert any("permission to delete" in text for text in texts)
