"""JMX of the brokers, through the driver's JVM where there is one, else through jmxquery.

The program of `jmxquery`, with a filter of classes and a password outside the command line.

The package passes the password to its program as an argument, which lists of processes show, and
cannot pass options to its JVM. Java's launcher also reads arguments from a file. So this module
passes the same arguments in a file that only its owner can read, and deletes it afterwards.

Broker metrics through the `jmxquery` package, where the driver has no JVM.

Each poll of a broker starts a JVM (about 0.35 s, 0.4 core-seconds), so one call reads everything
of a broker, and the interval between samples is some seconds. A sample has the time of its end:
the call is mostly the start of the JVM, which reads the values in its last milliseconds.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jmxquery

from metrics.common.errors import ConfigError
from metrics.sources.access import ANSWERS, JmxAccess
from metrics.sources.bean_poller import BeanPoller, BeanValue, PollError
from metrics.sources.driver_jvm import DriverJvmSource, unreachable
from metrics.sources.source import JmxEndpoint, MetricsSource

_OF_JAVA = (
    "HOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LANG", "LC_ALL", "LC_CTYPE",
    "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ",
)  # fmt: skip
"""The environment variables that Java reads; all others may contain secrets."""

_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Turns Java's second compiler off, whose code a JVM of one second never uses."""


def ask(
    connection: jmxquery.JMXConnection,
    queries: Sequence[jmxquery.JMXQuery],
    access: JmxAccess | None,
    timeout_s: float,
) -> list[jmxquery.JMXQuery]:
    """Run queries as `connection.query` does, with a user and a password where JMX requires them.

    Raises:
        subprocess.CalledProcessError: the program failed; `stdout` has the reason.
        subprocess.TimeoutExpired: no answer within `timeout_s` [s].
        ValueError: the answer is cut off.
    """
    query_text = "".join(f"{query.to_query_string()};" for query in queries)
    arguments = [_QUICK_COMPILER, f"-Djdk.serialFilter={ANSWERS}", "-jar", jmxquery.JAR_PATH]
    arguments += ["-url", connection.connection_uri, "-json"]
    if access is not None:
        arguments += ["-u", access.username or "", "-p", access.password or ""]
    arguments += ["-q", query_text]
    descriptor, name = tempfile.mkstemp(prefix="redline-jmx-")  # readable by its owner only
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            # The launcher's quotes are those of JSON, except for non-ASCII characters.
            stream.write("\n".join(json.dumps(each, ensure_ascii=False) for each in arguments))
        command = [connection.java_path, f"@{name}"]
        environment = {each: os.environ[each] for each in _OF_JAVA if each in os.environ}
        answer = subprocess.run(
            command, env=environment, capture_output=True, timeout=timeout_s, check=True
        )
    finally:
        Path(name).unlink()
    return [
        jmxquery.JMXQuery(
            row["mBeanName"], row["attribute"], row.get("attributeKey"), row.get("value")
        )
        for row in json.loads(answer.stdout)
    ]


# Its errors are in exceptions and samples; its log would repeat them on the console.
logging.getLogger("jmxquery").setLevel(logging.CRITICAL)


class JmxQuerySource(BeanPoller[JmxEndpoint]):
    """JMX through one new JVM for each broker and sample.

    Args:
        endpoints, deadline_s, clock: as in `BeanPoller`.
        java: path or name of the `java` command.
        access: the login for JMX; None when it is open.

    Raises:
        ConfigError: JMX speaks TLS, which the package's program does not support.
    """

    name = "jmxquery"

    def __init__(
        self,
        endpoints: Sequence[JmxEndpoint],
        deadline_s: float,
        java: str = "java",
        clock: Callable[[], float] = time.time,
        access: JmxAccess | None = None,
    ) -> None:
        if access is not None and access.is_tls:
            raise ConfigError(
                "JMX with TLS is read through the driver's own JVM, and this Spark session has "
                "none (Spark Connect or serverless); expected jmx.tls: false, "
                "metrics.prometheus, or a session with a JVM"
            )
        super().__init__(endpoints, deadline_s, clock)
        self._access = access
        self._java = java

    def unreachable(self, endpoint: JmxEndpoint, error: str) -> ConfigError:
        """See `BeanPoller.unreachable`."""
        return unreachable(endpoint, error)

    def poll(
        self, endpoint: JmxEndpoint, beans: Mapping[str, Sequence[str]], timeout_s: float
    ) -> Iterator[BeanValue]:
        """See `BeanPoller.poll`."""
        # A key in the query makes JMXQuery send it twice and return all items each time.
        queries = [jmxquery.JMXQuery(name, each) for name in beans for each in beans[name]]
        connection = jmxquery.JMXConnection(endpoint.url, java_path=self._java)
        try:
            results = ask(connection, queries, self._access, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise PollError(f"no answer within {timeout_s:g} s") from error
        except subprocess.CalledProcessError as error:
            output = error.stdout or error.stderr or b""
            raise PollError(output.decode(errors="replace").strip()) from error
        except FileNotFoundError as error:
            raise PollError(f"{self._java!r} is not on the PATH; install Java 17") from error
        except ValueError as error:  # JSON that is cut off
            raise PollError(f"no answer within {timeout_s:g} s") from error
        if not results:
            raise PollError(f"no answer within {timeout_s:g} s")
        return iter(
            BeanValue(each.mBeanName, each.attribute, each.value, each.attributeKey)
            for each in results
        )


JMXQUERY_DEADLINE_S = 5.0
"""Least deadline of a sample through jmxquery [s]; its JVMs start in 2 s on a busy machine."""


def open_jmx(
    addresses: Mapping[int, str],
    jvm: Any | None,
    deadline_s: float = 2.0,
    access: JmxAccess | None = None,
) -> MetricsSource:
    """Open a source that reads these nodes over JMX.

    Args:
        addresses: node id → `host:port` of its JMX, for brokers, and controllers where known.
        jvm: the driver's JVM (`spark._jvm`), or None on Spark Connect and serverless.
        deadline_s: time after which a node's sample counts as missed [s]; at least 5 s
            through jmxquery, which starts a JVM for each.
        access: login and certificates for JMX; None when it is open.

    Raises:
        ConfigError: there is no address, or a node cannot be reached or judged.
    """
    if not addresses:
        raise ConfigError(
            "no broker has a known JMX address, which is required to judge a load; set jmx.port or "
            "jmx.endpoints in the cluster's file in conf/clusters"
        )
    endpoints = [JmxEndpoint.parse(node, address) for node, address in sorted(addresses.items())]
    source: MetricsSource
    if jvm is not None:
        source = DriverJvmSource(jvm, endpoints, deadline_s, access)
    else:
        source = JmxQuerySource(endpoints, max(deadline_s, JMXQUERY_DEADLINE_S), access=access)
    source.open()
    return source
