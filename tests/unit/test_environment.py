"""The environment of a run, and what differs between two."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobs.cluster.admin import DescribedTopic, Partition, Property
from jobs.cluster.sources import configured_properties, count_replicas
from jobs.runs.environment import commit_of, facts_of_nodes
from metrics.comparing.cause import broker_differences
from metrics.sources.bean_poller import harmless_arguments
from metrics.sources.beans import Role
from metrics.sources.client_only import Replicas
from metrics.sources.source import NodeInfo
from metrics.tables.rows import ABSENT, Difference, difference


def test_the_series_of_exporters_are_facts_that_no_broker_is_slower_by() -> None:
    def facts(*series: str) -> dict[str, str]:
        return facts_of_nodes(
            {
                number: NodeInfo(number, "4.1", frozenset({Role.BROKER}), series={"bytes_in": each})
                for number, each in enumerate(series, 1)
            }
        )

    alike, other = facts("b_total", "b_total"), facts("b_total", "b_count")
    assert alike == {"broker.version": "4.1", "series.bytes_in": "b_total"}
    assert other["series.2.bytes_in"] == "b_count"
    assert broker_differences(alike, other) == ()


def test_a_difference_names_changed_added_and_removed_facts() -> None:
    before, after = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "20", "d": "4"}
    changes = ("b", "2", "20"), ("c", "3", ABSENT), ("d", ABSENT, "4")
    assert difference(before, after) == tuple(Difference(*each) for each in changes)
    assert difference(before, {**before, "cluster.id": "y"}) == ()


def test_only_configured_properties_are_kept_and_no_secret() -> None:
    properties = {
        "num.io.threads": Property("16", False, False),
        "log.dirs": Property("/a,/b", False, False),
        "num.network.threads": Property("3", True, False),
        "ssl.keystore.password": Property("hunter2", False, True),
        "sasl.jaas.config": Property(None, False, False),
        "listeners": Property("PLAINTEXT://10.0.0.1:9092", False, False),
        "queued.max.requests": Property("500", None, False),
    }
    assert configured_properties(properties) == {"num.io.threads": "16", "log.dirs.count": "2"}


def test_arguments_that_may_hold_a_secret_are_left_out() -> None:
    for given, kept in (
        ("[-Xmx4G, -Xms4g, -XX:+UseG1GC]", "-XX:+UseG1GC -Xms4g -Xmx4G"),
        ("[-Dpassword=x, -javaagent:/a.jar=key, -Xlog:gc=/secret]", ""),
        ("[-XX:MaxRAMPercentage=75.0, -XX:OnOutOfMemoryError=kill -9 %p, -Xss512k]",
         "-XX:MaxRAMPercentage=75.0 -Xss512k"),
        ("[-XX:HeapDumpPath=/a, -XX:MaxGCPauseMillis=20]", "-XX:MaxGCPauseMillis=20"),
        ("[Ljava.lang.String;@1b2c3d", ""),
    ):  # fmt: skip
        assert harmless_arguments(given) == kept


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def test_the_commit_of_a_checkout_and_its_changes_are_recorded(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert commit_of(tmp_path) is None, "there is no commit yet"
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    commit = commit_of(tmp_path)
    assert commit is not None
    assert len(commit) == 12
    (tmp_path / "a").write_text("2")
    assert commit_of(tmp_path) == f"{commit}+changes"


def test_replicas_are_counted_at_their_leader_or_their_preferred_leader() -> None:
    partitions = (
        Partition(1, (1, 2), (1, 2)), Partition(2, (2, 1), (2,)), Partition(-1, (3, 1), (), (1, 3))
    )  # fmt: skip
    found = count_replicas([DescribedTopic("t", dict(enumerate(partitions)))])
    assert found == {1: Replicas(1, 1, 1), 2: Replicas(1, 1, 0), 3: Replicas(0, 1, 1)}
