"""The check of broker properties against the property names of a Kafka version.

A broker ignores an unknown property, and even reports it as part of its configuration. Therefore a
JVM reads the property names from the class `kafka.server.KafkaConfig` of the Kafka version. This
JVM starts no broker. The class `KafkaConfig` also has internal properties, which Kafka's
documentation does not have.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence

from jobs.config.base import nearest
from jobs.setup.jars import java_jar, kafka_jars
from jobs.setup.places import cache_dir
from jobs.setup.preflight import java_command
from jobs.setup.releases import DEFAULT_RELEASE
from metrics.common.errors import ConfigError
from metrics.reporting.files import write_atomic
from metrics.sources.java_class import java_source

NAME = "RedlinePropertyNames"
SOURCE = java_source(__package__, NAME)

TIMEOUT_S = 60.0

PER_LISTENER = re.compile(
    r"listener\.name\.[^.]+\.((gssapi|plain|scram-sha-256|scram-sha-512|oauthbearer)\.)?(?P<rest>.+)"
)
"""Names of properties of one listener, or of one SASL mechanism of a listener."""
OF_AUTHORIZER = ("super.users", "allow.everyone.if.no.acl.found")
"""Properties that Kafka's StandardAuthorizer reads and KafkaConfig does not define."""
PLUGINS = (
    "authorizer.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    "metric.reporters",
    "kafka.metrics.reporters",
    "principal.builder.class",
    "remote.log.storage.manager.class.name",
    "remote.log.metadata.manager.class.name",
)
"""Properties that name a class; the class may read further properties."""


def require_known(names: Collection[str], version: str) -> None:
    """Check the names of broker properties; start no JVM if there are none.

    Raises:
        ConfigError: this Kafka version does not know a name.
    """
    if names and not any(name in names for name in PLUGINS):
        problems = unknown_names(names, property_names(version))
        if problems:
            raise ConfigError(
                f"Kafka {version} does not know {', '.join(problems)}; expected "
                "names of broker properties from Kafka's documentation, because brokers silently "
                "ignore other names; correct or remove them"
            )


def without_newer(properties: Mapping[str, str], version: str) -> dict[str, str]:
    """Those properties of a profile that this Kafka version knows; all other properties are left
    out.

    One profile can thus be used for all releases of Kafka: a release works without the properties
    that only later releases know.

    Raises:
        ConfigError: a name is known neither in this release nor in the default release.
    """
    if not properties:
        return {}
    unknown = {name for name in properties if unknown_names([name], property_names(version))}
    if unknown:
        require_known(unknown, DEFAULT_RELEASE)
    return {name: value for name, value in properties.items() if name not in unknown}


def unknown_names(given: Iterable[str], known: Sequence[str]) -> list[str]:
    """The unknown names, each with the most similar known name."""
    problems = []
    for name in given:
        listener = PER_LISTENER.fullmatch(name)
        bare = name if listener is None else listener["rest"]
        if bare in known or name in OF_AUTHORIZER:
            continue
        close = nearest(name, known)
        problems.append(f"{name} (did you mean {close}?)" if close else name)
    return problems


def property_names(version: str) -> tuple[str, ...]:
    """The names of all broker properties of a Kafka version; read once, then cached in a file.

    Raises:
        ConfigError: this Kafka version or Java is not installed, or the definition cannot be read.
    """
    kept = cache_dir() / "broker-properties" / f"kafka-{version}.txt"
    if not kept.exists():
        names = _query_kafka(version)
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(kept, "\n".join(names).encode())
    return tuple(kept.read_text(encoding="utf-8").split())


def _query_kafka(version: str) -> list[str]:
    jars = kafka_jars(version)
    class_path = os.pathsep.join(map(str, (*jars, java_jar(NAME, SOURCE, jars))))
    command = [java_command(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path]
    try:
        done = subprocess.run(
            [*command, NAME],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        problem = f"no answer within {TIMEOUT_S:.0f} s"
    else:
        names = done.stdout.split()
        if done.returncode == 0 and names:
            return sorted(names)
        problem = done.stderr.strip()[-600:] or f"exit code {done.returncode}"
    raise ConfigError(
        f"the broker properties of Kafka {version} could not be read: {problem}; expected the "
        "names of all properties; choose another version"
    )
