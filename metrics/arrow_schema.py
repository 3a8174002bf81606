"""The Arrow schema and the Spark DDL for rows of a dataclass, see `metrics.columns`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Literal, cast, get_args, get_origin

import pyarrow as pa

from metrics.columns import Moment, bare, columns_of, marks_of

_SCALARS: Mapping[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def arrow_type(hint: Any) -> pa.DataType:
    """The Arrow type of a field's annotation.

    Raises:
        TypeError: a column cannot have this annotation.
    """
    if any(isinstance(mark, Moment) for mark in marks_of(hint)):
        return _SCALARS[datetime]
    hint = bare(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return pa.list_(arrow_type(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return pa.map_(arrow_type(arguments[0]), arrow_type(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return pa.struct(list(schema_of(cast("type[Any]", hint))))
    if isinstance(hint, type) and (issubclass(hint, Enum) or hasattr(hint, "from_text")):
        return pa.string()
    if origin is Literal:
        return _SCALARS[type(arguments[0])]
    if hint in _SCALARS:
        return _SCALARS[hint]
    raise TypeError(
        f"{hint!r} is not a type of a column; expected a type that metrics.columns lists; change "
        "the annotation"
    )


def schema_of(kind: type[Any]) -> pa.Schema:
    """The Arrow schema for rows of a dataclass."""
    return pa.schema([(each.name, arrow_type(each.field.hint)) for each in columns_of(kind)])


def ddl_type(arrow: pa.DataType) -> str:
    """The Spark DDL of an Arrow type from `arrow_type`."""
    if pa.types.is_list(arrow):
        return f"array<{ddl_type(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"map<{ddl_type(arrow.key_type)},{ddl_type(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        inner = ",".join(f"`{field.name}`:{ddl_type(field.type)}" for field in arrow)
        return f"struct<{inner}>"
    names = {pa.bool_(): "boolean", pa.int64(): "bigint", pa.float64(): "double"}
    return names.get(arrow, "timestamp" if pa.types.is_timestamp(arrow) else "string")


def ddl(schema: pa.Schema) -> str:
    """The Spark DDL of a schema, such as "`name` type, `name` type"."""
    return ", ".join(f"`{field.name}` {ddl_type(field.type)}" for field in schema)
