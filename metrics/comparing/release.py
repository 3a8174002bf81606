"""The release of a cluster and the place of its metadata, from the facts of an environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

ZOOKEEPER = "ZooKeeper"
KRAFT = "KRaft"
COMBINED = "KRaft controllers in brokers"

_OF_BROKERS = r"broker\.(?:\d+\.)?"
_VERSION = re.compile(rf"{_OF_BROKERS}version")
_ROLES = re.compile(rf"{_OF_BROKERS}config\.process\.roles")
_ZOOKEEPER = re.compile(rf"{_OF_BROKERS}config\.zookeeper\.connect")
_KRAFT_FEATURE = "cluster.metadata.version"
"""A feature that only clusters with KRaft have."""


@dataclass(frozen=True)
class Release:
    """The release of a cluster's brokers.

    Attributes:
        versions: all versions of its brokers, oldest first; empty where they are unknown.
        metadata: the place of its metadata in words; empty where it is unknown.
    """

    versions: tuple[str, ...]
    metadata: str

    @property
    def text(self) -> str:
        """The release in words, such as `Kafka 3.6.2 with ZooKeeper`; empty if unknown."""
        place = f"with {self.metadata}" if self.metadata else ""
        known = [" and ".join(self.versions), place]
        return " ".join(["Kafka", *filter(None, known)]) if any(known) else ""


def release_of(environment: Mapping[str, str]) -> Release:
    """The release that an environment states."""
    versions = {value for name, value in environment.items() if _VERSION.fullmatch(name)}
    return Release(tuple(sorted(versions, key=_numbers)), " and ".join(_places(environment)))


def changed_release(before: Release, after: Release) -> tuple[str, str] | None:
    """The words of two releases that differ; None where nothing that both state differs.

    The place of the metadata is left out where it is the same, or unknown on either side.
    """
    if not (before.metadata and after.metadata) or before.metadata == after.metadata:
        before, after = replace(before, metadata=""), replace(after, metadata="")
    if not (before.versions and after.versions):
        before, after = replace(before, versions=()), replace(after, versions=())
    return None if before == after else (before.text, after.text)


def _places(environment: Mapping[str, str]) -> list[str]:
    """The places of the metadata; two during a migration."""
    roles = [value for name, value in environment.items() if _ROLES.fullmatch(name)]
    found = [ZOOKEEPER] if any(map(_ZOOKEEPER.fullmatch, environment)) else []
    if any("controller" in each for each in roles):
        found.append(COMBINED)
    elif roles or (not found and _KRAFT_FEATURE in environment):
        found.append(KRAFT)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
