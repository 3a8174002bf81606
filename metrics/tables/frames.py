"""Arrow tables as DataFrames of Spark, on every supported release of PySpark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metrics.arrow_schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARROW_SINCE = 4
"""The first major release of PySpark whose `createDataFrame` accepts an Arrow table."""


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows of an Arrow table as a DataFrame, with the types of `metrics.arrow_schema`."""
    import pyspark

    if int(pyspark.__version__.partition(".")[0]) >= _ARROW_SINCE:
        return spark.createDataFrame(rows)
    convert = _converter(pa.struct(list(rows.schema)))
    values = [tuple(convert(row).values()) for row in rows.to_pylist()]
    if getattr(spark, "_jvm", None) is None:  # Spark Connect
        return spark.createDataFrame(values, ddl(rows.schema))
    # One partition: by default each slot of the session would start a Python worker for them.
    return spark.createDataFrame(spark.sparkContext.parallelize(values, 1), ddl(rows.schema))


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """A function from a value of `to_pylist` to the value that PySpark expects.

    They differ for maps, which Arrow gives as lists of pairs.
    """
    if pa.types.is_map(kind):
        of_item = _converter(kind.item_type)
        return _unless_null(lambda pairs: {key: of_item(item) for key, item in pairs})
    if pa.types.is_list(kind):
        of_value = _converter(kind.value_type)
        return _unless_null(lambda values: [of_value(each) for each in values])
    if pa.types.is_struct(kind):
        of_field = {field.name: _converter(field.type) for field in kind}
        return _unless_null(lambda row: {name: of_field[name](row[name]) for name in of_field})
    return lambda value: value


def _unless_null(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)
