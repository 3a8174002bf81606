"""The measurement of a package on real brokers: the time to rest after an overload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.console.events import RecordingReporter
from jobs.features.sweep.from_tables import read_sweep
from jobs.testbed.handle import Testbed
from metrics.tables.store import TableStore
from tests.support.added_packages import add_project
from tests.support.sweeps import sweep_of, sweeping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

BUSY = "goal.indicators.request_handler_idle_min"
TEXT = f"""
asks: time-to-rest
load: 8
workload: 1kB
set:
  - cluster.warm_up_max_s=0
  - workload.topic.replication_factor=1
  - workload.trial.warmup_s=1
  - workload.trial.measure_s=3
cases: [{{{BUSY}: 0.9999}}]
"""
"""No handler is that idle under a load, so that a small one counts as an overload."""


def test_the_time_to_rest_is_measured_and_read_back(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_project(monkeypatch, tmp_path, "rest")
    under_way = sweeping(sweep_of(tmp_path, kafka_testbed, TEXT), tmp_path, RecordingReporter())
    under_way.run()
    assert under_way.outcome(None).exit_code == 0, under_way.results
    (answer,) = under_way.results
    assert answer.value is not None and 0.0 <= answer.value < 60.0
    tables = TableStore(spark, str(tmp_path / "tables"))
    (row,) = tables.read("trials").collect()
    assert (row.verdict, row.recovery_s) == ("OVERLOADED", answer.value)
    (run,) = tables.run_rows(answer.run_id)
    assert run.measurement == "time-to-rest"
    again = read_sweep(tables)
    assert (again.asks, again.unit, again.kind.word) == ("time-to-rest", "s", "time to rest")
    assert [each.value for each in again.results] == [answer.value]
    assert again.columns[-2:] == ("low idle", "bound by")
