"""The rows of Delta tables as their files have them, read without Spark.

A query of Spark takes a third of a second of CPU time, and this a hundredth. It suits tests of what
was appended; a test of a read uses the store.
"""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from metrics.tables.store import TableStore


def stored_rows(store: TableStore, table: str, run_id: str | None = None) -> list[dict[str, Any]]:
    """The rows of a table, or only those of one run, once all appends are durable."""
    store.settle()
    rows = DeltaTable(store.address(table)).to_pyarrow_table().to_pylist()
    return [row for row in rows if run_id is None or row["run_id"] == run_id]
