"""The jars of Delta, Kafka and the exporter: downloaded once, then read from the cache.

`spark.jars.packages` would use the network at every start. `python -m jobs.setup.jars` downloads
the jars of a first run, and of the Kafka versions on its command line.
"""

from __future__ import annotations

import functools
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

from jobs.setup.ivy import Coordinate, NotFoundError, retrieve
from jobs.setup.jar_cache import JarCache
from jobs.setup.kafka_release import DEFAULT_RELEASE, RELEASE
from jobs.setup.places import cache_dir
from jobs.setup.spark_pairs import SparkPair, installed_delta, installed_spark, require_pair
from metrics.common.errors import ConfigError, RedlineError

SCALA = "2.13"
"""Version of Scala of Kafka's jars; Delta's depend on Spark's own."""

LOG4J_VERSION = "2.25.3"
"""Version for a Kafka release without log4j 2 (3.9)."""

EXPORTER_VERSION = "1.0.1"
"""Version of the Prometheus JMX exporter, the newest on Maven Central."""

SPARK_HAS = (
    "com.fasterxml.jackson.core",
    "com.github.luben",
    "org.apache.hadoop",
    "org.apache.logging.log4j",
    "org.apache.parquet",
    "org.roaringbitmap",
    "org.scala-lang",
    "org.slf4j",
)
"""Delta's dependencies that Spark provides; Spark's class loader prefers its own."""


@functools.cache
def delta_jars(spark: str | None = None, scala: str | None = None) -> list[Path]:
    """The jars that a Spark session needs for Delta tables.

    Args:
        spark, scala: versions of the running Spark; by default those of the installed one.

    Raises:
        ConfigError: Spark is not supported, or the jars are not in the cache and could not be
            downloaded.
    """
    if spark is None or scala is None:
        build = installed_spark()
        spark, scala = spark or build.spark, scala or build.scala
    pair = require_pair(spark, scala)
    own = installed_delta()
    wanted = pair.artifact(scala, own if own and pair.accepts_delta(own) else None)
    name = delta_set(pair, scala, wanted.version)
    return _resolve(name, [wanted], excluded=SPARK_HAS)


def delta_set(pair: SparkPair, scala: str, delta: str) -> str:
    """The name of the set with the jars of a release of Delta."""
    name = f"delta-{delta}-spark-{pair.spark}"
    return f"{name}-scala-{scala}" if len(pair.scala) > 1 else name


@functools.cache
def kafka_jars(version: str = DEFAULT_RELEASE) -> list[Path]:
    """The jars of a Kafka broker of this version, with a log4j 2 binding for SLF4J.

    Raises:
        ConfigError: the version does not exist, is older than 2.8, or is not in the cache and
            could not be downloaded.
    """
    wanted = [Coordinate("org.apache.kafka", f"kafka_{SCALA}", _require_release(version))]
    return _kafka(f"kafka-{version}", version, wanted)


@functools.cache
def kafka_tools_jars(version: str = DEFAULT_RELEASE) -> list[Path]:
    """The jars of Kafka's own performance tools; downloaded on demand only.

    Raises:
        ConfigError: see `kafka_jars`.
    """
    wanted = [Coordinate("org.apache.kafka", "kafka-tools", _require_release(version))]
    return _kafka(f"kafka-tools-{version}", version, wanted)


@functools.cache
def exporter_jar(version: str = EXPORTER_VERSION) -> Path:
    """The Prometheus JMX exporter as a Java agent, for the brokers of tests.

    Raises:
        ConfigError: it is not in the cache and could not be downloaded.
    """
    name = "jmx_prometheus_javaagent"
    return _resolve(f"{name}-{version}", [Coordinate("io.prometheus.jmx", name, version)])[0]


def resolve_all(kafka_versions: Sequence[str] = (DEFAULT_RELEASE,)) -> None:
    """Download all jars for `make demo` and `make test` into the cache, in parallel.

    Raises:
        ConfigError: a download failed.
    """
    with ThreadPoolExecutor(max_workers=3) as pool:
        exporter = pool.submit(exporter_jar)
        waiting = [pool.submit(delta_jars)]
        waiting += [pool.submit(kafka_jars, version) for version in kafka_versions]
        for future in waiting:
            future.result()
        exporter.result()


def binding_for(jar_names: Sequence[str]) -> Coordinate | None:
    """The log4j 2 binding for the SLF4J among these jars; None if they contain a binding.

    Without a binding a broker writes no log. SLF4J 1 and 2 need different bindings, and a binding
    works only with log4j of its own version.
    """
    if any(re.match(r"log4j-slf4j2?-impl-|slf4j-reload4j-", name) for name in jar_names):
        return None
    slf4j = _version_among(jar_names, "slf4j-api") or "1"
    log4j = _version_among(jar_names, "log4j-core") or LOG4J_VERSION
    name = "log4j-slf4j-impl" if slf4j.startswith("1") else "log4j-slf4j2-impl"
    return Coordinate("org.apache.logging.log4j", name, log4j)


def _kafka(name: str, version: str, wanted: list[Coordinate]) -> list[Path]:
    try:
        return _resolve(name, wanted, with_binding=True)
    except NotFoundError as error:
        raise ConfigError(
            f"Kafka {version} is not complete in the Maven repository: {error} "
            f"{DEFAULT_RELEASE} is known to work."
        ) from error


def _resolve(
    name: str,
    wanted: Sequence[Coordinate],
    *,
    excluded: Sequence[str] = (),
    with_binding: bool = False,
) -> list[Path]:
    def fetch(target: Path, work: Path) -> None:
        if not with_binding:
            retrieve(wanted, target, work, excluded)
            return
        retrieve(wanted, work / "first", work)
        binding = binding_for([jar.name for jar in (work / "first").glob("*.jar")])
        retrieve([*wanted, binding] if binding else wanted, target, work)

    recipe = "; ".join(
        [" ".join(map(str, wanted)), f"without {' '.join(excluded)}", f"binding {with_binding}"]
    )
    return JarCache(cache_dir() / "jars").jars(name, recipe, fetch, pins().get(name))


@functools.cache
def pins() -> dict[str, dict[str, str]]:
    """Set → jar → its SHA-256, from conf/jars.sha256."""
    found: dict[str, dict[str, str]] = {}
    for line in (files("conf") / "jars.sha256").read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            jars = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            digest, _, jar = line.partition("  ")
            jars[jar] = digest
    return found


def _require_release(version: str) -> str:
    if not RELEASE.accepts(version):
        raise ConfigError(
            f"Kafka version {version!r} is not supported; expected one from 2.8.0 on, such as "
            f"{DEFAULT_RELEASE}; choose another"
        )
    return version


def _version_among(jar_names: Sequence[str], artifact: str) -> str | None:
    pattern = re.compile(rf"{re.escape(artifact)}-(\d[\w.]*)\.jar")
    return next((m.group(1) for name in jar_names if (m := pattern.fullmatch(name))), None)


def main(kafka_versions: Sequence[str]) -> int:
    """Download the jars, as a step of set-up; return the exit code."""
    started_s = time.monotonic()
    try:
        resolve_all(tuple(kafka_versions) or (DEFAULT_RELEASE,))
    except RedlineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    seconds = time.monotonic() - started_s
    sys.stdout.write(f"The jars are in {cache_dir() / 'jars'} ({seconds:.1f} s).\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
