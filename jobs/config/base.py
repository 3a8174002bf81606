"""The base of all configuration models, and sections that are plain dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema, core_schema

from metrics.common.bounds import Checked, Text


class ConfigModel(BaseModel):
    """A frozen, strictly typed part of the configuration that refuses unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


class FileSection:
    """An annotation that makes a dataclass a section of a file, checked like a `ConfigModel`.

    The annotations of the dataclass give the bounds of single values. Its method
    `require_consistent`, if it has one, checks values against each other.
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
    """The model that checks a section of this dataclass."""
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


def is_host_port(value: Any) -> bool:
    """Whether a value is `host:port` or `[IPv6]:port` with a port from 1 to 65535."""
    if not isinstance(value, str):
        return False
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):(\d{1,5})", value)
    return match is not None and 1 <= int(match.group(2)) <= 65_535


@dataclass(frozen=True)
class HostPortText(Checked):
    """A text of the form host:port."""

    def expected(self) -> str:
        """The noun phrase for messages and docs."""
        return "an address such as broker-1.example.com:9092"

    def accepts(self, value: Any) -> bool:
        """Whether a value is host:port."""
        return is_host_port(value)


HostPort = Annotated[str, HostPortText()]
