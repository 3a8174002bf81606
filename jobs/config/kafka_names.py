"""Kafka's own names of properties, taken for ours: `linger.ms`, `compression.type`. Pure."""

from __future__ import annotations

from jobs.config.overrides import Override
from jobs.config.source import ParsedFile
from metrics.common.errors import ConfigError

SECTIONS = ("producer", "consumers")
"""Parts of a workload whose keys are properties of Kafka's clients."""
_OTHERWISE = {
    "max_in_flight_requests_per_connection": "max_in_flight",
    "compression_type": "compression",
}
"""What we call otherwise than Kafka does, but for dots and underscores."""


def own_name(key: str) -> str:
    """Our name of a key that may be Kafka's: `compression.type` → `compression`."""
    name = key.replace(".", "_")
    return _OTHERWISE.get(name, name)


def with_own_names(source: ParsedFile) -> None:
    """Name the properties in a workload's file as we do.

    Raises:
        ConfigError: one is given by both of its names.
    """
    for section in SECTIONS:
        given = source.data.get(section)
        if not isinstance(given, dict):
            continue
        for key in [key for key in given if isinstance(key, str) and own_name(key) != key]:
            name, place = own_name(key), source.origin((section, key))
            if name in given:
                raise ConfigError(
                    f"{place}: {section}.{key} is given a second time, first as {name} in "
                    f"{source.origin((section, name))}; expected it once; remove one of them"
                )
            given[name] = given.pop(key)
            source.origins[section, name] = place


def option_with_own_name(override: Override) -> Override:
    """An option for one of these sections, whose path goes on in the property's own dots."""
    section, *rest = override.keys
    if section not in SECTIONS or not rest:
        return override
    return Override(override.file, (section, own_name(".".join(rest))), override.value)
