"""YAML text as plain data that remembers where each value stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from search.errors import ConfigError

Path = tuple[Any, ...]
"""Keys and list positions from the top of a file to a value."""


@dataclass
class ParsedFile:
    """The data of one file, and where each of its values comes from.

    Attributes:
        label: the file as a user knows it.
        data: maps, lists and scalars.
        origins: path of a value → where it was given, for messages.
    """

    label: str
    data: dict[Any, Any]
    origins: dict[Path, str] = field(default_factory=dict)

    def origin(self, path: Path) -> str:
        """Where the value at `path`, or the closest part around it, was given."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return self.label


def parse_map(text: str, label: str) -> ParsedFile:
    """Parse a file that holds one map.

    Args:
        text: YAML 1.2.
        label: the file as a user knows it, for messages.

    Raises:
        ConfigError: when it is malformed, empty, no map, or gives a key twice.
    """
    try:
        loaded = YAML().load(text)
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"{label}{_trouble(error)}; expected YAML; correct it there") from None
    if loaded is None:
        raise ConfigError(
            f"{label} is empty; expected keys and values; "
            "copy one of the files that come with the project and change it"
        )
    origins: dict[Path, str] = {}
    data = _plain(loaded, label, (), origins)
    if not isinstance(data, dict):
        raise ConfigError(
            f"{label} holds {kind_of(data)}; expected keys and values such as `name: value`; "
            "write it as a map"
        )
    return ParsedFile(label, data, origins)


def parse_value(text: str, label: str) -> Any:
    """Parse the value of an option as YAML; `label` names the option in messages.

    Raises:
        ConfigError: when it is malformed.
    """
    try:
        loaded = YAML().load(text)
    except (YAMLError, ValueError) as error:
        raise ConfigError(
            f"{label}: the value is malformed{_trouble(error)}; expected YAML such as 10, all "
            "or [1, 2]; correct it, and quote it for the shell"
        ) from None
    return _plain(loaded, label, (), {})


def _plain(value: Any, label: str, path: Path, origins: dict[Path, str]) -> Any:
    """What ruamel.yaml loaded as plain data, its lines noted in `origins`."""
    if isinstance(value, CommentedMap):
        found: dict[Any, Any] = {}
        for key, item in value.items():
            line = f"{label}, line {value.lc.key(key)[0] + 1}"
            below = (*path, _key(key, line, path))
            origins[below] = line
            found[below[-1]] = _plain(item, label, below, origins)
        return found
    if isinstance(value, CommentedSeq):
        items = []
        for index, item in enumerate(value):
            below = (*path, index)
            origins[below] = f"{label}, line {value.lc.item(index)[0] + 1}"
            items.append(_plain(item, label, below, origins))
        return items
    if isinstance(value, TaggedScalar):
        raise ConfigError(
            f"{origins.get(path, label)}: the value in {_dotted(path)} has the tag {value.tag}; "
            "expected a plain value; remove the tag"
        )
    return _scalar(value)


def _key(key: Any, where: str, path: Path) -> int | str:
    if isinstance(key, bool) or not isinstance(key, int | str):
        given = f'"{str(key).lower()}"' if isinstance(key, bool | float) else "a list or map"
        raise ConfigError(
            f"{where}: {given} stands for a key in {_dotted(path)}; "
            "expected a name before the colon; correct it"
        )
    return int(key) if isinstance(key, int) else str(key)


def _scalar(value: Any) -> Any:
    """Without what ruamel.yaml keeps to write a file again; YAML 1.2 itself knows no dates."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value.isoformat() if isinstance(value, date) else value


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path) or "the file"


def _trouble(error: Exception) -> str:
    """Where and what, as it goes on after the name of the file or option."""
    if isinstance(error, DuplicateKeyError) and error.problem_mark is not None:
        key = re.search(r'duplicate key "([^"]*)"', str(error.problem))
        named = key[1] if key else "a key"
        return (
            f", line {error.problem_mark.line + 1}: {named} is given a second time; expected each "
            "key once"
        )
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        what = error.problem or "it cannot be read"
        return f", line {mark.line + 1}, column {mark.column + 1}: {what}"
    reason = str(error).splitlines()
    return f": {reason[0] if reason else 'it cannot be read'}"


def kind_of(value: Any) -> str:
    """What a value is, in the words of people who write YAML."""
    kinds: tuple[tuple[Any, str], ...] = (
        (bool, "a boolean"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "a text"),
        (list, "a list"),
        (tuple, "a list"),
        (dict, "a map"),
    )
    for kind, word in kinds:
        if isinstance(value, kind):
            return word
    return "nothing" if value is None else "something else"
