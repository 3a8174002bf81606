"""The base class of all configuration models, and the adapter for sections that are dataclasses.

The module also lists the keys of a model, and finds the key that a user may have meant.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema
from typing_extensions import Self

from metrics.common.bounds import Checked, Text


class ConfigModel(BaseModel):
    """A frozen part of the configuration, with strict types and without unknown keys."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.require_consistent()
        return self

    def require_consistent(self) -> None:
        """Refuse keys that contradict each other.

        Raises:
            ValueError: keys contradict each other; the message names the keys and the remedy.
        """

    def _require_pair(self, one: str, other: str) -> None:
        if (getattr(self, one) is None) != (getattr(self, other) is None):
            raise ValueError(f"only one of {one} and {other} is set; expected both; add the other")

    def _require_distinct(self, key: str, verb: str, noun: str) -> None:
        values = getattr(self, key)
        if twice := [each for each in values if values.count(each) > 1]:
            raise ValueError(
                f"{key} {verb} {min(twice)} more than once; expected each {noun} once; remove the "
                "repetition"
            )


class FileSection:
    """An annotation for a dataclass. The dataclass is a section of a file, and is checked like a
    `ConfigModel`.

    The annotations of the dataclass give the bounds of single values. The optional method
    `require_consistent` of the dataclass checks values against each other.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        model = section_model(source)

        def checked(section: BaseModel) -> Any:
            options = source(**{name: getattr(section, name) for name in model.model_fields})
            if hasattr(options, "require_consistent"):
                options.require_consistent()
            return options

        return core_schema.no_info_after_validator_function(checked, handler.generate_schema(model))


@functools.cache
def section_model(kind: Any) -> type[ConfigModel]:
    """The pydantic model that checks a section of a file; `kind` is the section's dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    keys: dict[str, Any] = {
        item.name: (hints[item.name], _default_of(item)) for item in dataclasses.fields(kind)
    }
    return create_model(kind.__name__, __base__=ConfigModel, __doc__=kind.__doc__, **keys)


def _default_of(item: dataclasses.Field[Any]) -> Any:
    if item.default_factory is not dataclasses.MISSING:
        return Field(default_factory=item.default_factory)
    return ... if item.default is dataclasses.MISSING else item.default


_NAME = Text(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}",
    "a name of at most 80 letters, digits, dots, dashes and underscores",
)
Name = Annotated[str, _NAME]


def is_name(value: Any) -> bool:
    """Whether `Name` accepts a value."""
    return _NAME.accepts(value)


@dataclass(frozen=True)
class HostPortText(Checked):
    """A text of the form host:port."""

    def expected(self) -> str:
        """The noun phrase for messages and docs."""
        return "an address such as broker-1.example.com:9092"

    def accepts(self, value: Any) -> bool:
        """Whether a value is `host:port` or `[IPv6]:port` with a port from 1 to 65535."""
        if not isinstance(value, str):
            return False
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):(\d{1,5})", value)
        return match is not None and 1 <= int(match.group(2)) <= 65_535


HostPort = Annotated[str, HostPortText()]


Model = type[BaseModel]


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, without Annotated and None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _alternatives(part)
    elif annotation is not type(None):
        yield annotation


def _child(annotation: Any) -> Model | None:
    """The model in an annotation; for a list or a map, the model of the items."""
    for kind in _alternatives(annotation):
        if get_origin(kind) is tuple:
            return _child(get_args(kind)[0])
        if get_origin(kind) in (Mapping, dict):
            return _child(get_args(kind)[1])
        if dataclasses.is_dataclass(kind):
            section: Any = kind
            return section_model(section)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _is_map(annotation: Any) -> bool:
    return any(get_origin(kind) in (Mapping, dict) for kind in _alternatives(annotation))


def model_at(model: Model, path: Sequence[Any]) -> Model | None:
    """The model at `path` below `model`; None if there is no model at this path."""
    keys = iter(path)
    for key in keys:
        if isinstance(key, int):  # the position of an item in a list
            continue
        field = model.model_fields.get(str(key))
        child = _child(field.annotation) if field else None
        if child is None:
            return None
        model = child
        if field is not None and _is_map(field.annotation):
            next(keys, None)  # the name of an item in a map
    return model


def field_at(model: Model, path: Sequence[Any]) -> FieldInfo | None:
    """The field of the key at `path`; None if there is no such key."""
    parent = model_at(model, path[:-1]) if path else None
    return parent.model_fields.get(str(path[-1])) if parent else None


def has_free_keys(model: Model, path: Sequence[Any]) -> bool:
    """Whether the value at `path` is a map with keys of the user's choice."""
    found = field_at(model, path)
    return found is not None and _is_map(found.annotation) and _child(found.annotation) is None


def all_keys(model: Model) -> Iterator[tuple[str, ...]]:
    """The paths of all keys below `model` whose values are not models."""
    return (keys for keys, is_value in _paths(model) if is_value)


def default_at(model: Model, path: Sequence[Any]) -> Any:
    """The default of the key at `path`; None if the key has no default."""
    found = field_at(model, path)
    if found is None or found.is_required():
        return None
    return found.get_default(call_default_factory=True)


def _paths(model: Model, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """For each key below `model`: its path, and whether the key has a value instead of further
    keys.
    """
    for name, field in model.model_fields.items():
        # The names of a map's items are the user's choice, so the map is one key.
        child = None if _is_map(field.annotation) else _child(field.annotation)
        yield (*above, name), child is None
        if child is not None:
            yield from _paths(child, (*above, name))


def nearest(given: str, known: Sequence[str]) -> str | None:
    """The known name that is most similar to `given`; None if no known name is similar."""
    found = difflib.get_close_matches(given.lower(), [name.lower() for name in known], 1, 0.6)
    return next((name for name in known if found and name.lower() == found[0]), None)


def nearest_key(model: Model, path: Sequence[Any]) -> str | None:
    """The known key that is most similar to the unknown key at `path`; None without a similar
    key.
    """
    here = model_at(model, path[:-1])
    return nearest(str(path[-1]), list(here.model_fields)) if here else None


def hint(model: Model, path: Sequence[Any]) -> str:
    """A clause about the unknown key at `path`: it suggests the known key that the user may have
    meant.
    """
    given = str(path[-1])
    here = model_at(model, path[:-1])
    known = list(here.model_fields) if here else []
    close = nearest_key(model, path)
    if close:
        return f"the nearest known key is {close}; rename it"
    elsewhere = [keys for keys, _ in _paths(model) if keys[-1] == given]
    if elsewhere:
        return f"the known key with this name is {'.'.join(elsewhere[0])}; move it there"
    return f"expected one of {', '.join(known)}; rename or remove it"
