"""The session of the tests is the session of the jobs: quiet, on loopback, with Delta."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from jobs.spark_session import close_session, local_session


def test_delta_appends_and_reads_back(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    schema = "np long, verdict string"
    for row in [(1, "SUSTAINED"), (2, "OVERLOADED")]:
        spark.createDataFrame([row], schema).write.format("delta").mode("append").save(table)
    expected = spark.createDataFrame([(1, "SUSTAINED"), (2, "OVERLOADED")], schema)
    actual = spark.read.format("delta").load(table)
    assert_df_equality(actual, expected, ignore_row_order=True, ignore_nullable=True)
    assert len(list((tmp_path / "table" / "_delta_log").glob("*.json"))) == 2


def test_delta_ignores_an_append_that_it_has_seen(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    frame = spark.createDataFrame([(1,)], "np long")
    for _ in range(2):
        options = {"txnAppId": "run-1", "txnVersion": "7"}
        frame.write.format("delta").mode("append").options(**options).save(table)
    assert spark.read.format("delta").load(table).count() == 1


def test_a_barrier_stage_of_as_many_tasks_as_slots_runs(spark: SparkSession) -> None:
    slots = spark.sparkContext.defaultParallelism
    rows = spark.sparkContext.parallelize(range(slots), slots).barrier()
    assert sorted(rows.mapPartitions(_where).collect()) == [sys.executable] * slots


def _where(_: object) -> list[str]:
    return [sys.executable]


def test_the_session_listens_on_loopback_only_and_has_no_ui(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_an_active_session_is_taken_and_never_closed(spark: SparkSession) -> None:
    log = Path(spark.conf.get("spark.local.dir") or "").parent
    taken = local_session(slots=2)
    assert taken.sparkContext.applicationId == spark.sparkContext.applicationId
    assert log.is_dir()
    assert not [name for name in os.listdir() if name in ("spark-warehouse", "derby.log")]
