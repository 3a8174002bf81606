"""The option `--set key.path=value`, which replaces one key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.config.fields import Model, holds_free_keys, nearest
from jobs.config.problems import may_be_secret
from jobs.config.source import ParsedFile, kind_of, parse_value
from metrics.common.errors import ConfigError

FILES = ("cluster", "workload", "goal")


@dataclass(frozen=True)
class Override:
    """One parsed option: its file, the keys below it, and the value."""

    file: str
    keys: tuple[str, ...]
    value: Any

    @property
    def option(self) -> str:
        """The option without its value, which may be a secret written by mistake."""
        return f"--set {'.'.join((self.file, *self.keys))}"


def parse_override(text: str) -> Override:
    """Parse `file.key=value`; the value is YAML.

    Raises:
        ConfigError: the form is wrong, or the first part names none of the files.
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
        meant = f"; did you mean {close}?" if close else ";"
        raise ConfigError(
            f"--set {path} begins with {parts[0]}{meant} expected cluster, workload or goal, "
            "the file whose key it replaces"
        )
    return Override(parts[0], parts[1:], _value(value, path, parts))


def _value(text: str, path: str, parts: tuple[str, ...]) -> Any:
    """The value of an option; an error in the value of a secret's key does not quote it."""
    try:
        return parse_value(text, f"--set {path}")
    except ConfigError:
        if not any(may_be_secret((part,)) for part in parts):
            raise
    raise ConfigError(
        f"--set {path}: the value is malformed; expected a reference such as env:NAME or "
        "file:PATH, as an option must not contain a secret; correct it"
    )


def parse_overrides(texts: Sequence[str]) -> tuple[Override, ...]:
    """Parse all `--set` options, including those for other files, so that every typo is an error.

    Raises:
        ConfigError: see `parse_override`.
    """
    return tuple(parse_override(text) for text in texts)


def apply_overrides(source: ParsedFile, model: Model, overrides: Sequence[Override]) -> None:
    """Put the values of `overrides`, which are all for this file, into `source`.

    Below a map with free keys the rest of the path is one key, as Kafka's property names
    contain dots. The last option for a key takes effect.

    Raises:
        ConfigError: the path leads through a value that has no keys.
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
        _replace(place, keys[-1], override.value)
        for known in [known for known in source.origins if known[: len(keys)] == keys]:
            del source.origins[known]
        source.origins[keys] = override.option


def _replace(place: dict[Any, Any], key: str, value: Any) -> None:
    """Set `key`, which may be a number in the file, such as a broker id."""
    number = int(key) if key.isdecimal() else key
    place[number if number in place else key] = value


def _joined(model: Model, keys: tuple[str, ...]) -> tuple[str, ...]:
    for depth in range(1, len(keys) - 1):
        if holds_free_keys(model, keys[:depth]):
            return (*keys[:depth], ".".join(keys[depth:]))
    return keys
