"""Checks of a plan that need the cluster, before any load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.checks.cluster import length_findings
from jobs.cluster.admin import AdminError
from jobs.cluster.opening import (
    OpenCluster,
    queue_limits,
    quota_window_s,
    require_fitting,
    window_needed_s,
)
from jobs.config import Goal, Workload, load, load_goal, load_workload
from metrics.common.errors import ConfigError
from tests.support.scripted_admin import ScriptedAdmin


class Admin(ScriptedAdmin):
    """Brokers with a configuration each."""

    def __init__(self, *configs: dict[str, str]) -> None:
        super().__init__(range(1, len(configs) + 1))
        self._configs = configs

    def broker_config(
        self, broker_id: int, names: Sequence[str] | None = None
    ) -> dict[str, str | None]:
        properties = self._configs[broker_id - 1]
        return {
            name: properties[name]
            for name in (properties if names is None else names)
            if name in properties
        }


def opened(*configs: dict[str, str]) -> OpenCluster:
    admin = Admin(*configs)
    return OpenCluster(admin, admin.describe_cluster())


def lag(lag_ms: int) -> dict[str, str]:
    return {"replica.lag.time.max.ms": str(lag_ms), "queued.max.requests": "500"}


def workload(measure_s: float, replicas: int = 3) -> Workload:
    return load_workload(
        "demo",
        [
            f"workload.trial.measure_s={measure_s}",
            f"workload.topic.replication_factor={replicas}",
            "workload.topic.config.min.insync.replicas=1",
        ],
    )


def goal(*overrides: str) -> Goal:
    return load_goal("default", list(overrides))


def test_a_window_too_short_for_the_slowest_broker_is_refused_before_any_load() -> None:
    cluster = opened(lag(2_000), lag(30_000), lag(2_000))
    assert window_needed_s(cluster, workload(10)) == 45.0
    with pytest.raises(ConfigError) as refused:
        require_fitting(cluster, workload(44.9), goal())
    assert refused.value.exit_code == 2
    assert "expected at least 45 s" in str(refused.value)
    assert "or lower the brokers' replica.lag.time.max.ms" in str(refused.value)
    require_fitting(cluster, workload(45), goal())
    require_fitting(cluster, workload(10, replicas=1), goal())  # no followers
    assert window_needed_s(opened({}, lag(2_000)), workload(10)) == 3.0
    assert window_needed_s(opened({}, {}), workload(10)) is None, "no broker reports it"


@pytest.mark.parametrize(
    ("properties", "replicas"),
    [(lag(2_000), 2), (lag(2_000), 1), ({}, 2)],
    ids=["reported", "no followers", "not reported"],
)
def test_doctor_states_when_lagging_followers_show(
    properties: dict[str, str], replicas: int, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("bootstrap_servers: [a:9092]\nmetrics: {client_only: true}\n")
    config = load(
        str(file), "calibrated", "default", [f"workload.topic.replication_factor={replicas}"]
    )
    (found,) = length_findings(opened(properties, properties), config)
    assert found.found == snapshot


def test_the_size_of_the_request_queue_is_read_for_a_goal_with_a_share_of_it() -> None:
    share = goal("goal.indicators.request_queue_share_max=0.8")
    assert queue_limits(opened(lag(2_000), lag(2_000)), share) == {1: 500.0, 2: 500.0}
    assert queue_limits(opened({}), goal()) == {}
    with pytest.raises(ConfigError, match=r"broker 1 .* queued\.max\.requests.* request_queue_max"):
        queue_limits(opened({}), share)


def test_a_window_shorter_than_the_burst_of_a_quota_is_refused() -> None:
    cluster = opened(
        {"quota.window.num": "21", "quota.window.size.seconds": "2"},
        {"quota.window.num": "11", "quota.window.size.seconds": "1"},
    )
    searches = goal("goal.indicators.throttled_is_overload=true")
    assert quota_window_s(cluster, searches) == 42.0
    with pytest.raises(ConfigError) as refused:
        require_fitting(cluster, workload(41.9, replicas=1), searches)
    assert "a burst of up to 42 s" in str(refused.value)
    assert "--set workload.trial.measure_s=42" in str(refused.value)
    require_fitting(cluster, workload(42, replicas=1), searches)
    assert quota_window_s(cluster, goal()) is None
    require_fitting(cluster, workload(5, replicas=1), goal())
    silent = opened({})
    assert quota_window_s(silent, searches) == 11.0, "Kafka's own"

    def refuse(*_: object) -> dict[str, str | None]:
        raise AdminError("not permitted", "ClusterAuthorizationFailedError")

    silent.admin.broker_config = refuse  # type: ignore[method-assign, assignment]
    assert quota_window_s(silent, load_goal("within-quota")) == 11.0
