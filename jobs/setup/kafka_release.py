"""The Kafka releases that the testbed can start, and where each keeps a cluster's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from metrics.common.bounds import Text, UnexpectedError
from metrics.common.errors import ConfigError

DEFAULT_RELEASE = "4.1.2"

RELEASE = Text(
    r"(2\.([89]|\d\d)|[3-9]\.\d+|[1-9]\d\.\d+)\.\d+",
    f'a Kafka version from 2.8.0 on, in quotes, such as "{DEFAULT_RELEASE}"',
)

Metadata = Literal["zookeeper", "kraft", "combined"]
"""Where a cluster's metadata are: in ZooKeeper, in KRaft controllers of their own, or in brokers
that are KRaft controllers, too."""

_KRAFT_SINCE = (3, 3)
"""The first release whose KRaft mode is ready for production (KIP-833)."""
_KRAFT_ONLY_SINCE = (4, 0)
_KRAFT_BY_DEFAULT_SINCE = (3, 9)


def as_broker_releases(value: Any) -> Any:
    """Broker id → its release, also from a text such as `1: 3.9.2, 3: 4.1.2`."""
    given = value
    if isinstance(value, str):
        pairs = [part.partition(":") for part in value.strip(" {}").split(",")]
        given = {key.strip(): release.strip() for key, _, release in pairs}
    expected = "a map of broker ids to releases of Kafka, such as {3: 4.1.2}"
    if not isinstance(given, Mapping) or not all(map(RELEASE.accepts, given.values())):
        raise UnexpectedError(expected)
    try:
        return {int(broker_id): release for broker_id, release in given.items()}
    except (TypeError, ValueError):
        raise UnexpectedError(expected) from None


def minor_of(release: str) -> tuple[int, int]:
    """Major and minor number of a release such as `3.9.2`."""
    major, minor, _ = release.split(".", 2)
    return int(major), int(minor)


def metadata_of(release: str, chosen: Metadata | None) -> Metadata:
    """Where brokers of this release keep the metadata.

    Args:
        release: a release that `RELEASE` accepts.
        chosen: the user's choice; by default ZooKeeper before 3.9, as most clusters of those
            releases have it, and KRaft controllers of their own from 3.9 on.

    Raises:
        ConfigError: the release cannot do what was chosen.
    """
    minor = minor_of(release)
    if chosen is None:
        return "kraft" if minor >= _KRAFT_BY_DEFAULT_SINCE else "zookeeper"
    if chosen == "zookeeper" and minor >= _KRAFT_ONLY_SINCE:
        raise ConfigError(
            f"metadata is zookeeper and kafka_version {release}, which has no ZooKeeper mode; "
            "expected kraft or combined from 4.0 on; choose one of them, or a release before 4.0"
        )
    if chosen != "zookeeper" and minor < _KRAFT_SINCE:
        raise ConfigError(
            f"metadata is {chosen} and kafka_version {release}, whose KRaft mode is a preview; "
            "expected zookeeper before 3.3; choose it, or a release from 3.3 on"
        )
    return chosen
