"""The environment of a run, and what differs between two."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobs.cluster.admin import Property
from jobs.cluster.sources import configured_properties, count_replicas
from jobs.runs.environment import commit_of, facts_of_nodes
from metrics.comparing.cause import broker_differences
from metrics.sources.bean_poller import harmless_arguments
from metrics.sources.beans import Role
from metrics.sources.client_only import Replicas
from metrics.sources.source import NodeInfo
from metrics.tables.rows import ABSENT, Difference, difference, merge_facts


def test_facts_that_all_brokers_share_are_stated_once() -> None:
    assert merge_facts(
        "broker",
        {
            1: {"version": "4.1.2", "cores": "8", "config.a": "x"},
            2: {"version": "4.1.2", "cores": "16"},
            3: {"version": "4.1.2"},
        },
    ) == {
        "broker.version": "4.1.2",
        "broker.1.cores": "8",
        "broker.2.cores": "16",
        "broker.1.config.a": "x",
    }
    assert merge_facts("controller", {}) == {}


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
    before = {"a": "1", "b": "2", "c": "3", "cluster.id": "x"}
    after = {"a": "1", "b": "20", "d": "4", "cluster.id": "y"}
    assert difference(before, after) == (
        Difference("b", "2", "20"),
        Difference("c", "3", ABSENT),
        Difference("d", ABSENT, "4"),
    )
    assert difference(before, before) == ()
    assert difference(before, after, but=()) != difference(before, after)


def entry(value: str | None, is_default: bool | None = False, secret: bool = False) -> Property:
    return Property(value, is_default, secret)


def test_only_configured_properties_are_kept_and_no_secret() -> None:
    properties = {
        "num.io.threads": entry("16"),
        "log.dirs": entry("/a,/b"),
        "min.insync.replicas": entry("2"),
        "num.network.threads": entry("3", is_default=True),
        "ssl.keystore.password": entry("hunter2", secret=True),
        "sasl.jaas.config": entry(None),
        "listeners": entry("PLAINTEXT://10.0.0.1:9092"),
        "queued.max.requests": entry("500", is_default=None),
    }
    assert configured_properties(properties) == {
        "num.io.threads": "16",
        "min.insync.replicas": "2",
        "log.dirs.count": "2",
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("[-Xmx4G, -Xms4g, -XX:+UseG1GC]", "-XX:+UseG1GC -Xms4g -Xmx4G"),
        ("[-Dpassword=x, -javaagent:/a.jar=key, -Xlog:gc=/secret]", ""),
        (
            "[-XX:MaxGCPauseMillis=20, -XX:OnOutOfMemoryError=kill -9 %p]",
            "-XX:MaxGCPauseMillis=20",
        ),
        ("[Ljava.lang.String;@1b2c3d", ""),
        ("[-XX:MaxRAMPercentage=75.0, -XX:HeapDumpPath=/a, -Xss512k]", None),
    ],
)
def test_arguments_that_may_hold_a_secret_are_left_out(given: str, kept: str | None) -> None:
    expected = "-XX:MaxRAMPercentage=75.0 -Xss512k" if kept is None else kept
    assert harmless_arguments(given) == expected


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


def partition(leader: int, replicas: list[int], isr: list[int]) -> dict[str, object]:
    offline = sorted(set(replicas) - set(isr)) if leader < 0 else []
    return {
        "leader_id": leader,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": offline,
    }


def test_replicas_are_counted_at_their_leader_or_their_preferred_leader() -> None:
    topics = [
        {"partitions": [partition(1, [1, 2], [1, 2]), partition(2, [2, 1], [2])]},
        {"partitions": [partition(-1, [3, 1], [])]},
    ]
    assert count_replicas(topics) == {
        1: Replicas(1, 1, 1),
        2: Replicas(1, 1, 0),
        3: Replicas(0, 1, 1),
    }
