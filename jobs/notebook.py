"""Functions for notebooks: parameters, tables, and the display of rows.

The module works in Jupyter, on Databricks and with Spark Connect. The module needs the driver's JVM
only to start Spark.
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
    """The value of a notebook's parameter: the widget's value on Databricks, and otherwise the
    default.

    Args:
        name: the widget's name.
        default: the default value, whose type is also the type of the parameter.
        label: the text beside the widget.

    Raises:
        ConfigError: the widget's value cannot be converted to the type of the default.
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
            f"the widget {name} ({label}) has {text!r}; expected a number such as {default}; "
            "correct the widget's value"
        ) from None


def _given(name: str) -> Any:
    """The value of a variable that the notebook's host has defined; None if there is no such
    variable.
    """
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return None if shell is None else shell.user_ns.get(name)


def open_tables(where: str, spark: SparkSession | None = None) -> TableStore:
    """Open the tables at a path, or in a schema of a catalog.

    Args:
        where: a path that contains a slash and is valid on Spark's server, or the name of a schema.
        spark: the Spark session. The default is the notebook's variable `spark`, else the Spark
            Connect server in SPARK_REMOTE, else a new local session.

    Raises:
        ConfigError: there are no tables of kafka-redline at this place.
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
    """The rows of a table; empty if the table does not exist."""
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
    """The name of a Spark error. Spark before 4.0 has only the method getErrorClass."""
    named = getattr(error, "getCondition", None) or error.getErrorClass
    return named() or ""


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a small DataFrame as dictionaries, which charts take as input."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def table(frame: DataFrame, limit: int = ROWS_SHOWN) -> NotebookOutput:
    """The first rows of a DataFrame as an HTML table with readable numbers."""
    found = [tuple(row) for row in frame.limit(limit + 1).collect()]
    note = f"The first {limit} rows." if len(found) > limit else ""
    return NotebookOutput(table_html(frame.columns, found[:limit], note))
