"""Download of jars and their dependencies from a Maven repository, with Spark's own Ivy.

Spark's pip package contains Ivy as a jar, so neither Maven nor a tarball is needed. Ivy compares
every download with the checksum that the repository publishes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from jobs.setup.places import child_environment
from jobs.setup.preflight import java_command
from metrics.common.errors import ConfigError

REPOSITORY_VARIABLE = "REDLINE_MAVEN_URL"
"""Environment variable with the address of the Maven repository; by default Maven Central."""

TIMEOUT_S = 900.0

_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Option for the JVM of a download. With this option, the download of all jars takes 7 instead of
13 CPU-seconds."""

_UNREACHABLE = re.compile(
    r"Host \S+ not found|UnknownHostException|ConnectException|NoRouteToHost|SocketException"
    r"|Connection (?:refused|reset|timed out)|connect timed out|Read timed out|SocketTimeout"
    r"|SSLHandshakeException|Network is unreachable|Server access error|proxy server"
)
_UNRESOLVED = re.compile(r"^\s*:: (\S+)#(\S+);(\S+): not found", re.MULTILINE)
_SAFE = re.compile(r"https://|file:/|http://(localhost|127\.0\.0\.1|\[::1\])[:/]")
"""Addresses whose downloads cannot be changed in transit."""
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


class UnreachableError(ConfigError):
    """The Maven repository could not be reached."""


class NotFoundError(ConfigError):
    """The Maven repository does not have the artifact."""


@dataclass(frozen=True)
class Coordinate:
    """A Maven artifact."""

    organisation: str
    name: str
    version: str

    def __str__(self) -> str:
        """The artifact in Maven's short form, organisation:name:version."""
        return f"{self.organisation}:{self.name}:{self.version}"


def retrieve(
    wanted: Sequence[Coordinate], target: Path, work: Path, excluded: Sequence[str] = ()
) -> None:
    """Download the jars of `wanted` and their run-time dependencies into `target`.

    Args:
        wanted: the artifacts.
        target: folder for the jars, which is made if it is missing.
        work: folder for Ivy's cache, which makes a second call faster.
        excluded: organisations whose jars are left out.

    Raises:
        UnreachableError: the repository does not answer.
        NotFoundError: the repository does not have an artifact.
        ConfigError: another failure, such as a full disk.
    """
    work.mkdir(parents=True, exist_ok=True)
    (work / "settings.xml").write_text(_settings(mirror_url(os.environ)))
    (work / "ivy.xml").write_text(_module(wanted, excluded))
    try:
        code, output = run_java(_options(target, work), TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(
            f"{_names(wanted)} did not arrive from {_repository()} within "
            f"{TIMEOUT_S:.0f} s. Try again with a faster connection."
        ) from error
    if code != 0 or not any(target.glob("*.jar")):
        raise failure(output, wanted)


def run_java(options: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Run Java without secrets in its environment; return its exit code and its output.

    Raises:
        ConfigError: Java is missing.
        TimeoutExpired: Java did not end in time.
    """
    done = subprocess.run(
        [java_command(), *options],
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def failure(log_text: str, wanted: Sequence[Coordinate]) -> ConfigError:
    """The error for the failure in Ivy's log."""
    url = _repository()
    if _UNREACHABLE.search(log_text):
        return UnreachableError(
            f"{_names(wanted)} is not in the cache, and {url} could not be reached. Connect to the "
            f"network, or name a mirror in {REPOSITORY_VARIABLE}, then run the command again."
        )
    missing = _UNRESOLVED.findall(log_text)
    if missing:
        names = ", ".join(sorted({":".join(parts) for parts in missing}))
        return NotFoundError(f"{url} does not have {names}. Choose another version.")
    lines = [line.strip() for line in log_text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if "VERBOSE" not in line), "Ivy printed nothing")
    return ConfigError(f"{_names(wanted)} could not be downloaded from {url}: {last[:300]}")


def mirror_url(environ: Mapping[str, str]) -> str | None:
    """The Maven repository from the environment, with a final slash; None for Ivy's default.

    Raises:
        ConfigError: downloads from the repository could be changed in transit.
    """
    named = environ.get(REPOSITORY_VARIABLE, "").rstrip("/")
    if named and not _SAFE.match(named):
        kind = named.partition(":")[0]
        raise ConfigError(
            f"{REPOSITORY_VARIABLE} is an address that begins with {kind[:20]}; expected https: "
            "or file:, because jars from the address are executed; name a repository with https:"
        )
    return f"{named}/" if named else None


def _repository() -> str:
    return mirror_url(os.environ) or "Maven Central"


def spark_jar(name: str) -> Path:
    """The path of a jar of Spark, such as `ivy`, found without an import of Spark.

    Under spark-submit `pyspark` is a zip archive without jars, so SPARK_HOME is searched, too.

    Raises:
        ConfigError: neither the pip package nor SPARK_HOME has the jar.
    """
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    places += [home] if (home := os.environ.get("SPARK_HOME")) else []
    for place in places:
        found = sorted(Path(place, "jars").glob(f"{name}-*.jar"))
        if found:
            return found[-1]
    raise ConfigError(
        f"Spark's jar {name} is missing from its pip package and from the jars of SPARK_HOME "
        f"({home or 'not set'}); expected the jar in one of the two. Run make setup, or pip "
        "install pyspark, or set SPARK_HOME."
    )


def proxy_options(url: str | None, proxies: Mapping[str, str]) -> list[str]:
    """The proxy for `url` from `proxies`, as Java system properties.

    Java does not read the variable https_proxy; pip does.

    Args:
        url: address of the repository; None for Ivy's default.
    """
    parts = urllib.parse.urlsplit(url or "https:")
    proxy = urllib.parse.urlsplit(proxies.get(parts.scheme, ""))
    if not proxy.hostname or urllib.request.proxy_bypass(parts.hostname or ""):
        return []
    options = [f"-D{parts.scheme}.proxyHost={proxy.hostname}"]
    return [*options, f"-D{parts.scheme}.proxyPort={proxy.port}"] if proxy.port else options


def _options(target: Path, work: Path) -> list[str]:
    proxies = proxy_options(mirror_url(os.environ), urllib.request.getproxies())
    return [
        *("-Xmx256m", _QUICK_COMPILER, *proxies, "-jar", str(spark_jar("ivy"))),
        *("-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")),
        *("-cache", str(work / "cache"), "-retrieve", str(target / _PATTERN)),
    ]


def _settings(mirror: str | None) -> str:
    root = f" root={quoteattr(mirror)}" if mirror else ""
    # Without these properties Ivy also requests the sources and the javadoc of each module.
    return f"""<ivysettings>
  <property name="ivy.maven.lookup.sources" value="false"/>
  <property name="ivy.maven.lookup.javadoc" value="false"/>
  <settings defaultResolver="repository"/>
  <timeout-constraints>
    <timeout-constraint name="patience" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="repository" m2compatible="true"{root}
             timeoutConstraint="patience"/>
  </resolvers>
</ivysettings>
"""


def _module(wanted: Sequence[Coordinate], excluded: Sequence[str]) -> str:
    dependencies = [
        f"<dependency org={quoteattr(item.organisation)} name={quoteattr(item.name)} "
        f'rev={quoteattr(item.version)} conf="default-&gt;default"/>'
        for item in wanted
    ]
    exclusions = [f"<exclude org={quoteattr(organisation)}/>" for organisation in excluded]
    return f"""<ivy-module version="2.0">
  <info organisation="redline" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{"".join(dependencies + exclusions)}</dependencies>
</ivy-module>
"""


def _names(wanted: Sequence[Coordinate]) -> str:
    return ", ".join(str(item) for item in wanted)
