"""A night that holds a mix on real brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.campaigns.nightly.body import NightRun
from jobs.config.suite import configuration_of, load_suite
from jobs.console.events import RecordingReporter
from jobs.runs.lifecycle import RunOrder, execute
from jobs.testbed.client_access import cluster_file
from jobs.testbed.handle import Testbed
from metrics.tables.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

MIX = """
description: orders that prefer some partitions, and clicks
mix:
  orders:
    producers: 4
    message_bytes: 500
    producer: {rate_records_per_s: 200, linger_ms: 5, batch_size: 1024, partition_skew: 1}
    topic: {partitions_per_broker: 2, replication_factor: 1}
  clicks:
    producers: 4
    message_bytes: 100
    producer:
      rate_records_per_s: 150
      linger_ms: 20
      batch_size: 1024
      sticky_partition: round_robin
    topic: {count: 2, partitions_per_broker: 1, replication_factor: 2}
trial: {warmup_s: 1, measure_s: 3, sample_interval_s: 0.25}
"""
SHORT = ("cluster.warm_up_max_s=0", "goal.indicators.achieved_min=0.9")


@pytest.fixture
def workload(tmp_path: Path) -> str:
    file = tmp_path / "mixed.yaml"
    file.write_text(MIX, encoding="utf-8")
    return str(file)


def test_a_night_holds_a_mix_at_a_scale(
    kafka_testbed: Testbed, spark: SparkSession, workload: str, tmp_path: Path
) -> None:
    file = tmp_path / "suite.yaml"
    cases = "[{name: today, mix: load, scale: 0.5, repeats: 1, compares: achieved}]"
    file.write_text(f"{{name: mixed, workload: {workload}, cases: {cases}}}", encoding="utf-8")
    suite = load_suite(str(file))
    config = configuration_of(suite, str(cluster_file(kafka_testbed.folder)), SHORT)
    tables = str(tmp_path / "tables")
    order = RunOrder(RecordingReporter(), tmp_path, tables, "mixed-n1")
    assert execute(NightRun(suite, config, "n1"), order) == 0

    (case,) = json.loads((order.folder / "nightly.json").read_text())["cases"]
    assert (case["kind"], case["scale"], case["np"]) == ("load", 0.5, 2 + 2)
    assert case["value"] == pytest.approx(1.0, abs=0.1)
    (row,) = TableStore(spark, tables).read("cases").where("event = 'measured'").collect()
    assert row.scale == 0.5
    assert row.settings["case.scale"] == "0.5"
    assert row.settings["workload.mix.orders.producer.partition_skew"] == "1.0"
