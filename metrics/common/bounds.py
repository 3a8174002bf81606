"""The accepted values of options, for checks, messages and the documentation.

Options are plain dataclasses. The `Annotated` hint of an option contains the expected values and
Kafka's name of the option. pydantic reads these annotations when it checks a file
(`jobs.config.base`); this module does not import pydantic.

Sizes, times and counts can have units, such as `64 MiB`, `30s` and `10k`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, get_args, get_origin, get_type_hints

_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ/]+)")

_PREFIXES = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_COUNTS = {prefix: Decimal(1000**power) for prefix, power in _PREFIXES.items()} | {
    f"{prefix}i": Decimal(1024**power) for prefix, power in _PREFIXES.items() if prefix
}
"""Prefix of a unit → its factor; k is 1000, Ki is 1024."""

_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
}
_BYTES = _COUNTS | {f"{prefix}B": factor for prefix, factor in _COUNTS.items()}
_UNITS = {
    "bytes": _BYTES,
    "bytes per second": _BYTES | {f"{name}/s": factor for name, factor in _BYTES.items()},
    "records per second": _COUNTS
    | {
        f"{name}{each}/s": factor
        for name, factor in _COUNTS.items()
        for each in ("", "msg", "messages", "records")
    },
    "seconds": _SECONDS,
    "milliseconds": {name: 1000 * factor for name, factor in _SECONDS.items()},
}

EXAMPLES = {
    "bytes": "64 MiB",
    "bytes per second": "2 MB/s",
    "records per second": "50k/s",
    "seconds": "30s",
    "milliseconds": "20ms",
}


def amount(text: str, unit: str) -> float | int | None:
    """Convert a text with a number and a unit to a number of `unit`; None if this is not possible.

    Args:
        text: a number with a unit.
        unit: unit of the result, a plural noun such as `seconds`. For a noun such as `records`, the
            unit in the text is only a prefix such as k, M or Ki.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    factor = _UNITS.get(unit, _COUNTS).get(found[2])
    if factor is None:
        return None
    number = Decimal(found[1]) * factor
    return int(number) if number == number.to_integral_value() else float(number)


@dataclass(frozen=True)
class OfferedRate:
    """The total rate of all producers.

    Attributes:
        per_s: the payload rate [B/s] or the message rate [1/s].
        is_payload: True for a payload rate.
    """

    per_s: float
    is_payload: bool

    def __str__(self) -> str:
        """The rate in words, such as `200 MB/s` or `50,000 messages/s`."""
        return f"{self.per_s / 1e6:g} MB/s" if self.is_payload else f"{self.per_s:,g} messages/s"


def offered_rate(text: str) -> OfferedRate | None:
    """Parse a rate such as `200MB/s` or `50k msg/s`; None if the text is not a rate or the rate is
    0.
    """
    compact = "".join(text.split())
    is_payload = compact.endswith("B/s")
    unit = "bytes per second" if is_payload else "records per second"
    rate = amount(compact, unit) if compact.endswith("/s") else None
    return OfferedRate(float(rate), is_payload) if rate else None


class UnexpectedError(ValueError):
    """An error for a value that a field does not accept. `expected` is a noun phrase."""

    def __init__(self, expected: str) -> None:
        super().__init__(f"expected {expected}")
        self.expected = expected


class Checked(ABC):
    """An annotation that describes the expected values and checks each value before pydantic's
    checks.
    """

    @abstractmethod
    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """True if the value passes this check. pydantic's own checks follow."""

    def _check(self, value: Any) -> Any:
        if not self.accepts(value):
            raise UnexpectedError(self.expected())
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """The pydantic schema, with this check before pydantic's own checks."""
        check = {"type": "no-info", "function": self._check}
        return {"type": "function-before", "function": check, "schema": handler(source)}

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        """The JSON Schema of the value, for editors."""
        return {**handler(core), **self.for_editors()}

    def for_editors(self) -> dict[str, Any]:
        """The entries that extend or replace pydantic's JSON Schema of the value."""
        return {"description": self.expected()}


def _numeric(kind: str, unit: str, bounds: Mapping[str, float]) -> dict[str, Any]:
    """The JSON Schema of a number, of a text with a unit, or of a reference `${…}`."""
    texts = [r"^\$\{", *([r"^[0-9.]+ *[A-Za-z/]+$"] if unit else [])]
    return {"anyOf": [{"type": kind, **bounds}, {"type": "string", "pattern": "|".join(texts)}]}


def _in_unit(value: Any, unit: str) -> Any:
    """Convert a text with a unit, such as `30s`, to a number of `unit`.

    A value that is not a text with a unit is returned unchanged.
    """
    number = amount(value, unit) if isinstance(value, str) else None
    return value if number is None else number


@dataclass(frozen=True)
class Whole(Checked):
    """A whole number from `low` to `high`. The value `also` is accepted, even if it lies outside
    this range. `unit` is a plural noun; it is empty for a number without a unit.
    """

    low: int
    high: int
    unit: str = ""
    also: int | None = None

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        of = f" of {self.unit}" if self.unit else ""
        also = "" if self.also is None else f", or {self.also}"
        return f"a whole number{of} from {self.low} to {self.high}{also}"

    def _check(self, value: Any) -> Any:
        return super()._check(_in_unit(value, self.unit))

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema of a whole number within the bounds, or of a text with a unit."""
        low = self.low if self.also is None else min(self.low, self.also)
        whole = _numeric("integer", self.unit, {"minimum": low, "maximum": self.high})
        return {**super().for_editors(), "type": ["integer", "string"], **whole}

    def accepts(self, value: Any) -> bool:
        """True for an int within the bounds, but not for a bool."""
        is_int = isinstance(value, int) and not isinstance(value, bool)
        return is_int and (self.low <= value <= self.high or value == self.also)


@dataclass(frozen=True)
class Number(Checked):
    """A finite number from `low` to `high`.

    With `above`, the number must be greater than `low`. With `below`, the number must be less than
    `high`. `unit` is a plural noun; it is empty for a number without a unit.
    """

    low: float
    high: float
    unit: str = ""
    above: bool = False
    below: bool = False

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        of = f" of {self.unit}" if self.unit else ""
        low = f"above {self.low:.12g}" if self.above else f"from {self.low:.12g}"
        if self.below:
            return f"a number{of} {low} to below {self.high:.12g}"
        return f"a number{of} {low} {'up ' if self.above else ''}to {self.high:.12g}"

    def _check(self, value: Any) -> Any:
        return super()._check(_in_unit(value, self.unit))

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema of a number within the bounds, or of a text with a unit."""
        low = "exclusiveMinimum" if self.above else "minimum"
        high = "exclusiveMaximum" if self.below else "maximum"
        number = _numeric("number", self.unit, {low: self.low, high: self.high})
        return {**super().for_editors(), "type": ["number", "string"], **number}

    def accepts(self, value: Any) -> bool:
        """True for an int or float within the bounds, but not for NaN or a bool."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return False
        over = value > self.low if self.above else value >= self.low
        under = value < self.high if self.below else value <= self.high
        return over and under


@dataclass(frozen=True)
class Text(Checked):
    """A text that matches the whole `pattern`. `what` is a noun phrase that describes the text."""

    pattern: str
    what: str

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        return self.what

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema of a text that matches the pattern."""
        return {**super().for_editors(), "pattern": rf"^(?:{self.pattern})$"}

    def accepts(self, value: Any) -> bool:
        """True for a str that matches the pattern."""
        return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True)
class Choice(Checked):
    """A text that must be one of `names`."""

    names: tuple[str, ...]

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        *most, last = self.names
        return f"{', '.join(most)} or {last}" if most else last

    def accepts(self, value: Any) -> bool:
        """True if the value is one of the names."""
        return value in self.names


@dataclass(frozen=True)
class KafkaProperties(Checked):
    """A map of Kafka's property names to values. Numbers and booleans of YAML become text."""

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        return "a map of Kafka property names to values, such as {retention.bytes: 1000}"

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema of a map whose values are texts, numbers or booleans."""
        each = {"type": ["string", "number", "boolean"]}
        return {**super().for_editors(), "additionalProperties": each}

    def accepts(self, value: Any) -> bool:
        """True for a map."""
        return isinstance(value, Mapping)

    def _check(self, value: Any) -> Any:
        read = super()._check(value)
        for name, given in read.items():
            if not isinstance(name, str) or not isinstance(given, (str, int, float, bool)):
                raise UnexpectedError(
                    "a map from Kafka property names to texts, numbers or booleans"
                )
        return {name: _as_property(name, given) for name, given in read.items()}


_PROPERTY_UNITS = {"bytes": "bytes", "ms": "milliseconds"}
"""Last part of a Kafka property's name → unit of the property's value. For example, `bytes` is the
last part of `retention.bytes`."""


def _as_property(name: str, value: Any) -> Any:
    """The text of a Kafka property whose value in YAML is a text, a number or a boolean."""
    unit = _PROPERTY_UNITS.get(name.rpartition(".")[2])
    value = value if unit is None else _in_unit(value, unit)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


Properties = Annotated[Mapping[str, str], KafkaProperties()]
"""Kafka properties by name."""


# --- Kafka's own options ----------------------------------------------------------


@dataclass(frozen=True)
class Kafka:
    """A mark on an option: the name of its Kafka property, if the property has another name than
    the option with dots.
    """

    name: str


OURS = "no property of Kafka"
"""A mark for an option that is not a property of Kafka."""


def kafka_properties(kind: type[Any]) -> dict[str, str]:
    """Name of an option → Kafka's property name, for all options that are properties of Kafka.

    If an option has a `Kafka` mark, Kafka's name is the name in this mark. Otherwise, Kafka's name
    is the option's name with dots, as in `linger.ms` for `linger_ms`.
    """
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if OURS not in marks:
            given = next((mark.name for mark in marks if isinstance(mark, Kafka)), None)
            found[name] = given or name.replace("_", ".")
    return found
