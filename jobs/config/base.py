"""What all configuration models share: frozen, strict, and fields that say what they expect."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

EXPECTED = "expected"
"""Error type of a value that is not what its field expects; `ctx["expected"]` says what is."""


class ConfigModel(BaseModel):
    """A frozen, strictly typed part of the configuration without room for unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


def unexpected(expected: str) -> PydanticCustomError:
    """The error of a value that is not `expected`, a noun phrase."""
    return PydanticCustomError(EXPECTED, "expected {expected}", {"expected": expected})


class Checked(ABC):
    """An annotation that checks a value before pydantic does, and says what it expects."""

    @abstractmethod
    def expected(self) -> str:
        """A noun phrase for messages and docs."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """True when the value may go on to pydantic's own checks."""

    def _check(self, value: Any) -> Any:
        if not self.accepts(value):
            raise unexpected(self.expected())
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))


@dataclass(frozen=True)
class Whole(Checked):
    """A whole number from `low` to `high`; `unit` is a plural noun, or empty."""

    low: int
    high: int
    unit: str = ""

    def expected(self) -> str:
        """The noun phrase for messages and docs."""
        of = f" of {self.unit}" if self.unit else ""
        return f"a whole number{of} from {self.low} to {self.high}"

    def accepts(self, value: Any) -> bool:
        """True for an int inside the bounds; a bool is none."""
        is_int = isinstance(value, int) and not isinstance(value, bool)
        return is_int and self.low <= value <= self.high


@dataclass(frozen=True)
class Number(Checked):
    """A finite number from `low` (or above it, when `above`) to `high` (or below it)."""

    low: float
    high: float
    unit: str = ""
    above: bool = False
    below: bool = False

    def expected(self) -> str:
        """The noun phrase for messages and docs."""
        of = f" of {self.unit}" if self.unit else ""
        low = f"above {self.low:.12g}" if self.above else f"from {self.low:.12g}"
        if self.below:
            return f"a number{of} {low} to below {self.high:.12g}"
        return f"a number{of} {low} {'up ' if self.above else ''}to {self.high:.12g}"

    def accepts(self, value: Any) -> bool:
        """True for an int or float inside the bounds; NaN and bool are none."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return False
        over = value > self.low if self.above else value >= self.low
        under = value < self.high if self.below else value <= self.high
        return over and under


@dataclass(frozen=True)
class Text(Checked):
    """A text that matches `pattern` as a whole; `what` is a noun phrase."""

    pattern: str
    what: str

    def expected(self) -> str:
        """The noun phrase for messages and docs."""
        return self.what

    def accepts(self, value: Any) -> bool:
        """True for a str that matches."""
        return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None


_NAME = Text(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}",
    "a name of at most 80 letters, digits, dots, dashes and underscores",
)
Name = Annotated[str, _NAME]


def is_name(value: Any) -> bool:
    """True for what `Name` takes."""
    return _NAME.accepts(value)


def is_host_port(value: Any) -> bool:
    """True for `host:port` and `[IPv6]:port` with a port from 1 to 65535."""
    if not isinstance(value, str):
        return False
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5})", value)
    return match is not None and 1 <= int(match.group(2)) <= 65_535


@dataclass(frozen=True)
class HostPortText(Checked):
    """A text of the form host:port."""

    def expected(self) -> str:
        """The noun phrase for messages and docs."""
        return "an address such as broker-1.example.com:9092"

    def accepts(self, value: Any) -> bool:
        """True for host:port."""
        return is_host_port(value)


HostPort = Annotated[str, HostPortText()]


def _as_property(value: Any) -> Any:
    """Kafka's properties are text; YAML's numbers and booleans are written as Kafka reads them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return value


def _as_properties(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise unexpected("a map of Kafka property names to values, such as {retention.bytes: 1000}")
    for name, given in value.items():
        if not isinstance(name, str) or not isinstance(given, (str, int, float, bool)):
            raise unexpected("Kafka property names with a text, number or boolean each")
    return {name: _as_property(given) for name, given in value.items()}


Properties = Annotated[Mapping[str, str], BeforeValidator(_as_properties)]
"""Kafka properties by name; numbers and booleans of the YAML become text."""
