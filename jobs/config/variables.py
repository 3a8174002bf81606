"""Environment variables in a cluster's file as `${NAME}`; secrets are refused."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from jobs.config.source import ParsedFile, Path, parse_value
from metrics.common.errors import ConfigError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
NAME_OF_SECRET = re.compile(
    r"passw|passphrase|pwd|secret|token|credential|(api|access|private|account|sas|subscription)"
    r"[-_.]?key|authorization|bearer|cookie",
    re.IGNORECASE,
)

Written = Mapping[str, str]
"""Path of a key, such as `bootstrap_servers.0` → its text in the file, with variables."""


def with_values(source: ParsedFile) -> Written:
    """Replace the variables in a file's values, and return the texts with variables.

    A value that consists of one variable is read as YAML, so that a port is a number.

    Raises:
        ConfigError: a variable is not set, or holds a secret.
    """
    written: dict[str, str] = {}
    for path, text in list(_texts(source.data, ())):
        if _VARIABLE.search(text):
            written[".".join(map(str, path))] = text
            _put(source.data, path, _value(text, path, source.origin(path)))
    return written


def as_written(flat: Mapping[str, Any], written: Written) -> dict[str, Any]:
    """Path → value for the keys of a configuration, with the variables of the file."""
    found = dict(flat)
    for path, text in written.items():
        key = next((key for key in found if path == key or path.startswith(f"{key}.")), None)
        if key is None:
            continue
        if key == path:
            found[key] = text
        else:
            found[key] = _with_part(found[key], path[len(key) + 1 :], text)
    return found


def _with_part(value: Any, part: str, text: str) -> Any:
    if isinstance(value, Mapping):
        own = next((key for key in value if str(key) == part), part)
        return {**value, own: text}
    return [text if str(place) == part else each for place, each in enumerate(value)]


def _texts(value: Any, path: Path) -> Any:
    """The path and the text of each text below a value."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, (*path, key))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _texts(each, (*path, place))
    elif isinstance(value, str):
        yield path, value


def _put(data: Any, path: Path, value: Any) -> None:
    for part in path[:-1]:
        data = data[part]
    data[path[-1]] = value


def _value(text: str, path: Path, origin: str) -> Any:
    key = ".".join(map(str, path))

    def looked_up(found: re.Match[str]) -> str:
        name = found[1]
        if NAME_OF_SECRET.search(name) or str(path[-1]).endswith("_from"):
            raise ConfigError(
                f"{origin}: {key} has ${{{name}}}, which may be a secret; expected none in a value "
                f"that is recorded and shown; write env:{name} in a key that ends in _from"
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
