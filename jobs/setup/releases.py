"""The Kafka releases that the testbed can start, and where each keeps a cluster's metadata.

The supported releases of Spark, and the releases of Delta that belong to each.

Delta's jars fit only the Spark for which they were built, and their Maven names changed twice, so
this table is the only place that pairs them.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jobs.setup.ivy import Coordinate, spark_jar
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


def metadata_of(release: str, chosen: Metadata | None) -> Metadata:
    """Where brokers of this release keep the metadata.

    Args:
        release: a release that `RELEASE` accepts.
        chosen: the user's choice; by default ZooKeeper before 3.9, as most clusters of those
            releases have it, and KRaft controllers of their own from 3.9 on.

    Raises:
        ConfigError: the release cannot do what was chosen.
    """
    minor = _minor_of(release)
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


DELTA_PACKAGE = "delta-spark"
"""Delta's name on the package index; its Maven name depends on Spark, Scala and Delta."""
_NAMED_BY_SPARK_SINCE = (4, 1)
"""The first Delta whose Maven name contains the release of Spark."""
_CORE = "spark-core_*"
_CORE_JAR = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<spark>\d.*)\.jar")


@dataclass(frozen=True)
class SparkPair:
    """A supported release of Spark, and the releases of Delta that fit it.

    Attributes:
        spark: major and minor number of Spark.
        scala: versions of Scala for which this Spark and its Delta have jars.
        delta: the release of Delta that is tested, and used where none is installed.
        delta_since: the first release of Delta for this Spark.
        delta_before: the first release of Delta that no longer supports it.
    """

    spark: str
    scala: tuple[str, ...]
    delta: str
    delta_since: tuple[int, int]
    delta_before: tuple[int, int]

    def __str__(self) -> str:
        """The pair for people: releases of Spark, Delta and Scala."""
        return f"Spark {self.spark} (Delta {self.delta}, Scala {' or '.join(self.scala)})"

    def accepts_delta(self, delta: str) -> bool:
        """Whether a release of Delta has jars for this Spark."""
        return self.delta_since <= _minor_of(delta) < self.delta_before

    def artifact(self, scala: str, delta: str | None = None) -> Coordinate:
        """The Maven artifact of Delta.

        Args:
            delta: a release that `accepts_delta`; the tested one by default.
        """
        release = delta or self.delta
        is_named = _minor_of(release) >= _NAMED_BY_SPARK_SINCE
        name = f"{DELTA_PACKAGE}_{self.spark}_{scala}" if is_named else f"{DELTA_PACKAGE}_{scala}"
        return Coordinate("io.delta", name, release)

    @property
    def packages(self) -> str:
        """The packages of the pair, as arguments of pip."""
        return f"'pyspark=={self.spark}.*' '{DELTA_PACKAGE}=={self.delta}'"


PAIRS = (
    SparkPair("3.5", ("2.12", "2.13"), "3.3.2", (3, 0), (4, 0)),
    SparkPair("4.0", ("2.13",), "4.0.0", (4, 0), (5, 0)),
    SparkPair("4.1", ("2.13",), "4.4.0", (4, 1), (5, 0)),
)
"""All supported pairs, the oldest first; docs/deploy/README.md says how each was tested."""


@dataclass(frozen=True)
class SparkBuild:
    """The release of a Spark, and the Scala for which its jars were built."""

    spark: str
    scala: str


def require_pair(spark: str, scala: str | None = None, delta: str | None = None) -> SparkPair:
    """The pair of a release of Spark.

    Args:
        spark: version of Spark, such as `3.5.7` or a platform's `3.5.2-amzn-1`.
        scala: version of Scala, such as `2.12`; None where it is not known.
        delta: version of Delta; None where the pair's own is used.

    Raises:
        ConfigError: the combination is not supported; the message lists all that are.
    """
    pair = next((each for each in PAIRS if _minor_of(spark) == _minor_of(each.spark)), None)
    given = f"Spark {spark}"
    if pair is not None and scala is not None and scala not in pair.scala:
        given = f"Spark {spark} for Scala {scala}"
    elif pair is not None and delta is not None and not pair.accepts_delta(delta):
        given = f"Spark {spark} with Delta {delta}"
    elif pair is not None:
        return pair
    newest = pair or PAIRS[-1]
    *others, last = map(str, PAIRS)
    raise ConfigError(
        f"{given} is not supported; expected {', '.join(others)}, or {last}; use one of these, "
        f"such as by pip install {newest.packages}, or a runtime of the platform that has it"
    )


def installed_spark() -> SparkBuild:
    """The Spark whose jars this process would start, found without importing Spark.

    Raises:
        ConfigError: neither the pip package nor SPARK_HOME has Spark's jars.
    """
    jar = spark_jar(_CORE).name
    parts = _CORE_JAR.fullmatch(jar)
    if parts is None:
        raise ConfigError(
            f"Spark's jar is named {jar}; expected a name such as spark-core_2.13-4.1.4.jar; "
            "install Spark's own release"
        )
    return SparkBuild(parts["spark"], parts["scala"])


def installed_delta() -> str | None:
    """The version of the installed package delta-spark; None without it."""
    try:
        return importlib.metadata.version(DELTA_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


def _minor_of(version: str) -> tuple[int, int]:
    """Major and minor number of a version; (0, 0) for a text that is none."""
    parts = re.match(r"(\d+)\.(\d+)", version)
    return (int(parts[1]), int(parts[2])) if parts else (0, 0)
