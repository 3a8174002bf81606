"""Rows for a PySpark that takes Arrow tables, and for one that does not."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark
import pytest

from metrics.arrow_schema import ddl
from metrics.tables.schema import ROWS, SCHEMAS
from metrics.tables.store import frame_of

NUMBERS = pa.map_(pa.string(), pa.float64())
SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("rate", pa.float64()),
        ("loads", NUMBERS),
        ("windows", pa.list_(pa.struct([("id", pa.int64()), ("readings", NUMBERS)]))),
    ]
)
AT = datetime(2026, 11, 25, 12, 0, 0, 250_000, tzinfo=timezone.utc)
ROW = {
    "run_id": "a",
    "at": AT,
    "rate": 4,  # Spark would read a whole number of Python as null in a column of floats
    "loads": [("x", 1.5), ("y", None)],
    "windows": [{"id": 1, "readings": [("z", 2)]}, {"id": 2, "readings": None}, None],
}
EMPTY = dict.fromkeys(SCHEMA.names)


def given_to(version: str, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The arguments of `createDataFrame` in a session of a release, without a JVM."""
    monkeypatch.setattr(pyspark, "__version__", version)
    session = mock.Mock(spec=["createDataFrame"])
    frame_of(session, rows)
    return session.createDataFrame.call_args.args


def test_pyspark_4_gets_the_arrow_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.Table.from_pylist([ROW], schema=SCHEMA)
    for version in ("4.0.0", "4.1.4", "10.0.0"):
        assert given_to(version, rows, monkeypatch) == (rows,)


def test_pyspark_3_gets_values_of_the_same_types(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.Table.from_pylist([ROW, EMPTY], schema=SCHEMA)
    values, schema = given_to("3.5.7", rows, monkeypatch)
    windows = [{"id": 1, "readings": {"z": 2.0}}, {"id": 2, "readings": None}, None]
    assert values == [
        ("a", AT, 4.0, {"x": 1.5, "y": None}, windows),
        (None, None, None, None, None),
    ]
    assert isinstance(values[0][2], float)
    assert schema == ddl(SCHEMA)


def test_the_values_are_one_partition_on_however_many_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.7")
    session = mock.Mock()  # with a JVM
    frame_of(session, pa.Table.from_pylist([EMPTY], schema=SCHEMA))
    parallelize = session.sparkContext.parallelize
    parallelize.assert_called_once_with([(None,) * len(SCHEMA)], 1)
    session.createDataFrame.assert_called_once_with(parallelize.return_value, ddl(SCHEMA))


@pytest.mark.parametrize("table", ROWS)
def test_every_table_has_columns_of_known_types(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.Table.from_pylist([dict.fromkeys(SCHEMAS[table].names)], schema=SCHEMAS[table])
    values, _ = given_to("3.5.7", rows, monkeypatch)
    assert values == [(None,) * len(SCHEMAS[table].names)]
