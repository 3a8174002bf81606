"""YAML text as plain data that remembers where each value stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from search.errors import ConfigError

Path = tuple[Any, ...]
"""Keys and list positions from the top of a file to a value."""


class _CoreLoader(yaml.SafeLoader):
    """YAML 1.2's scalars: `1e6` is a number, `on` and `12:30` are text."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - as PyYAML declares it


_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(null|~)?$"), None)
_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"true$|false$"), None)
_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?[0-9]+$"), None)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$"),
    None,
)


def _construct_int(_: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(node.value)  # YAML 1.1 would read 010 as 8


_CoreLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)


@dataclass
class Source:
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


class _Reader:
    """Builds plain data from nodes, notes lines, and refuses keys that are given twice."""

    def __init__(self, label: str, loader: _CoreLoader) -> None:
        self.label = label
        self.loader = loader
        self.origins: dict[Path, str] = {}

    def read(self, node: yaml.Node, path: Path, above: tuple[yaml.Node, ...] = ()) -> Any:
        if node in above:
            raise ConfigError(
                f"{self._place(node)}: {_dotted(path)} refers to what it is a part of; "
                "expected plain values; remove the alias"
            )
        if path:
            self.origins.setdefault(path, self._place(node))
        above = (*above, node)
        if isinstance(node, yaml.MappingNode):
            return self._read_map(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, i), above) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _read_map(
        self, node: yaml.MappingNode, path: Path, above: tuple[yaml.Node, ...]
    ) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key, place = self._key(key_node, path), self._place(key_node)
            below = (*path, key)
            if key in result:
                raise ConfigError(
                    f"{place}: {_dotted(below)} is given a second time, first in "
                    f"{self.origins[below]}; expected each key once; remove one of them"
                )
            self.origins[below] = place
            result[key] = self.read(value_node, below, above)
        return result

    def _key(self, node: yaml.Node, path: Path) -> int | str:
        key = self._scalar(node, path) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(key, bool) or not isinstance(key, (int, str)):
            given = f'"{node.value}"' if isinstance(node, yaml.ScalarNode) else "a list or map"
            raise ConfigError(
                f"{self._place(node)}: {given} stands for a key in {_dotted(path)}; "
                "expected a name before the colon; correct it"
            )
        return key

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        try:
            return self.loader.construct_object(node)
        except ValueError:
            raise ConfigError(
                f"{self._place(node)}: the value in {_dotted(path)} is not of the type that its "
                "tag says; expected a plain value; remove the tag"
            ) from None

    def _place(self, node: yaml.Node) -> str:
        return f"{self.label}, line {node.start_mark.line + 1}"


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path) or "the file"


def parse_map(text: str, label: str) -> Source:
    """Parse a file that holds one map.

    Args:
        text: YAML.
        label: the file as a user knows it, for messages.

    Raises:
        ConfigError: when it is malformed, empty, no map, or gives a key twice.
    """
    try:
        loader = _CoreLoader(text)
        try:
            node = loader.get_single_node()
            if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
                raise ConfigError(
                    f"{label} is empty; expected keys and values; "
                    "copy one of the files that come with the project and change it"
                )
            reader = _Reader(label, loader)
            data = reader.read(node, ())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(f"{label}{_trouble(error)}; expected YAML; correct it there") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{label} holds {kind_of(data)}; expected keys and values such as `name: value`; "
            "write it as a map"
        )
    return Source(label, data, reader.origins)


def parse_value(text: str, label: str) -> Any:
    """Parse the value of an option as YAML; `label` names the option in messages.

    Raises:
        ConfigError: when it is malformed.
    """
    try:
        loader = _CoreLoader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _Reader(label, loader).read(node, ())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{label}: the value is malformed{_trouble(error)}; expected YAML such as 10, all "
            "or [1, 2]; correct it, and quote it for the shell"
        ) from None


def _trouble(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
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
