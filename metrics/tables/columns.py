"""Table schemas from dataclasses, so that each row is defined once.

A field's annotation gives its Arrow type and its Spark DDL: `int` bigint, `float` double,
`str` string, `bool` boolean, `datetime` timestamp, `X | None` the same as X, `tuple[X, ...]`
an array, `Mapping` a map, an `Enum` a string and a dataclass a struct. All columns are
nullable: what is not known is null.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

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
        TypeError: for an annotation that no column can hold.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return arrow_type(inner)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return pa.list_(arrow_type(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return pa.map_(arrow_type(arguments[0]), arrow_type(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return pa.struct(fields_of(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return pa.string()
    if hint in _SCALARS:
        return _SCALARS[hint]
    raise TypeError(f"{hint!r} is no type of a column; see {__name__} for those that are")


def fields_of(row: Any, skip: Collection[str] = ()) -> list[pa.Field]:
    """The columns of a dataclass, in order, but those in `skip`."""
    hints = get_type_hints(row)
    return [
        pa.field(item.name, arrow_type(hints[item.name]))
        for item in dataclasses.fields(row)
        if item.name not in skip
    ]


def ddl_type(arrow: pa.DataType) -> str:
    """The Spark DDL of an Arrow type that `arrow_type` gives."""
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
    """The Spark DDL of a schema: "`name` type, …"."""
    return ", ".join(f"`{field.name}` {ddl_type(field.type)}" for field in schema)


def plain(value: Any) -> Any:
    """A value as Arrow takes it: dataclasses as dicts, maps as pairs, NaN as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return [(plain(key), plain(item)) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
