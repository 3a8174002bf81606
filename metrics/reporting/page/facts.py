"""Environment and configuration of a run, in groups with headings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from metrics.reporting.summary import RunSummary
from metrics.units import UNKNOWN, format_volume

_GROUPS = {
    "broker.config": "Properties of the brokers that differ from Kafka's defaults",
    "topic.config": "Properties of the topics",
    "broker": "Brokers",
    "controller": "Controllers",
    "cluster": "Cluster",
    "driver": "Driver",
    "spark": "Driver",
    "python": "Driver",
    "redline": "Driver",
    "package": "Packages",
    "series": "Series of the exporters",
}


_FILES = ("cluster", "workload", "goal")


@dataclass(frozen=True)
class FactGroup:
    """Facts under one heading, as (name, value)."""

    title: str
    facts: tuple[tuple[str, str], ...]


def key_facts(
    summary: RunSummary, configuration: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, str], ...]:
    """The most important facts about a run, as (name, value)."""
    known, workload = summary.environment, configuration.get("workload", {})
    memory = known.get("broker.memory_bytes", "")
    heap = known.get("broker.jvm.heap_max_bytes", "")
    java = " ".join(part for part in (known.get("broker.jvm.name"), _java(known)) if part)
    sizes = (("of memory", memory), ("of heap", heap))
    machine = [f"{known['broker.cores']} cores"] if "broker.cores" in known else []
    machine += [f"{format_volume(int(size))} {what}" for what, size in sizes if size.isdigit()]
    facts = (
        ("Brokers", str(summary.brokers or UNKNOWN)),
        ("Kafka", known.get("broker.version", "")),
        ("Each broker", ", ".join(machine)),
        ("Java", java),
        ("Producers", _producer(workload)),
        ("Replicas", f"{summary.replication_factor or ''}"),
        ("Consumer groups", f"{summary.consumer_groups}"),
        ("kafka-redline", _version(known)),
    )
    return tuple((name, value) for name, value in facts if value)


def environment_of(environment: Mapping[str, str]) -> tuple[FactGroup, ...]:
    """All facts of the environment, in groups."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, value in environment.items():
        found.setdefault(_title(name), []).append((name, value))
    order = [*dict.fromkeys(_GROUPS.values()), "More"]
    return tuple(FactGroup(title, tuple(sorted(found[title]))) for title in order if title in found)


def configuration_of(configuration: Mapping[str, Mapping[str, Any]]) -> tuple[FactGroup, ...]:
    """All keys of the configuration, a group for each file."""
    return tuple(
        FactGroup(
            kind.capitalize() if kind in _FILES else kind,
            tuple((key, _text(value)) for key, value in sorted(keys.items())),
        )
        for kind, keys in configuration.items()
    )


def seconds_between(started_at: str, finished_at: str) -> float | None:
    """Time between two moments in ISO 8601 [s]; None if one of them is not known."""
    try:
        began, ended = (_moment(text) for text in (started_at, finished_at))
    except ValueError:
        return None
    return (ended - began).total_seconds()


def _moment(text: str) -> datetime:
    # Python 3.10 cannot parse the Z.
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _title(name: str) -> str:
    prefixes: Iterable[str] = sorted(_GROUPS, key=len, reverse=True)
    # A fact that differs between nodes has the node's number after its kind.
    parts = [part for part in name.split(".") if not part.isdigit()]
    plain = ".".join(parts)
    return next((_GROUPS[each] for each in prefixes if plain.startswith(f"{each}.")), "More")


def _producer(workload: Mapping[str, Any]) -> str:
    names = (("acks", "acks"), ("compression", "compression"), ("client", "client"))
    return ", ".join(
        f"{word} {workload[f'producer.{key}']}"
        for key, word in names
        if f"producer.{key}" in workload
    )


def _java(known: Mapping[str, str]) -> str:
    return known.get("broker.jvm.version", "")


def _version(known: Mapping[str, str]) -> str:
    version, commit = known.get("redline.version", ""), known.get("redline.commit", "")
    return f"{version} ({commit})" if commit else version


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
