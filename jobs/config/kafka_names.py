"""Kafka's own names of properties, such as `linger.ms`, as names of keys. Pure."""

from __future__ import annotations

from typing import Any

from jobs.config.overrides import Override
from jobs.config.source import ParsedFile
from metrics.common.errors import ConfigError

SECTIONS = ("producer", "consumers")
"""The sections of a workload whose keys are properties of Kafka's clients."""
_OTHERWISE = {
    "max_in_flight_requests_per_connection": "max_in_flight",
    "compression_type": "compression",
}
"""Kafka's names with underscores → keys that have another name here."""


def own_name(key: str) -> str:
    """The key for a name that may be Kafka's: `compression.type` → `compression`."""
    name = key.replace(".", "_")
    return _OTHERWISE.get(name, name)


def with_own_names(source: ParsedFile) -> None:
    """Rename properties with Kafka's names in a workload's file to keys.

    Raises:
        ConfigError: a key is given by both of its names.
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
                f"{place}: {'.'.join(path)}.{key} is given a second time, first as {name} in "
                f"{source.origin(renamed)}; expected it once; remove one of them"
            )
        given[name] = given.pop(key)
        source.origins[renamed] = place


def option_with_own_name(override: Override) -> Override:
    """The option with Kafka's property name replaced by the key; its dots are part of the path."""
    depth = 2 if override.keys[0] == "mix" else 0  # below the name of a part
    above, (section, *rest) = override.keys[:depth], override.keys[depth:] or ("",)
    if section not in SECTIONS or not rest:
        return override
    return Override(override.file, (*above, section, own_name(".".join(rest))), override.value)
