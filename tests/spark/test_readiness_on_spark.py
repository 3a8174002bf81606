"""The probe as a barrier stage of real Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from jobs.checks.finding import Severity, problems_of
from jobs.checks.session import SessionReport, check_session
from jobs.config import load_cluster, load_workload
from jobs.spark.session import registered_slots
from jobs.testbed.places import free_ports
from jobs.trials.control_server import control_of
from metrics.common.errors import ConfigError
from tests.conftest import SPARK_SLOTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def look(
    spark: SparkSession,
    addresses: dict[int, tuple[str, int]],
    *settings: str,
    slots: int | None = None,
) -> SessionReport:
    cluster, workload = load_cluster("testbed"), load_workload("demo", settings)
    with control_of(spark) as control:
        return check_session(spark, control, cluster, workload, addresses, slots)


def test_this_machine_is_ready_in_every_slot(spark: SparkSession) -> None:
    report = look(spark, {}, "workload.producer.compression=zstd")
    assert {each.severity for each in report.findings} == {Severity.OK}
    assert report.slots == SPARK_SLOTS == registered_slots(spark.sparkContext)
    assert report.environment == {
        "spark.slots": str(SPARK_SLOTS),
        "spark.executors": "1",
        "executors.clocks_within": "0.05 s",
    }
    (packages,) = [each.found for each in report.findings if each.check == "executors' packages"]
    assert "zstandard" in packages


def test_an_unreachable_broker_is_named(spark: SparkSession) -> None:
    (port,) = free_ports(1)
    (found,) = problems_of(look(spark, {7: ("127.0.0.1", port)}).findings)
    assert f"cannot reach broker 7 at 127.0.0.1:{port} (connection refused)" in found.found


def test_missing_slots_of_a_local_session_are_reported_at_once_and_fewer_are_enough(
    spark: SparkSession,
) -> None:
    began_s = time.monotonic()
    report = look(spark, {}, slots=SPARK_SLOTS + 3)
    assert problems_of(report.findings)[0].found.startswith("3 slots are missing")
    assert time.monotonic() - began_s < 10.0

    report = look(spark, {}, slots=2)
    assert report.slots == 2
    assert report.environment["spark.slots"] == "2"


@pytest.mark.parametrize("name", ["spark.dynamicAllocation.enabled", "spark.speculation"])
def test_an_unsuitable_setting_ends_the_check(
    spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = spark.sparkContext.getConf().set(name, "true")
    monkeypatch.setattr(type(spark.sparkContext), "getConf", lambda self: conf)
    with control_of(spark) as control:
        report = check_session(
            spark, control, load_cluster("testbed"), load_workload("demo"), {}, None
        )
    assert [each.found.split(" ", 1)[0] for each in report.findings] == [name]
    assert report.slots == 0


def test_a_python_that_does_not_start_is_reported_without_a_stack_trace(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    with pytest.raises(ConfigError, match=r'Cannot run program "/no/such/python".*PYSPARK_PYTHON'):
        look(spark, {})
