"""Real Prometheus exporters: several agents in one broker, and stand-alone ones beside it."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs.setup.ivy import Coordinate, retrieve
from jobs.setup.jars import EXPORTER_VERSION, JarSet, exporter_jar, java_jar
from jobs.setup.places import cache_dir
from jobs.setup.preflight import java_command
from tests.support.exporters import HOST, Exporter

OLDER_VERSION = "0.20.0"
"""The newest exporter of release 0."""
VERSIONS = {0: OLDER_VERSION, 1: EXPORTER_VERSION}
"""Major release of the exporter → its version in the tests."""
REPORTER = Coordinate("io.strimzi", "metrics-reporter", "0.2.0")
"""Strimzi's Metrics Reporter, the newest one as a single artifact."""

_NAME = "RedlineExporters"
_SOURCE = Path(__file__).with_name("RedlineExporters.java").read_text(encoding="utf-8")


def agents_option(exporters: Mapping[str, Exporter], folder: Path) -> str:
    """The JVM option that starts these exporters as agents of one broker."""
    jar = folder / f"{_NAME}-agent.jar"
    with (
        zipfile.ZipFile(java_jar(_NAME, _SOURCE, ())) as classes,
        zipfile.ZipFile(jar, "w") as agent,
    ):
        for name in classes.namelist():
            agent.writestr(name, classes.read(name))
        agent.writestr("META-INF/MANIFEST.MF", f"Premain-Class: {_NAME}\n")
    jars = {each: exporter_jar(each) for each in VERSIONS.values()}
    listed = _listed(exporters, jars, folder / "agents", "")
    return f"-javaagent:{jar}={listed}"


@contextmanager
def standalone(
    exporters: Mapping[str, Exporter], jmx_endpoint: str, folder: Path
) -> Iterator[None]:
    """Run these exporters in a process beside the broker, which read it over JMX.

    Args:
        jmx_endpoint: `host:port` of the broker's JMX.
    """
    jars = {each: standalone_jar(each) for each in VERSIONS.values()}
    url = f"service:jmx:rmi:///jndi/rmi://{jmx_endpoint}/jmxrmi"
    listed = _listed(exporters, jars, folder / "standalone", f"jmxUrl: {url}\n")
    command = [java_command(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [str(java_jar(_NAME, _SOURCE, ())), _NAME, str(listed)]
    with (
        (folder / "standalone.log").open("w") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log) as process,
    ):
        try:
            yield
        finally:
            process.kill()


def standalone_jar(version: str) -> Path:
    name = "jmx_prometheus_httpserver"
    return _downloaded(Coordinate("io.prometheus.jmx", name, version))[0]


def reporter_jars() -> list[Path]:
    """Strimzi's Metrics Reporter with what it needs."""
    return _downloaded(REPORTER)


def reporter_properties(port: int) -> dict[str, object]:
    """The broker properties that start Strimzi's Metrics Reporter."""
    package = "io.strimzi.kafka.metrics"
    return {
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,"
        f"{package}.KafkaPrometheusMetricsReporter",
        "kafka.metrics.reporters": f"{package}.YammerPrometheusMetricsReporter",
        "prometheus.metrics.reporter.listener": f"http://{HOST}:{port}",
    }


def _downloaded(wanted: Coordinate) -> list[Path]:
    def download(target: Path, work: Path) -> None:
        retrieve([wanted], target, work)

    name = f"{wanted.name}-{wanted.version}"
    return JarSet(cache_dir() / "jars", name, str(wanted), download).jars()


def _listed(
    exporters: Mapping[str, Exporter], jars: Mapping[str, Path], folder: Path, begin: str
) -> Path:
    """The file that lists exporters, one a line, with the files of their rules beside it."""
    folder.mkdir()
    lines: Sequence[str] = [
        f"{jars[each.version]}\t{each.address}\t{_rules(each, folder / f'{number}.yaml', begin)}"
        for number, each in enumerate(exporters.values())
    ]
    path = folder / "exporters.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _rules(exporter: Exporter, path: Path, begin: str) -> Path:
    path.write_text(begin + (exporter.text or "startDelaySeconds: 0\n"))
    return path
