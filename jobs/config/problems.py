"""Messages for mistakes in a configuration, one line for each mistake, instead of pydantic's texts.

The module also replaces environment variables (`${NAME}`) in a cluster's file, and refuses secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from jobs.config.base import Model, field_at, hint, model_at, nearest_key
from jobs.config.workload import MIX, OF_PARTS
from jobs.config.yaml_file import ParsedFile, Path, kind_of, parse_value
from metrics.common.bounds import EXAMPLES, Checked, UnexpectedError
from metrics.common.errors import ConfigError
from metrics.units import format_counted

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
NAME_OF_SECRET = re.compile(
    r"passw|passphrase|pwd|secret|token|credential|(api|access|private|account|sas|subscription)"
    r"[-_.]?key|authorization|bearer|cookie",
    re.IGNORECASE,
)

Written = Mapping[str, str]
"""Path of a key, such as `bootstrap_servers.0` → text of the key's value in the file, before
variables are replaced.
"""


def with_values(source: ParsedFile) -> Written:
    """Replace the variables in a file's values, and return the original texts of these values.

    If a value is only a variable, such as `${PORT}`, the content of the variable is read as YAML.
    The content 9092 then becomes a number instead of a text.

    Raises:
        ConfigError: a variable is not set, or may contain a secret.
    """
    written: dict[str, str] = {}
    for path, text in list(_texts(source.data, ())):
        if _VARIABLE.search(text):
            written[".".join(map(str, path))] = text
            place: Any = source.data
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = _value(text, path, source.origin(path))
    return written


def as_written(flat: Mapping[str, Any], written: Written) -> dict[str, Any]:
    """Path → value of the keys of a configuration; a value in which a variable was replaced is the
    file's original text.
    """
    found = dict(flat)
    for path, text in written.items():
        key = next((key for key in found if path == key or path.startswith(f"{key}.")), None)
        if key is not None:
            part = path[len(key) + 1 :]
            found[key] = _with_part(found[key], part, text) if part else text
    return found


def _with_part(value: Any, part: str, text: str) -> Any:
    if isinstance(value, Mapping):
        own = next((key for key in value if str(key) == part), part)
        return {**value, own: text}
    return [text if str(place) == part else each for place, each in enumerate(value)]


def _texts(value: Any, path: Path) -> Any:
    """Yield each text inside a nested value, with the text's path: (path, text)."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, (*path, key))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _texts(each, (*path, place))
    elif isinstance(value, str):
        yield path, value


def _value(text: str, path: Path, origin: str) -> Any:
    key = ".".join(map(str, path))

    def looked_up(found: re.Match[str]) -> str:
        name = found[1]
        if NAME_OF_SECRET.search(name) or str(path[-1]).endswith("_from"):
            raise ConfigError(
                f"{origin}: {key} has ${{{name}}}, which may be a secret; expected no secret in a "
                f"value that is recorded and shown; write env:{name} in a key that ends in _from"
            )
        value = os.environ.get(name)
        if value is None:
            raise ConfigError(
                f"{origin}: {key} has ${{{name}}}, and this environment variable is not set; "
                f"set {name} before the run, or write the value"
            )
        return value

    filled = _VARIABLE.sub(looked_up, text)
    is_whole = _VARIABLE.fullmatch(text) is not None
    return parse_value(filled, f"{origin}: {key}, {text}") if is_whole else filled


LINES_MAX = 5

KINDS = {
    "tuple_type": "a list, in brackets or with dashes",
    "string_type": "a text",
    "bool_type": "true or false",
    "model_type": "a map of keys and values",
    "mapping_type": "a map of keys and values",
    "dict_type": "a map of keys and values",
}


def config_error(
    error: ValidationError,
    source: ParsedFile,
    model: Model,
    written: Mapping[str, str] = MappingProxyType({}),
) -> ConfigError:
    """The error for a configuration that `model` refused.

    The message has one line for each problem, at most `LINES_MAX` lines. The message does not quote
    values of keys that may contain a secret. If a value comes from an environment variable, the
    message quotes the file's text, such as `${NAME}`, instead of the value.

    Args:
        written: path of a key → text of the key's value in the file, before variables are replaced.
    """
    causes = _without_effects(error.errors(include_url=False), model)
    lines = [_line(details, source, model, written) for details in causes]
    shown = lines[:LINES_MAX]
    if len(lines) > LINES_MAX:
        shown.append(f"and {len(lines) - LINES_MAX} more problems in {source.label}")
    return ConfigError("\n".join(shown))


def _without_effects(problems: list[ErrorDetails], model: Model) -> list[ErrorDetails]:
    """The problems that are not consequences of other problems, so that each mistake is reported
    once.

    For example, pydantic drops wrong items of a list, and then reports that the list is too short.
    Pydantic also reports a misspelled key twice, as an unknown key and as a missing key.
    """
    if any(details["loc"][:1] == (MIX,) for details in problems):  # the parts have these sections
        whole = {(key,) for key in OF_PARTS}
        problems = [each for each in problems if each["loc"][:1] not in whole]
    above = {loc[:end] for each in problems if (loc := each["loc"]) for end in range(len(loc))}
    meant = {
        (*details["loc"][:-1], nearest_key(model, details["loc"]))
        for details in problems
        if details["type"] == "extra_forbidden"
    }
    return [
        details
        for details in problems
        if not (details["type"] == "too_short" and details["loc"] in above)
        and not (details["type"] == "missing" and details["loc"] in meant)
    ]


def _line(
    details: ErrorDetails, source: ParsedFile, model: Model, written: Mapping[str, str]
) -> str:
    path = tuple(part for part in details["loc"] if part != "[key]")
    where = source.origin(path)
    key = ".".join(map(str, path))
    if details["type"] == "extra_forbidden":
        return f"{where}: {key} is an unknown key; {_unknown(model, path)}"
    if details["type"] == "missing":
        return f"{where}: {key} is missing; expected {_expected_value(model, path)}; add it"
    cause = details.get("ctx", {}).get("error", details["msg"])
    if details["type"] == "value_error" and not isinstance(cause, UnexpectedError):
        return f"{where}: {key + ': ' if key else ''}{cause}"
    above = (".".join(map(str, path[:end])) for end in range(len(path), 0, -1))
    reference = next((written[each] for each in above if each in written), None)
    given = _shown(path, details["input"] if reference is None else reference)
    expected = _expected(details)
    return f"{where}: {key} is {given}; expected {expected}; {_remedy(model, path)}"


def _unknown(model: Model, path: tuple[Any, ...]) -> str:
    """The hint for an unknown key; for a secret, how to write a reference instead."""
    if may_be_secret(path) and not str(path[-1]).endswith("_from"):
        return (
            "a file or an option must not contain a secret; "
            "expected a reference such as password_from: env:KAFKA_PASSWORD; replace the secret "
            "by a reference"
        )
    return hint(model, path)


def may_be_secret(path: tuple[Any, ...]) -> bool:
    """Whether the value of a key may contain a secret; messages do not quote such values."""
    name = str(path[-1]).lower() if path else ""
    return NAME_OF_SECRET.search(name) is not None or "username" in name


def _shown(path: tuple[Any, ...], value: Any) -> str:
    if may_be_secret(path):
        return "not a reference to a secret"
    if isinstance(value, (dict, list, tuple)) or value is None:
        return "null" if value is None else kind_of(value)
    text = _USER_INFO.sub("***@", value) if isinstance(value, str) else str(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    if isinstance(value, bool):
        return f"{text.lower()}, a boolean"
    return f'"{text}", a text' if isinstance(value, str) else text


_USER_INFO = re.compile(r"[^\s/]*@")
"""The user and the password in front of an address."""


def _expected(details: ErrorDetails) -> str:
    context: Mapping[str, Any] = details.get("ctx") or {}
    kind = details["type"]
    if isinstance(context.get("error"), UnexpectedError):
        return f"{context['error'].expected}{_unit_hint(details, str(context['error'].expected))}"
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    if kind == "too_short":
        return f"at least {format_counted(context['min_length'], 'item')}"
    if kind == "too_long":
        return f"at most {context['max_length']} items"
    return KINDS.get(kind, details["msg"])


def _unit_hint(details: ErrorDetails, expected: str) -> str:
    """An example of a number with a unit, if the value is a text instead of a number."""
    if not isinstance(details["input"], str):
        return ""
    unit = re.search(r" of (bytes per second|bytes|seconds|milliseconds)\b", expected)
    return f", or with its unit, such as {EXAMPLES[unit[1]]}" if unit else ""


def _expected_value(model: Model, path: tuple[Any, ...]) -> str:
    """A noun phrase for the values that a missing key accepts."""
    field = field_at(model, path)
    kind, metadata = (field.annotation, field.metadata) if field else (None, ())
    is_list = get_origin(kind) is tuple
    if is_list:  # the type of the items has the checks
        metadata = getattr(get_args(kind)[0], "__metadata__", ())
    checks = [check for check in metadata if isinstance(check, Checked)]
    one = "a map of keys and values" if model_at(model, path) else "a value"
    one = checks[0].expected() if checks else one
    return f"a list with at least one item, each {one}" if is_list else one


def _remedy(model: Model, path: tuple[Any, ...]) -> str:
    """The remedy for a wrong value: correct the value, or remove the key if the key has a simple
    default.
    """
    field = field_at(model, path)
    if field is None or field.is_required() or not isinstance(field.default, (int, float, str)):
        return "correct it"
    return f"correct it, or remove the key for the default {field.default}"
