"""The jars of Delta, Kafka and the exporter, which are downloaded once and then cached.

The module replaces the Spark setting `spark.jars.packages`, which would need the network at every
start. `python -m jobs.setup.jars` downloads the jars for a first run, and for the Kafka versions on
its command line. The cache has sets of jars. Each set is downloaded once, either completely or not
at all, and is verified before use.

The module also compiles the project's own Java classes to jars for the class path of another JVM,
such as a broker's JVM. Janino, the compiler in Spark's package, compiles the classes in a separate
JVM in less than a second, so a JRE is sufficient. The cache keeps the jars of compiled classes,
too.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from filelock import FileLock, Timeout

from jobs.setup.ivy import Coordinate, NotFoundError, retrieve, run_java, spark_jar
from jobs.setup.places import cache_dir
from jobs.setup.releases import (
    DEFAULT_RELEASE,
    RELEASE,
    SparkPair,
    installed_delta,
    installed_spark,
    require_pair,
)
from metrics.common.errors import ConfigError, RedlineError

MANIFEST = "manifest.json"
LOCK_TIMEOUT_S = 1200.0


@dataclass(frozen=True)
class JarSet:
    """A set of jars in a cache, safe for threads, for processes, and after a crash at any moment.

    Attributes:
        folder: folder of all sets, which is made at the first download.
        name: name of the set and of its folder.
        recipe: description of the content; a set with another recipe is downloaded again.
        fetch: downloads the jars into its first argument; its second argument is a folder for
            temporary files, which is deleted afterwards.
        pinned: jar → its known SHA-256; None for a set without known hashes.
    """

    folder: Path
    name: str
    recipe: str
    fetch: Callable[[Path, Path], None]
    pinned: Mapping[str, str] | None = None

    def jars(self) -> list[Path]:
        """The jars, sorted by name. Missing or changed jars are downloaded first.

        Raises:
            ConfigError: the folder cannot be written, a jar has another hash, or `fetch` failed.
        """
        found = self.intact()
        if found is not None:
            return found
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / f".{self.name}.lock", timeout=LOCK_TIMEOUT_S):
                # Another process may have downloaded the set in the meantime.
                found = self.intact()
                return self._download() if found is None else found
        except Timeout as error:
            raise ConfigError(
                f"Another process has been downloading {self.name} into {self.folder} for more "
                f"than {LOCK_TIMEOUT_S / 60:.0f} minutes. Stop that process, then run the command "
                "again."
            ) from error
        except OSError as error:
            raise ConfigError(
                f"The jars of {self.name} cannot be written to {self.folder} ({error}). "
                "Name another cache folder in the environment variable REDLINE_CACHE."
            ) from error

    def intact(self) -> list[Path] | None:
        """The jars of the set if it is complete and unchanged, and if the jars have the pinned
        hashes; None otherwise.
        """
        folder = self.folder / self.name
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            if manifest["recipe"] != self.recipe or not manifest["jars"]:
                return None
            jars = {folder / jar: digest for jar, digest in sorted(manifest["jars"].items())}
            whole = all(_digest(path) == digest for path, digest in jars.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # missing, truncated or invalid: the caller downloads the set
        is_known = self.pinned is None or manifest["jars"] == self.pinned
        return list(jars) if whole and is_known else None

    def _download(self) -> list[Path]:
        partial, work = (self.folder / f".{self.name}.{each}" for each in ("partial", "work"))
        final = self.folder / self.name
        for leftover in (partial, work):  # folders of a killed process
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            partial.mkdir()
            self.fetch(partial, work)
            jars = {jar.name: _digest(jar) for jar in sorted(partial.glob("*.jar"))}
            if self.pinned is not None:
                _require_pinned(self.name, jars, self.pinned)
            manifest = {"recipe": self.recipe, "jars": jars}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
            if final.exists():
                shutil.rmtree(final)
            partial.rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
        return [final / jar for jar in jars]


def _require_pinned(name: str, jars: Mapping[str, str], pinned: Mapping[str, str]) -> None:
    other = sorted(jar for jar in {*jars, *pinned} if jars.get(jar) != pinned.get(jar))
    if other:
        raise ConfigError(
            f"{other[0]}{f' and {len(other) - 1} more' if len(other) > 1 else ''} of {name} has "
            f"the SHA-256 {jars.get(other[0], '(missing)')}; expected "
            f"{pinned.get(other[0], 'no such jar')} from conf/jars.sha256; the download is "
            "deleted; ask the operator of the repository about this jar"
        )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


SCALA = "2.13"
"""Scala version of Kafka's jars. Delta's jars have the Scala version of Spark."""

LOG4J_VERSION = "2.25.3"
"""Version of log4j 2 for a Kafka release that does not contain log4j 2, such as Kafka 3.9."""

EXPORTER_VERSION = "1.0.1"
"""Version of the Prometheus JMX exporter: the newest version on Maven Central."""

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
"""Dependencies of Delta that Spark provides. Spark's class loader prefers Spark's own jars."""


@functools.cache
def delta_jars(spark: str | None = None, scala: str | None = None) -> list[Path]:
    """The jars that a Spark session needs for Delta tables.

    Args:
        spark, scala: versions of the running Spark; by default the versions of the installed Spark.

    Raises:
        ConfigError: this release of Spark is not supported, or the jars are neither cached nor
            downloadable.
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
def kafka_jars(version: str = DEFAULT_RELEASE, artifact: str = f"kafka_{SCALA}") -> list[Path]:
    """The jars of a Kafka broker of this version, with a log4j 2 binding for SLF4J.

    Args:
        artifact: name of the Maven artifact; by default the broker.

    Raises:
        ConfigError: the version does not exist, is older than 2.8, or is neither cached nor
            downloadable.
    """
    if not RELEASE.accepts(version):
        raise ConfigError(
            f"Kafka version {version!r} is not supported; expected 2.8.0 or later, such as "
            f"{DEFAULT_RELEASE}; choose another version"
        )
    wanted = [Coordinate("org.apache.kafka", artifact, version)]
    try:
        name = f"{artifact.removesuffix(f'_{SCALA}')}-{version}"
        return _resolve(name, wanted, with_binding=True)
    except NotFoundError as error:
        raise ConfigError(
            f"Kafka {version} is not complete in the Maven repository: {error} Choose another "
            f"version; {DEFAULT_RELEASE} is known to work."
        ) from error


@functools.cache
def exporter_jar(version: str = EXPORTER_VERSION) -> Path:
    """The Prometheus JMX exporter as a Java agent, for the brokers of tests.

    Raises:
        ConfigError: the exporter is neither cached nor downloadable.
    """
    name = "jmx_prometheus_javaagent"
    return _resolve(f"{name}-{version}", [Coordinate("io.prometheus.jmx", name, version)])[0]


def resolve_all(kafka_versions: Sequence[str] = (DEFAULT_RELEASE,)) -> None:
    """Download all jars for `make demo` and `make test` into the cache, in parallel.

    Raises:
        ConfigError: a download failed.
    """
    with ThreadPoolExecutor(max_workers=3) as pool:
        fetches: list[Callable[[], object]] = [exporter_jar, delta_jars]
        fetches += [partial(kafka_jars, version) for version in kafka_versions]
        for future in [pool.submit(fetch) for fetch in fetches]:
            future.result()


def binding_for(jar_names: Sequence[str]) -> Coordinate | None:
    """The jar that connects SLF4J to log4j 2 (a binding of SLF4J), in the version that fits these
    jars; None if these jars already contain a binding.

    Without a binding of SLF4J, a broker writes no log. SLF4J 1 and SLF4J 2 need different bindings.
    The binding of SLF4J and the jar log4j-core must have the same version.
    """
    if any(re.match(r"log4j-slf4j2?-impl-|slf4j-reload4j-", name) for name in jar_names):
        return None
    slf4j = _version_among(jar_names, "slf4j-api") or "1"
    log4j = _version_among(jar_names, "log4j-core") or LOG4J_VERSION
    name = "log4j-slf4j-impl" if slf4j.startswith("1") else "log4j-slf4j2-impl"
    return Coordinate("org.apache.logging.log4j", name, log4j)


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
    return JarSet(cache_dir() / "jars", name, recipe, fetch, pins().get(name)).jars()


@functools.cache
def pins() -> dict[str, dict[str, str]]:
    """Set of jars → jar → its SHA-256, from conf/jars.sha256."""
    found: dict[str, dict[str, str]] = {}
    for line in (files("conf") / "jars.sha256").read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            jars = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            digest, _, jar = line.partition("  ")
            jars[jar] = digest
    return found


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


TIMEOUT_S = 60.0
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
_PARTS = ("janino", "commons-compiler")


def java_jar(name: str, source: str, class_path: Sequence[Path]) -> Path:
    """The path of a jar with one public class. The class is compiled if the jar is not cached.

    Args:
        name: name of the public class.
        source: Java source without lambdas and type inference, which Janino does not support.
        class_path: jars that the source needs.

    Raises:
        ConfigError: Java or Janino is missing, or the source does not compile with the jars.
    """
    compiler = [spark_jar(part) for part in _PARTS]
    seen = [source, *(jar.name for jar in [*compiler, *class_path])]
    recipe = hashlib.sha256("\n".join(seen).encode()).hexdigest()
    # The name contains the digest, so that a JVM does not confuse two versions of a jar.
    folder = f"{name}-{recipe[:12]}"

    def compile_it(target: Path, work: Path) -> None:
        work.mkdir()
        path = work / f"{name}.java"
        path.write_text(source, encoding="utf-8")
        classes = work / "classes"
        _compile(path, classes, compiler, class_path)
        with zipfile.ZipFile(target / f"{name}.jar", "w") as archive:
            for each in sorted(classes.rglob("*.class")):
                # A constant time stamp, so that equal classes make equal jars.
                entry = zipfile.ZipInfo(each.relative_to(classes).as_posix())
                archive.writestr(entry, each.read_bytes())

    return JarSet(cache_dir() / "jars", folder, recipe, compile_it).jars()[0]


def _compile(
    path: Path, classes: Path, compiler: Sequence[Path], class_path: Sequence[Path]
) -> None:
    classes.mkdir()
    options = [
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"),
        *("-cp", _joined(compiler), _COMPILER),
        *("-encoding", "UTF-8", "-d", str(classes), "-classpath", _joined(class_path), str(path)),
    ]
    try:
        code, output = run_java(options, TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"the compilation of {path.name} took more than {TIMEOUT_S:.0f} s; stop other programs "
            "on this machine, then run the command again"
        ) from error
    if code != 0 or not any(classes.rglob("*.class")):
        jars = ", ".join(jar.name for jar in class_path)
        raise ConfigError(
            f"{path.name} cannot be compiled with the jars {jars}: {output.strip()[-600:]}"
        )


def _joined(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
