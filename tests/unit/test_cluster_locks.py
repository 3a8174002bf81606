"""The locks of one run: one for each cluster, whether or not the clusters have ids."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import pytest

from jobs.cluster import lock
from jobs.cluster.admin import Broker, ClusterInfo, KafkaAdmin
from jobs.cluster.lock import RunLocks
from jobs.cluster.opening import OpenCluster


def opened(cluster_id: str, port: int) -> OpenCluster:
    info = ClusterInfo(cluster_id, (Broker(0, "h", port),), (), (2, 6))
    return OpenCluster(cast(KafkaAdmin, None), info)


@pytest.mark.parametrize(
    ("clusters", "locks"),
    [
        ((opened("x", 1), opened("x", 2)), 1),
        ((opened("x", 1), opened("y", 1)), 2),
        ((opened("", 1), opened("", 2)), 2),
        ((opened("", 1), opened("", 1)), 1),
    ],
    ids=["one cluster by two addresses", "two clusters", "two without ids", "one without an id"],
)
def test_each_cluster_has_one_lock(
    clusters: tuple[OpenCluster, ...], locks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    class Lock:
        def __init__(self, servers: list[str], _warn: object, **_: object) -> None:
            self.servers = servers

        def begin(self) -> None:
            taken.append("begin")

        def release(self) -> None:
            taken.append("release")

    def client(servers: list[str], _options: object, **_: Any) -> list[str]:
        return servers

    monkeypatch.setattr(lock, "ClusterLock", Lock)
    monkeypatch.setattr(lock, "admin_client", client)
    with ExitStack() as stack:
        held = RunLocks("run")
        for each in clusters:
            held.take(each, pytest.fail, stack)
    assert taken == ["begin"] * locks + ["release"] * locks
