"""The doctor on real brokers, with a session that runs already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from jobs.events import RecordingReporter
from jobs.opening import Session
from jobs.readiness import examination
from jobs.readiness.examination import Examination, Order
from jobs.readiness.finding import Finding, Standing
from jobs.testbed.handle import Testbed
from jobs.testbed.ports import free_ports
from jobs.trials.control import control_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster_file(kafka_testbed: Testbed, tmp_path: Path) -> Path:
    """The brokers of the run as a cluster of somebody else's."""
    path = tmp_path / "brokers.yaml"
    told = {
        "bootstrap_servers": list(kafka_testbed.bootstrap_servers),
        "jmx": {"endpoints": dict(kafka_testbed.jmx_endpoints)},
    }
    path.write_text(yaml.safe_dump(told))
    return path


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of all tests, which no examination may close."""
    monkeypatch.setattr(
        examination,
        "open_session",
        lambda stack, slots: Session(spark, stack.enter_context(control_of(spark))),
    )


def examined(cluster_file: Path, *overrides: str) -> dict[str, Finding]:
    order = Order(str(cluster_file), "demo", "default", overrides, cluster_file.parent)
    found = Examination(order, RecordingReporter()).make()
    return {each.check: each for each in found}


def test_brokers_that_are_well_are_found_so(cluster_file: Path) -> None:
    found = examined(cluster_file)
    assert {
        check: each.found for check, each in found.items() if each.standing is not Standing.OK
    } == {}
    assert found["brokers"].found.startswith("3 brokers")
    assert found["permissions"].found == "delete, write"
    assert found["brokers, from executors"].found == "3 brokers reached from 1 executor"
    assert found["brokers' metrics"].found.endswith("by driver-jvm")


def test_each_lack_is_told_and_ends_no_other_check(cluster_file: Path) -> None:
    (shut,) = free_ports(1)
    text = yaml.safe_load(cluster_file.read_text())
    text["jmx"]["endpoints"][2] = f"127.0.0.1:{shut}"
    cluster_file.write_text(yaml.safe_dump(text))
    found = examined(
        cluster_file,
        "workload.trial.measure_s=1",
        "workload.trial.sample_interval_s=0.2",
        "workload.topic.config.cleanup.policy=nonsense",
    )
    problems = {
        each.check: each.found for each in found.values() if each.standing is Standing.PROBLEM
    }
    assert sorted(problems) == ["brokers' metrics", "length of a trial", "topics"]
    assert "broker 2 does not answer JMX" in problems["brokers' metrics"]
    assert "replica.lag.time.max.ms" in problems["length of a trial"]
    assert "cleanup.policy" in problems["topics"]
    assert found["executors' clocks"].standing is Standing.OK
