"""The option `--set key.path=value`, which replaces the value of one key.

The module also accepts Kafka's names of properties, such as `linger.ms`, as names of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.config.base import Model, has_free_keys, nearest
from jobs.config.problems import may_be_secret
from jobs.config.yaml_file import ParsedFile, kind_of, parse_value
from metrics.common.errors import ConfigError

FILES = ("cluster", "workload", "goal")


@dataclass(frozen=True)
class Override:
    """One parsed option: the file, the path of the key in the file, and the value."""

    file: str
    keys: tuple[str, ...]
    value: Any

    @property
    def option(self) -> str:
        """The option without its value, because the value may be a secret by mistake."""
        return f"--set {'.'.join((self.file, *self.keys))}"


def parse_override(text: str) -> Override:
    """Parse `file.key=value`; the value is YAML.

    Raises:
        ConfigError: the form is wrong, or the first part is not cluster, workload or goal.
    """
    path, equals, value = text.partition("=")
    parts = tuple(part.strip() for part in path.split("."))
    if not equals or len(parts) < 2 or not all(parts):
        raise ConfigError(
            f"--set {path} does not have the form key.path=value; expected for example "
            "--set workload.producer.linger_ms=10; correct it"
        )
    if parts[0] not in FILES:
        close = nearest(parts[0], FILES)
        meant = f"; the nearest is {close}" if close else ""
        raise ConfigError(
            f"--set {path} begins with {parts[0]}; expected the file with the key: cluster, "
            f"workload or goal{meant}; correct it"
        )
    return Override(parts[0], parts[1:], _value(value, path, parts))


def _value(text: str, path: str, parts: tuple[str, ...]) -> Any:
    """The value of an option; if the key may have a secret, an error does not quote the value."""
    try:
        return parse_value(text, f"--set {path}")
    except ConfigError:
        if not any(may_be_secret((part,)) for part in parts):
            raise
    raise ConfigError(
        f"--set {path}: the value is malformed; expected a reference such as env:NAME or "
        "file:PATH, because an option must not contain a secret; correct it"
    )


def apply_overrides(source: ParsedFile, model: Model, overrides: Sequence[Override]) -> None:
    """Write the values of `overrides` into the parsed file `source`. The caller passes only
    overrides for this file.

    In a map whose keys the user chooses, such as `topic.config`, the rest of an option's path is
    one key, because names of Kafka's properties contain dots. If several options set a key, the
    last option takes effect.

    Raises:
        ConfigError: the path goes through a value that is not a map.
    """
    for override in overrides:
        keys = _joined(model, override.keys)
        place = source.data
        for depth, key in enumerate(keys[:-1]):
            if place.get(key) is None:
                place[key] = {}
            elif not isinstance(place[key], dict):
                path = ".".join((override.file, *keys[: depth + 1]))
                raise ConfigError(
                    f"{override.option} names a key inside {path}, which is "
                    f"{kind_of(place[key])}; expected the path of one key; correct it"
                )
            place = place[key]
        # A key of the file may be a number, such as a broker id.
        number = int(keys[-1]) if keys[-1].isdecimal() else keys[-1]
        place[number if number in place else keys[-1]] = override.value
        for known in [known for known in source.origins if known[: len(keys)] == keys]:
            del source.origins[known]
        source.origins[keys] = override.option


def _joined(model: Model, keys: tuple[str, ...]) -> tuple[str, ...]:
    for depth in range(1, len(keys) - 1):
        if has_free_keys(model, keys[:depth]):
            return (*keys[:depth], ".".join(keys[depth:]))
    return keys


SECTIONS = ("producer", "consumers")
"""The sections of a workload whose keys are properties of Kafka's clients."""
_OTHER_NAMES = {
    "max_in_flight_requests_per_connection": "max_in_flight",
    "compression_type": "compression",
}
"""Name of a Kafka property, written with underscores → key for the property. Only properties whose
key differs from this name are in the map.
"""


def own_name(key: str) -> str:
    """The key with this name, or with this property name of Kafka: `compression.type` →
    `compression`.
    """
    name = key.replace(".", "_")
    return _OTHER_NAMES.get(name, name)


def with_own_names(source: ParsedFile) -> None:
    """Replace Kafka's property names in a workload's file by the names of keys.

    Raises:
        ConfigError: the file sets a key twice, by the key's name and by Kafka's property name.
    """
    parts = source.data.get("mix")
    named = parts.items() if isinstance(parts, dict) else ()
    for path, data in [((), source.data), *((("mix", name), part) for name, part in named)]:
        for section in SECTIONS if isinstance(data, dict) else ():
            _rename(source, (*path, section), data.get(section))


def _rename(source: ParsedFile, path: tuple[str, ...], given: Any) -> None:
    """Rename the keys of one section."""
    if not isinstance(given, dict):
        return
    for key in [key for key in given if isinstance(key, str) and own_name(key) != key]:
        name, place = own_name(key), source.origin((*path, key))
        renamed = (*path, name)
        if name in given:
            raise ConfigError(
                f"{place}: {'.'.join(path)}.{key} is given twice, first as {name} in "
                f"{source.origin(renamed)}; expected it once; remove one"
            )
        given[name] = given.pop(key)
        source.origins[renamed] = place


def option_with_own_name(override: Override) -> Override:
    """The option. If the option contains a property name of Kafka, such as `linger.ms`, the key's
    name replaces the property name.
    """
    depth = 2 if override.keys[0] == "mix" else 0  # below the name of a part
    above, (section, *rest) = override.keys[:depth], override.keys[depth:] or ("",)
    if section not in SECTIONS or not rest:
        return override
    return Override(override.file, (*above, section, own_name(".".join(rest))), override.value)
