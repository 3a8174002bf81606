"""The locks of one run: one for each cluster, whether or not the clusters have ids."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.cluster import lock
from jobs.cluster.admin import Broker, ClusterInfo, KafkaAdmin
from jobs.cluster.lock import RunLocks
from jobs.cluster.opening import OpenCluster


def opened(cluster_id: str, port: int) -> OpenCluster:
    info = ClusterInfo(cluster_id, (Broker(0, "h", port),), (), (2, 6))
    return OpenCluster(cast(KafkaAdmin, None), info)


def test_each_cluster_has_one_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    held = SimpleNamespace(
        begin=lambda: taken.append("begin"), release=lambda: taken.append("release")
    )
    monkeypatch.setattr(lock, "ClusterLock", lambda *_, **__: held)
    monkeypatch.setattr(lock, "admin_client", lambda *_, **__: None)
    for clusters, locks in (
        ((opened("x", 1), opened("x", 2)), 1),  # one cluster by two addresses
        ((opened("x", 1), opened("y", 1)), 2),
        ((opened("", 1), opened("", 2)), 2),  # two without ids
        ((opened("", 1), opened("", 1)), 1),
    ):
        taken.clear()
        with ExitStack() as stack:
            run = RunLocks("run")
            for each in clusters:
                run.take(each, pytest.fail, stack)
        assert taken == ["begin"] * locks + ["release"] * locks
