"""Small DataFrames with rows that tests state, and their comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality

from metrics.tables.schema import SCHEMAS
from metrics.tables.store import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(spark: SparkSession, name: str, records: Sequence[dict[str, Any]]) -> DataFrame:
    import pyarrow as pa

    return frame_of(spark, pa.Table.from_pylist(list(records), schema=SCHEMAS[name]))


def assert_rows(found: DataFrame, rows: Sequence[tuple[Any, ...]], schema: str) -> None:
    expected = found.sparkSession.createDataFrame(list(rows), schema)
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
