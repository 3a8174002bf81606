"""Each view over small tables written down here, compared by chispa."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality

from metrics.columns import ddl
from metrics.records import boundary_record, run_record, sample_record, trial_record
from metrics.schema import SCHEMAS, RunRow, utc
from metrics.summary import Boundary
from metrics.views import (
    broker_rows,
    latest_boundaries,
    newest_runs,
    reading_rows,
    resource_rows,
)
from tests.support.evidence import broker, sample
from tests.support.rows import BOUNDARY, trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("testbed", "demo", "default")


def table(spark: SparkSession, name: str, records: Sequence[dict[str, Any]]) -> DataFrame:
    import pyarrow as pa

    return spark.createDataFrame(pa.Table.from_pylist(list(records), schema=SCHEMAS[name]))


def assert_rows(found: DataFrame, rows: Sequence[tuple[Any, ...]], schema: str) -> None:
    expected = found.sparkSession.createDataFrame(list(rows), schema)
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_the_newest_row_of_a_run_is_its_end_whenever_it_was_written(spark: SparkSession) -> None:
    rows = [
        RunRow("a", "finished", utc(3.0), *NAMES, status="done"),
        RunRow("a", "started", utc(4.0), *NAMES),
        RunRow("b", "started", utc(1.0), *NAMES, caveat="first"),
        RunRow("b", "started", utc(2.0), *NAMES, caveat="resumed"),
    ]
    runs = table(spark, "runs", [run_record(row) for row in rows])
    found = newest_runs(runs)
    assert found.columns == SCHEMAS["runs"].names
    assert_rows(
        found.select("run_id", "status", "caveat"),
        [("a", "done", None), ("b", "running", "resumed")],
        "run_id string, status string, caveat string",
    )


def test_resources_are_rows_and_the_limit_is_marked(spark: SparkSession) -> None:
    bound = trial(1, "r", brokers=(broker(1), broker(2, handler_idle=0.1, flush_threads=0.9)))
    found = resource_rows(table(spark, "trials", [trial_record(bound)]))
    assert found.count() == 16
    of_two = found.where("broker_id = 2 and resource in ('request handlers', 'disk')")
    assert_rows(
        of_two.select("trial", "np", "verdict", "resource", "utilization", "is_limit"),
        [
            (1, 4, "OVERLOADED", "request handlers", 0.9, False),
            (1, 4, "OVERLOADED", "disk", 0.9, True),
        ],
        "trial bigint, np bigint, verdict string, resource string, utilization double, "
        "is_limit boolean",
    )
    sustained = trial(2, "r", judgement=replace(bound.judgement, limited_by=None))
    no_limit = resource_rows(table(spark, "trials", [trial_record(sustained)]))
    assert no_limit.where("is_limit").count() == 0
    assert no_limit.where("is_limit is null").count() == 0


def test_brokers_are_rows_with_all_of_their_windows_columns(spark: SparkSession) -> None:
    trials = table(spark, "trials", [trial_record(trial(7, "r"))])
    assert_rows(
        broker_rows(trials).select("run_id", "trial", "bpm", "broker_id", "handler_idle"),
        [("r", 7, 100, 1, 0.8), ("r", 7, 100, 2, 0.1)],
        "run_id string, trial bigint, bpm bigint, broker_id bigint, handler_idle double",
    )


def test_a_reading_is_a_series_and_its_parts_are_added(spark: SparkSession) -> None:
    taken = [
        sample(0, {"gc_ms:Young": 5.0, "gc_ms:Old": 2.0, "gc_msx": 100.0}),
        sample(1, {"gc_ms:Young": 9.0}),
        sample(2, {"bytes_in": 1.0}),
        replace(sample(1), values={}, error="no answer"),
    ]
    samples = table(spark, "samples", [sample_record("r", 1, each) for each in taken])
    rows = [
        ("r", 1, 1, utc(each.at_s), value)
        for each, value in zip(taken[:2], (7.0, 9.0), strict=True)
    ]
    schema = "run_id string, trial bigint, broker_id bigint, at timestamp, value double"
    assert_rows(reading_rows(samples, "gc_ms"), rows, schema)
    assert reading_rows(samples, "gc").count() == 0


def test_the_latest_point_of_each_size_counts_unless_its_search_gave_up(
    spark: SparkSession,
) -> None:
    def point(run_id: str, at_s: float, **changes: Any) -> dict[str, Any]:
        boundary: Boundary = replace(BOUNDARY, **changes)
        return boundary_record(run_id, at_s, NAMES, boundary)

    records = [
        point("a", 1.0, np_sustained=20),
        point("b", 2.0, np_sustained=25),
        point("c", 3.0, np_sustained=0, gave_up="no valid trial"),
        point("a", 1.0, bpm=1_000, np_sustained=8),
    ]
    found = latest_boundaries(table(spark, "boundaries", records))
    assert_rows(
        found.select("run_id", "bpm", "np_sustained"),
        [("b", 100, 25), ("a", 1_000, 8)],
        "run_id string, bpm bigint, np_sustained bigint",
    )
    assert found.columns == SCHEMAS["boundaries"].names


def test_views_take_the_tables_of_an_older_version(spark: SparkSession) -> None:
    older = table(spark, "trials", [trial_record(trial(1, "r"))]).withColumn(
        "resources", _null_of(spark)
    )
    assert resource_rows(older).count() == 0


def _null_of(spark: SparkSession) -> Any:
    from pyspark.sql import functions as sql

    kind = spark.createDataFrame([], ddl(SCHEMAS["trials"])).schema["resources"].dataType
    return sql.lit(None).cast(kind)
