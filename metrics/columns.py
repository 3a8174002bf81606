"""The conversion of dataclasses to rows of tables and back. Each column is defined only once.

The annotation of a field determines the Arrow type and the Spark DDL (`metrics.arrow_schema`):
`int` becomes bigint, `float` becomes double, `bool` becomes boolean, `datetime` becomes timestamp,
`tuple[X, ...]` becomes an array, `Mapping` becomes a map, and a dataclass becomes a struct. `str`,
`Literal`, an `Enum` and a class with `to_text` and `from_text` are strings. `X | None` has the type
of X. All columns are nullable. Null means that the value is not known.

A mark in a field's `Annotated` changes the field's column. With `Column`, the column has another
name than the field. With `Flat`, the field's type is a dataclass, and each field of this dataclass
has its own column. Without `Flat`, the whole dataclass is one struct column. With `Moment`, the
column is a timestamp. With `NO_COLUMN`, the field has no column. A method with `@column` becomes a
property. The value of this property is also written to a column, but is never read from it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

Record = TypeVar("Record")


@dataclass(frozen=True)
class Column:
    """A mark with the name that a field has in tables and in JSON files.

    Without this mark, the field keeps its name.
    """

    name: str


@dataclass(frozen=True)
class Flat:
    """A mark for a field of a dataclass type: each inner field has its own column in the row.

    Attributes:
        prefix: text with which the column name of each inner field begins.
        adds_meaning: True to put the description of the marked field before the description of each
            of these columns.
    """

    prefix: str = ""
    adds_meaning: bool = False


@dataclass(frozen=True)
class Moment:
    """A mark for a field with seconds since the epoch, which is a timestamp in tables."""


NO_COLUMN = "no column"


class DerivedColumn(property):
    """A property whose value is also written to a column.

    The docstring of the property is the description.
    """


if TYPE_CHECKING:
    column = property
else:
    column = DerivedColumn


@dataclass(frozen=True)
class ColumnField:
    """A column as its dataclass defines it.

    Attributes:
        name: name of the column.
        attribute: name of the attribute of the dataclass.
        hint: annotation of the attribute.
        has_default: True if the field has a default.
        is_derived: True for a property with `@column`.
    """

    name: str
    attribute: str
    hint: Any
    has_default: bool = False
    is_derived: bool = False

    @functools.cached_property
    def flat(self) -> Flat | None:
        """The `Flat` mark of the field; None if the field has no such mark."""
        return next((mark for mark in marks_of(self.hint) if isinstance(mark, Flat)), None)

    @functools.cached_property
    def is_named(self) -> bool:
        """True if the field has a `Column` mark."""
        return any(isinstance(mark, Column) for mark in marks_of(self.hint))

    @functools.cached_property
    def reader(self) -> Callable[[Any], Any]:
        """The function that converts values of the column. The function is cached, because reports
        have many values.
        """
        return _reader(self.hint)

    @functools.cached_property
    def is_moment(self) -> bool:
        """True if the field has a `Moment` mark."""
        return any(isinstance(mark, Moment) for mark in marks_of(self.hint))


def marks_of(hint: Any) -> tuple[Any, ...]:
    """The marks in a field's `Annotated` annotation."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def bare(hint: Any) -> Any:
    """An annotation without `Annotated` and without None."""
    if get_origin(hint) is Annotated:
        return bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (each for each in get_args(hint) if each is not type(None))
        return bare(inner)
    return hint


_FIELDS: dict[Any, tuple[ColumnField, ...]] = {}


def fields_of(kind: type[Any]) -> tuple[ColumnField, ...]:
    """The columns of a dataclass in order, with derived columns last.

    A field with a `Flat` mark is one entry, although the row has several columns for it.
    """
    if kind not in _FIELDS:
        _FIELDS[kind] = _find_fields(kind)
    return _FIELDS[kind]


def _find_fields(kind: type[Any]) -> tuple[ColumnField, ...]:
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for item in dataclasses.fields(kind):
        marks = marks_of(hints[item.name])
        if NO_COLUMN in marks:
            continue
        name = next((mark.name for mark in marks if isinstance(mark, Column)), item.name)
        found.append(ColumnField(name, item.name, hints[item.name], _has_default(item)))
    for name, member in vars(kind).items():
        if isinstance(member, DerivedColumn):
            hint = get_type_hints(member.fget, include_extras=True)["return"]
            found.append(ColumnField(name, name, hint, is_derived=True))
    return tuple(found)


@dataclass(frozen=True)
class RowColumn:
    """A column of a row.

    Attributes:
        name: name of the column.
        homes: (dataclass, field) pairs from the outermost dataclass to the dataclass that defines
            the column. Outer dataclasses have a pair only if the `Flat` mark of their field has
            `adds_meaning`.
    """

    name: str
    homes: tuple[tuple[type[Any], ColumnField], ...]

    @property
    def field(self) -> ColumnField:
        """The column as its dataclass defines it."""
        return self.homes[-1][1]


def columns_of(
    kind: type[Any], prefix: str = "", homes: tuple[tuple[type[Any], ColumnField], ...] = ()
) -> Iterator[RowColumn]:
    """The columns of a row. A prefix does not apply to a column with a `Column` mark."""
    for item in fields_of(kind):
        if item.flat is not None:
            home = ((kind, item),) if item.flat.adds_meaning else ()
            yield from columns_of(bare(item.hint), prefix + item.flat.prefix, (*homes, *home))
        else:
            name = item.name if item.is_named else prefix + item.name
            yield RowColumn(name, (*homes, (kind, item)))


# --- from records to files for programs ---------------------------------------


def as_document(record: Any) -> dict[str, Any]:
    """Convert a dataclass like `dataclasses.asdict`, but with the names of columns."""
    names = {item.attribute: item.name for item in fields_of(type(record))}
    return {
        names.get(item.name, item.name): _in_document(getattr(record, item.name))
        for item in dataclasses.fields(record)
    }


def _in_document(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return as_document(value)
    if isinstance(value, Mapping):
        return {key: _in_document(item) for key, item in value.items()}
    return [_in_document(item) for item in value] if isinstance(value, (tuple, list)) else value


# --- from records to rows -----------------------------------------------------


def row_of(record: Any, prefix: str = "") -> dict[str, Any]:
    """Convert a dataclass to a row for Arrow: name of the column → value."""
    row: dict[str, Any] = {}
    for item in fields_of(type(record)):
        value = getattr(record, item.attribute)
        if item.flat is not None:
            row |= row_of(value, prefix + item.flat.prefix)
        else:
            name = item.name if item.is_named else prefix + item.name
            row[name] = utc(value) if item.is_moment and value is not None else plain(value)
    return row


def plain(value: Any) -> Any:
    """Convert a value for Arrow: dataclasses become dicts, maps become pairs, NaN becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return row_of(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return [(plain(key), plain(item)) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.to_text() if hasattr(value, "to_text") else value


def utc(at_s: float) -> datetime:
    """Convert a wall-clock time [s since the epoch] to a value of a column."""
    return datetime.fromtimestamp(at_s, tz=timezone.utc)


# --- from rows to records -----------------------------------------------------


def restored(kind: type[Record], row: Mapping[str, Any], prefix: str = "") -> Record:
    """Restore a dataclass from a row of Spark, Arrow or JSON.

    A row that another version of redline wrote may lack the value of a field. A field without a
    value in the row, or with null, gets its default. A field without a value and without a default
    becomes None, NaN or an empty tuple, according to its type (`X | None`, float or tuple).

    Raises:
        ValueError: the row has no value for a field that needs one. Such a field has no default,
            and its type is neither `X | None` nor float nor tuple.
    """
    values = {}
    for item in fields_of(kind):
        if item.is_derived:
            continue
        if item.flat is not None:
            inner = bare(item.hint)
            values[item.attribute] = restored(inner, row, prefix + item.flat.prefix)
            continue
        value = row.get(item.name if item.is_named else prefix + item.name)
        if value is not None:
            values[item.attribute] = item.reader(value)
        elif not item.has_default:
            values[item.attribute] = _unknown(kind, item)
    return kind(**values)


def _has_default(item: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return item.default is not missing or item.default_factory is not missing


def _unknown(kind: type[Any], item: ColumnField) -> Any:
    inner = get_args(item.hint)[0] if get_origin(item.hint) is Annotated else item.hint
    if get_origin(inner) in (Union, types.UnionType):
        return None
    kind_of_value = bare(item.hint)
    if kind_of_value is float:
        return math.nan
    if get_origin(kind_of_value) is tuple:
        return ()
    raise ValueError(f"a row of {kind.__name__} has no {item.name}; expected a value")


@functools.cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """The function that converts a value, or null, to the type of an annotation."""
    read = _reader_of_known(hint)
    # NaN in a list or map is stored as null.
    missing = math.nan if bare(hint) is float else None
    return lambda value: missing if value is None else read(value)


def _reader_of_known(hint: Any) -> Callable[[Any], Any]:
    """The function that converts a value, which must not be null, to the type of an annotation."""
    if any(isinstance(mark, Moment) for mark in marks_of(hint)):
        return _read_moment
    hint = bare(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        read_item = _reader(arguments[0])
        return lambda value: tuple(map(read_item, value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        read_key, read_value = _reader(arguments[0]), _reader(arguments[1])
        # Arrow returns a map as a list of pairs.
        return lambda value: {read_key(k): read_value(v) for k, v in dict(value).items()}
    if dataclasses.is_dataclass(hint):
        return functools.partial(restored, cast("type[Any]", hint))
    if hint is datetime:
        return lambda value: value.astimezone(timezone.utc)
    if origin is Literal or hint is Any:
        return lambda value: value
    if isinstance(hint, type) and hasattr(hint, "from_text"):
        return cast("Callable[[Any], Any]", hint.from_text)
    return cast("Callable[[Any], Any]", hint)


def _read_moment(value: Any) -> float:
    at = datetime.fromisoformat(value) if isinstance(value, str) else value  # JSON has text
    return float(at.timestamp())
