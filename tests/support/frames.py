"""Rows of tables: those that tests state, those that files have, and those of version 0.1.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality
from deltalake import DeltaTable

from metrics.tables.schema import SCHEMAS
from metrics.tables.store import TableStore, frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OLDER = Path(__file__).parents[1] / "data" / "tables-0.1.0"
"""Tables that version 0.1.0 wrote, with runs on real brokers."""
LIMIT, TRAFFIC, NIGHT = "20261122-105455-1c35", "20261122-105636-1186", "suite-n1"
"""Ids of a search for two goals, of a fixed load, and of a night."""


def table(spark: SparkSession, name: str, records: Sequence[dict[str, Any]]) -> DataFrame:
    import pyarrow as pa

    return frame_of(spark, pa.Table.from_pylist(list(records), schema=SCHEMAS[name]))


def assert_rows(found: DataFrame, rows: Sequence[tuple[Any, ...]], schema: str) -> None:
    expected = found.sparkSession.createDataFrame(list(rows), schema)
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def stored_rows(store: TableStore, table: str, run_id: str | None = None) -> list[dict[str, Any]]:
    """The rows of a table, or only those of one run, once all appends are durable.

    They are read without Spark, whose queries take a third of a second of CPU time, and this a
    hundredth. It suits tests of what was appended; a test of a read uses the store.
    """
    store.settle()
    rows = DeltaTable(store.address(table)).to_pyarrow_table().to_pylist()
    return [row for row in rows if run_id is None or row["run_id"] == run_id]
