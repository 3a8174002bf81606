"""Supported releases: Kafka for the testbed, Spark, and the releases of Delta for each Spark.

Delta's jars work only with the Spark for which they were built, and their Maven names have changed
twice. The table in this module is therefore the only place that pairs Spark and Delta. The module
also knows where each Kafka release stores the metadata of a cluster.
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
    f'a Kafka version, 2.8.0 or later, in quotes, such as "{DEFAULT_RELEASE}"',
)

Metadata = Literal["zookeeper", "kraft", "combined"]
"""Place of a cluster's metadata: ZooKeeper, dedicated KRaft controllers ("kraft"), or brokers that
are also KRaft controllers ("combined")."""

_KRAFT_SINCE = (3, 3)
"""The first release whose KRaft mode is ready for production (KIP-833)."""
_KRAFT_ONLY_SINCE = (4, 0)
_KRAFT_BY_DEFAULT_SINCE = (3, 9)


def as_broker_releases(value: Any) -> Any:
    """The map of broker ids to releases of Kafka. `value` is this map, or a text that describes it.

    An example of a text is `1: 3.9.2, 3: 4.1.2`.
    """
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
    """The place where brokers of this release store the metadata.

    Args:
        release: a release that `RELEASE` accepts.
        chosen: the user's choice; None for the default. The default before Kafka 3.9 is ZooKeeper,
            which most clusters with such releases use. From Kafka 3.9 on, the default is separate
            KRaft controllers.

    Raises:
        ConfigError: the release does not support the chosen place of the metadata.
    """
    minor = _minor_of(release)
    if chosen is None:
        return "kraft" if minor >= _KRAFT_BY_DEFAULT_SINCE else "zookeeper"
    if chosen == "zookeeper" and minor >= _KRAFT_ONLY_SINCE:
        raise ConfigError(
            f"metadata is zookeeper, and kafka_version {release} has no ZooKeeper mode; expected "
            "kraft or combined from 4.0 on; choose one of them, or a release before 4.0"
        )
    if chosen != "zookeeper" and minor < _KRAFT_SINCE:
        raise ConfigError(
            f"metadata is {chosen}, and the KRaft mode of kafka_version {release} is a preview; "
            "expected zookeeper before 3.3; choose zookeeper, or a release from 3.3 on"
        )
    return chosen


DELTA_PACKAGE = "delta-spark"
"""Delta's name on the package index. Delta's Maven name depends on the versions of Spark, Scala and
Delta."""
_NAMED_BY_SPARK_SINCE = (4, 1)
"""The first Delta whose Maven name contains the release of Spark."""
_CORE = "spark-core_*"
_CORE_JAR = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<spark>\d.*)\.jar")


@dataclass(frozen=True)
class SparkPair:
    """A supported release of Spark, and the releases of Delta that work with it.

    Attributes:
        spark: major and minor number of Spark.
        scala: versions of Scala for which both this Spark and Delta have jars.
        delta: the tested release of Delta, which is used if none is installed.
        delta_since: the first release of Delta for this Spark.
        delta_before: the first release of Delta that does not support this Spark any more.
    """

    spark: str
    scala: tuple[str, ...]
    delta: str
    delta_since: tuple[int, int]
    delta_before: tuple[int, int]

    def __str__(self) -> str:
        """The pair in messages: releases of Spark, Delta and Scala."""
        return f"Spark {self.spark} (Delta {self.delta}, Scala {' or '.join(self.scala)})"

    def accepts_delta(self, delta: str) -> bool:
        """Whether a release of Delta has jars for this Spark."""
        return self.delta_since <= _minor_of(delta) < self.delta_before

    def artifact(self, scala: str, delta: str | None = None) -> Coordinate:
        """The Maven artifact of Delta for this Spark.

        Args:
            delta: a release that `accepts_delta` accepts; by default the tested release.
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
"""All supported pairs, oldest first. docs/deploy/README.md describes the tests of each pair."""


@dataclass(frozen=True)
class SparkBuild:
    """A release of Spark, and the Scala version of its jars."""

    spark: str
    scala: str


def require_pair(spark: str, scala: str | None = None, delta: str | None = None) -> SparkPair:
    """The pair for a release of Spark.

    Args:
        spark: version of Spark, such as `3.5.7` or a platform's `3.5.2-amzn-1`.
        scala: version of Scala, such as `2.12`; None if it is unknown.
        delta: version of Delta; None to use the tested Delta of the pair.

    Raises:
        ConfigError: the combination is not supported. The error's message lists the supported
            pairs.
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
        f"{given} is not supported; expected {', '.join(others)}, or {last}; install one of them, "
        f"such as with pip install {newest.packages}, or use a platform runtime with one of them"
    )


def installed_spark() -> SparkBuild:
    """The Spark that this process would start, found without an import of Spark.

    Raises:
        ConfigError: neither the pip package nor SPARK_HOME has Spark's jars.
    """
    jar = spark_jar(_CORE).name
    parts = _CORE_JAR.fullmatch(jar)
    if parts is None:
        raise ConfigError(
            f"Spark's jar is named {jar}; expected a name such as spark-core_2.13-4.1.4.jar; "
            "install a release of Apache Spark"
        )
    return SparkBuild(parts["spark"], parts["scala"])


def installed_delta() -> str | None:
    """The version of the installed package delta-spark; None if it is not installed."""
    return installed_version(DELTA_PACKAGE)


def installed_version(package: str) -> str | None:
    """The version of an installed package; None if the package is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _minor_of(version: str) -> tuple[int, int]:
    """Major and minor number of a version; (0, 0) for any other text."""
    parts = re.match(r"(\d+)\.(\d+)", version)
    return (int(parts[1]), int(parts[2])) if parts else (0, 0)
