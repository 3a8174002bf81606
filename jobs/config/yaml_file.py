"""YAML text as plain data, with the place of each value in its file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from metrics.common.errors import ConfigError

Path = tuple[Any, ...]
"""Keys and list positions from the top of a file to a value."""

VALUES_MAX = 10_000
"""Largest number of values in a file. Aliases of aliases can make millions of values in few
lines."""

DEPTH_MAX = 100
"""Largest depth of brackets in a file."""

_STANDARD = "tag:yaml.org,2002:"
_TEXTS = {_STANDARD + name for name in ("str", "timestamp")}
_PLAIN = _TEXTS | {_STANDARD + name for name in ("map", "seq", "null", "bool", "int", "float")}
_MALFORMED = (YAMLError, ValueError, RecursionError)


@dataclass
class ParsedFile:
    """The data of one file, with the place of each value.

    Attributes:
        label: name of the file in messages.
        data: maps, lists and scalars.
        origins: path of a value → file and line of the value, for messages.
    """

    label: str
    data: dict[Any, Any]
    origins: dict[Path, str] = field(default_factory=dict)

    def origin(self, path: Path) -> str:
        """The file and line of the value at `path`, or of the closest enclosing value."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return self.label


def parse_map(text: str, label: str) -> ParsedFile:
    """Parse a file with one map.

    Args:
        text: YAML 1.2.
        label: name of the file in messages.

    Raises:
        ConfigError: the file is malformed or empty, is not a map, or has a key twice.
    """
    reader = _Reader(label)
    try:
        node = _compose(text)
        if node is None or (isinstance(node, ScalarNode) and not node.value):
            raise ConfigError(
                f"{label} is empty; expected keys and values; "
                "copy a file of the project's folder conf, and change it"
            )
        data = reader.read(node, ())
    except _MALFORMED as error:
        raise ConfigError(f"{label}{_trouble(error)}; expected YAML; correct it there") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{label} is {kind_of(data)}; expected keys and values such as `name: value`; "
            "write it as a map"
        )
    return ParsedFile(label, data, reader.origins)


def parse_value(text: str, label: str) -> Any:
    """Parse the value of an option as YAML; `label` names the option in messages.

    Raises:
        ConfigError: the value is malformed.
    """
    reader = _Reader(label)
    try:
        node = _compose(text)
        return None if node is None else reader.read(node, ())
    except _MALFORMED as error:
        raise ConfigError(
            f"{label}: the value is malformed{_trouble(error)}; expected YAML such as 10, all "
            "or [1, 2]; correct the value, and quote it for the shell"
        ) from None


def yaml_text(data: Mapping[str, Any]) -> str:
    """The YAML text of plain data; keys keep their order."""
    text = StringIO()
    YAML().dump(data, text)
    return text.getvalue()


@lru_cache(maxsize=256)
def _compose(text: str) -> Node | None:
    """The top node of a YAML text; None for an empty text.

    Results are cached, because the cases of a sweep read the same files and options again. Callers
    must not change the nodes.

    Raises:
        RecursionError: the text is nested too deeply. The nesting is checked before the text is
            parsed, because the parser is slow.
    """
    depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if depth > DEPTH_MAX:
            raise RecursionError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it
        node: Node | None = YAML(typ="safe", pure=True).compose(text)
    return node


class _Reader:
    """Builds plain data from YAML nodes, and records the line of each value."""

    def __init__(self, label: str) -> None:
        self.yaml = YAML(typ="safe", pure=True)
        self.origins: dict[Path, str] = {}
        self._label = label
        self._read = 0

    def read(self, node: Node, path: Path, above: tuple[Node, ...] = ()) -> Any:
        """The data of a node at a path; `above` are the nodes that enclose the node."""
        self._read += 1
        if self._read > VALUES_MAX:
            raise ConfigError(
                f"{self._label} has more than {VALUES_MAX:,} values, including aliases; expected "
                "fewer values; remove the aliases"
            )
        if node in above:
            raise ConfigError(
                f"{self._place(node)}: {_dotted(path)} refers to a value that contains this key; "
                "expected plain values; remove the alias"
            )
        if path:
            self.origins.setdefault(path, self._place(node))
        if node.tag not in _PLAIN:
            raise ConfigError(
                f"{self._place(node)}: the value in {_dotted(path)} has the tag {_tag(node)}; "
                "expected a plain value; remove the tag"
            )
        above = (*above, node)
        if isinstance(node, MappingNode):
            return self._read_map(node, path, above)
        if isinstance(node, SequenceNode):
            return [self.read(item, (*path, i), above) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _read_map(self, node: Node, path: Path, above: tuple[Node, ...]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key, place = self._key(key_node, path), self._place(key_node)
            below = (*path, key)
            if key in found:
                raise ConfigError(
                    f"{place}: {_dotted(below)} is given twice, first in "
                    f"{self.origins[below]}; expected each key once; remove one"
                )
            self.origins[below] = place
            found[key] = self.read(value_node, below, above)
        return found

    def _key(self, node: Node, path: Path) -> int | str:
        is_plain = isinstance(node, ScalarNode) and node.tag in _PLAIN
        key = self._scalar(node, path) if is_plain else None
        if isinstance(key, bool) or not isinstance(key, int | str):
            given = f'"{node.value}"' if isinstance(node, ScalarNode) else "a list or map"
            raise ConfigError(
                f"{self._place(node)}: {given} is used as a key in {_dotted(path)}; "
                "expected a name before the colon; correct it"
            )
        return key

    def _scalar(self, node: Node, path: Path) -> Any:
        if node.tag in _TEXTS:
            return self._text(node, path)
        try:
            return self.yaml.constructor.construct_object(node)
        except (KeyError, ValueError):
            raise ConfigError(
                f"{self._place(node)}: the value in {_dotted(path)} cannot be read as "
                f"{_tag(node)[2:]}; expected a plain value; correct it"
            ) from None

    def _text(self, node: Node, path: Path) -> str:
        text = str(node.value)
        half = next((each for each in text if "\ud800" <= each <= "\udfff"), None)
        if half is None:
            return text
        raise ConfigError(
            f"{self._place(node)}: {_dotted(path)} has the surrogate U+{ord(half):04X}, "
            "which cannot be written to files; expected text; correct it"
        )

    def _place(self, node: Node) -> str:
        return f"{self._label}, line {node.start_mark.line + 1}"


def _tag(node: Node) -> str:
    return str(node.tag).replace(_STANDARD, "!!")


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path) or "the file"


def _trouble(error: Exception) -> str:
    """The position and the problem of a parse error, to append to the name of the file or
    option.
    """
    if isinstance(error, RecursionError):
        return ": it is nested too deeply"
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        what = error.problem or "it cannot be read"
        return f", line {mark.line + 1}, column {mark.column + 1}: {what}"
    reason = str(error).splitlines()
    return f": {reason[0] if reason else 'it cannot be read'}"


def kind_of(value: Any) -> str:
    """A noun phrase for the type of a value, for authors of YAML."""
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
