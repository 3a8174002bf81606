"""`--set key.path=value`: one key replaced from the command line."""

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
    """One parsed option: the file it speaks of, the keys below it, and the value."""

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
        ConfigError: when the form is wrong or the first part names none of the files.
    """
    path, equals, value = text.partition("=")
    parts = tuple(part.strip() for part in path.split("."))
    if not equals or len(parts) < 2 or not all(parts):
        raise ConfigError(
            f"--set {path} has another form than key.path=value; expected for example "
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
    """The value of an option; what is wrong with that of a secret's key is not repeated."""
    try:
        return parse_value(text, f"--set {path}")
    except ConfigError:
        if not any(may_be_secret((part,)) for part in parts):
            raise
    raise ConfigError(
        f"--set {path}: the value is malformed; expected a reference such as env:NAME or "
        "file:PATH, as no secret is written into an option; correct it"
    )


def parse_overrides(texts: Sequence[str]) -> tuple[Override, ...]:
    """Parse all `--set` options, those for other files too, so that no typo goes unseen.

    Raises:
        ConfigError: see `parse_override`.
    """
    return tuple(parse_override(text) for text in texts)


def apply_overrides(source: ParsedFile, model: Model, overrides: Sequence[Override]) -> None:
    """Put the values of `overrides`, which all speak of this file, into `source`.

    Below a map with free keys the rest of the path is one key, as Kafka's property names
    have dots themselves. A later option for the same key wins.

    Raises:
        ConfigError: when the path goes through a value that has no keys.
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
                    f"{override.option} looks for a key inside {path}, which is "
                    f"{kind_of(place[key])}; expected the path of one key; correct it"
                )
            place = place[key]
        _replace(place, keys[-1], override.value)
        for known in [known for known in source.origins if known[: len(keys)] == keys]:
            del source.origins[known]
        source.origins[keys] = override.option


def _replace(place: dict[Any, Any], key: str, value: Any) -> None:
    """Set `key`, which a file may have written as a number, such as a broker id."""
    number = int(key) if key.isdecimal() else key
    place[number if number in place else key] = value


def _joined(model: Model, keys: tuple[str, ...]) -> tuple[str, ...]:
    for depth in range(1, len(keys) - 1):
        if holds_free_keys(model, keys[:depth]):
            return (*keys[:depth], ".".join(keys[depth:]))
    return keys
