"""Rows for a PySpark that takes Arrow tables, and for one that does not."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

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


class Session:
    """A session that keeps the arguments of `createDataFrame`."""

    def __init__(self) -> None:
        self.given: tuple[Any, ...] = ()

    def createDataFrame(self, *given: Any) -> None:  # noqa: N802 - Spark's name
        self.given = given


def given_to(version: str, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    monkeypatch.setattr(pyspark, "__version__", version)
    session = Session()
    frame_of(session, rows)  # type: ignore[arg-type]
    return session.given


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
    class Context:
        """A context that keeps the number of partitions."""

        def parallelize(self, values: list[Any], partitions: int) -> tuple[list[Any], int]:
            return values, partitions

    class Driver(Session):
        """A session with a JVM."""

        _jvm = object()
        sparkContext = Context()  # noqa: N815 - Spark's name

    monkeypatch.setattr(pyspark, "__version__", "3.5.7")
    session = Driver()
    frame_of(session, pa.Table.from_pylist([EMPTY], schema=SCHEMA))  # type: ignore[arg-type]
    (values, partitions), schema = session.given
    assert (values, partitions) == ([(None,) * len(SCHEMA)], 1)
    assert schema == ddl(SCHEMA)


@pytest.mark.parametrize("table", ROWS)
def test_every_table_has_columns_of_known_types(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.Table.from_pylist([dict.fromkeys(SCHEMAS[table].names)], schema=SCHEMAS[table])
    values, _ = given_to("3.5.7", rows, monkeypatch)
    assert values == [(None,) * len(SCHEMAS[table].names)]
