"""The functions that the notebooks share: parameters, tables, and the display of rows.

The module works in Jupyter, on Databricks and with Spark Connect. It needs the driver's JVM only
to start Spark.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any, TypeVar

from metrics.arrow_schema import ddl
from metrics.common.errors import ConfigError
from metrics.reporting.notebook_display import NotebookOutput, table_html
from metrics.tables.schema import SCHEMAS
from metrics.tables.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Value = TypeVar("Value", str, int, float)

ROWS_SHOWN = 200
_MISSING = ("DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")


def parameter(name: str, default: Value, label: str) -> Value:
    """A notebook's parameter: the widget's value on Databricks, and the default elsewhere.

    Args:
        name: the widget's name.
        default: the default value, whose type the parameter has.
        label: the text beside the widget.

    Raises:
        ConfigError: the widget's value does not have the default's type.
    """
    dbutils = _given("dbutils")
    if dbutils is None:
        return default
    dbutils.widgets.text(name, f"{default}", label)
    text = str(dbutils.widgets.get(name)).strip()
    kind = type(default)
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(
            f"the widget {name} ({label}) holds {text!r}; expected a number such as {default}; "
            "correct it"
        ) from None


def _given(name: str) -> Any:
    """A variable that the notebook's host defined, or None."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return None if shell is None else shell.user_ns.get(name)


def open_tables(where: str, spark: SparkSession | None = None) -> TableStore:
    """The tables at a path, or in a schema of a catalog.

    Args:
        where: a path with a slash, as Spark's server sees it, or a schema's name.
        spark: the session to read with. The default is the notebook's own `spark`, then the
            Spark Connect server that SPARK_REMOTE names, then a local session.

    Raises:
        ConfigError: the place has no tables of kafka-redline.
    """
    tables = TableStore(spark or _given("spark") or _session(), where)
    if not _is_there(tables, "runs"):
        raise ConfigError(
            f"{tables.address('runs')} does not exist; expected the tables of a run, OUT/tables or "
            "the value of --tables; correct the parameter `where`"
        )
    return tables


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    if "SPARK_REMOTE" in os.environ:
        return SparkSession.builder.getOrCreate()
    from jobs.spark.session import close_session, local_session

    session = local_session(app_name="kafka-redline notebook")
    atexit.register(close_session, session)
    return session


def rows_of(tables: TableStore, table: str, run_id: str | None = None) -> DataFrame:
    """The rows of a table; none where the table does not exist."""
    if _is_there(tables, table):
        return tables.read(table, run_id)
    return tables.read("runs").sparkSession.createDataFrame([], ddl(SCHEMAS[table]))


def _is_there(tables: TableStore, table: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        return bool(tables.read(table).columns)
    except AnalysisException as error:
        if _condition(error).split(".")[0] in _MISSING:
            return False
        raise


def _condition(error: Any) -> str:
    """The name of a Spark error, by either of its methods: Spark before 4.0 has the second."""
    named = getattr(error, "getCondition", None) or error.getErrorClass
    return named() or ""


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a small DataFrame, in the form that the charts take."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def table(frame: DataFrame, limit: int = ROWS_SHOWN) -> NotebookOutput:
    """The first rows of a DataFrame as an HTML table with readable numbers."""
    found = [tuple(row) for row in frame.limit(limit + 1).collect()]
    note = f"The first {limit} rows." if len(found) > limit else ""
    return NotebookOutput(table_html(frame.columns, found[:limit], note))
