"""JMX of the brokers, through the driver's JVM where there is one, else through jmxquery.

The driver's own JVM reads it by one call for each sample, and starts no process.

It works with any py4j view of a JVM that has Janino on its class path, such as `spark._jvm` of
Spark's driver, and does not depend on Spark.

The Java class `RedlineJmxPoller` polls all brokers in parallel inside the driver's JVM.
Each call through py4j takes a round trip, and a sample would need some 80 calls for each broker.
So Janino, the compiler that Spark brings for its generated code, compiles this class at the start,
and one call samples all brokers. They are polled in parallel up to a limit: the next one is polled
as soon as one has answered, and all polls begin within half of the deadline even if none answers.
Janino supports Java without lambdas and without type inference, hence the plain style. The class
loader of `RedlineJmxGuard` defines the class, which protects its connections.

The protocol is text. A plan has one line `name TAB object name TAB attribute TAB key` for each
reading, and the lines of one object name are adjacent. `sample` returns for each broker a line
`# TAB node id TAB begin [µs since the epoch] TAB end TAB error` and then lines `name TAB value`;
the name of a bean with `*` is followed by a colon and the text that `*` matched.

A broker's beans are read one after another while that takes `READ_NS` at most, as it does within a
data center. A broker that is farther away is read by several calls at once, up to
`CALLS_IN_PARALLEL`, and RMI opens a connection for each of them. The round trip is the shortest
call since the connection was made, so a broker or a driver that is slow because it is loaded causes
no more calls at once. One call reads all attributes of a bean. `poll_ms` is the time from the first
to the last of these calls, so that a reading was taken at most half of it before or after the
sample's time.

A connection that leads to another node than the first one did, as behind a load balancer, is an
error.

Between the samples each connection is probed by one cheap attribute five times a second; with more
than 200 brokers, one connection after another, a thousand probes a second in total. `silent_ms` is
the longest wait for a probe's answer since the last sample, less the time for which the driver's
JVM itself was paused meanwhile. So it shows a broker that was paused, or whose machine was.

Further Java classes protect the driver's JVM from the answers of the brokers' JMX.

JMX's client side creates objects of any class that an answer names. It uses the JVM's default TLS
context, and does not check the host's name. Neither can be configured for one connection.

RMI resolves classes by the class loader of its caller, or by that of its thread. So the poller is
defined by a class loader of its own, which its threads use, too. This loader knows Java's own
classes and none of Spark's. It replaces Java's `SslRMIClientSocketFactory` by one that trusts the
source's certificates and checks the host's name.

The JVM gets a filter (JEP 290) that asks the thread's class loader where that is a filter itself,
and decides nothing elsewhere. So each source has its own filter, and the rest of the JVM is not
affected. A filter that the JVM was started with takes precedence over this one.

Janino compiles the classes, hence the plain style.

Where the driver has no JVM, the program of the package `jmxquery` reads it, with a filter of
classes and a password outside the command line.

The package passes the password to its program as an argument, which lists of processes show, and
cannot pass options to its JVM. Java's launcher also reads arguments from a file. So this module
passes the same arguments in a file that only its owner can read, and deletes it afterwards.

Each poll of a broker starts a JVM (about 0.35 s, 0.4 core-seconds), so one call reads everything
of a broker, and the interval between samples is some seconds. A sample has the time of its end:
the call is mostly the start of the JVM, which reads the values in its last milliseconds.
"""

from __future__ import annotations

import json
import logging
import os
import re
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jmxquery

from metrics.common.errors import ConfigError
from metrics.sources.bean_poller import (
    BeanAnswer,
    BeanPoller,
    BeanSource,
    BeanValue,
    PollError,
    brief,
)
from metrics.sources.beans import Reading
from metrics.sources.http_access import unusable_file
from metrics.sources.java_class import bytecodes, compiled, java_source, named_apart
from metrics.sources.source import JmxEndpoint, MetricsSource

ANSWERS = ";".join(
    (
        "maxdepth=20",
        "maxarray=100000",
        "maxrefs=1000000",
        "java.lang.*",
        "java.math.*",
        "java.util.*",
        "java.io.*",
        "java.rmi.*",
        "java.rmi.dgc.*",
        "java.rmi.server.*",
        "javax.management.*",
        "javax.management.openmbean.*",
        "javax.management.remote.*",
        "javax.management.remote.rmi.*",
        "javax.rmi.ssl.*",
        "javax.security.auth.login.*",
        "java.security.GeneralSecurityException",
        "!*",
    )
)
"""The classes that answers of JMX may have, as a pattern of Java's jdk.serialFilter: numbers,
texts, collections, open types, stubs and errors."""


@dataclass(frozen=True)
class JmxAccess:
    """The login and the TLS settings for the JMX of all brokers.

    Attributes:
        username, password: an entry of jmxremote.password; None where JMX has no password.
        is_tls: whether the registry and the objects speak TLS.
        cafile: PEM file of the certificates to trust; Java's default authorities when None.
        check_hostname: whether a certificate must name the host of its address.
    """

    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    is_tls: bool = False
    cafile: str | None = None
    check_hostname: bool = True

    def trusted(self) -> list[bytes]:
        """The certificates of `cafile` in DER; empty without a file.

        Raises:
            ConfigError: the file has no certificate, or cannot be read.
        """
        if self.cafile is None:
            return []
        try:
            text = Path(self.cafile).expanduser().read_text(encoding="ascii")
            found = [ssl.PEM_cert_to_DER_cert(each) for each in _CERTIFICATE.findall(text)]
        except (OSError, ValueError) as error:
            raise unusable_file("jmx.cafile", self.cafile, str(error), "of certificates") from error
        if not found:
            why = "it holds no certificate"
            raise unusable_file("jmx.cafile", self.cafile, why, "of certificates")
        return found


_FOREIGN = (
    "answers with objects that no reading has; expected numbers and texts of Kafka's beans; check "
    "which program runs there"
)
_ANOTHER_HOST = (
    "has a certificate for another host; expected one that names the host of its address; "
    "correct the certificate, the broker's -Djava.rmi.server.hostname or jmx.endpoints "
    "(jmx.check_hostname: false trusts any name)"
)
LOCKS = {
    "Credentials required": "requires a password; expected jmx.username_from and "
    "jmx.password_from; add them to the cluster's file",
    "Authentication failed": "refuses the password; expected one of its jmxremote.password; check "
    "the values that jmx.username_from and jmx.password_from point at",
    "non-JRMP server": "speaks TLS in its registry; expected jmx.tls: true; add it to the "
    "cluster's file",
    "SecurityException: refused ": _FOREIGN,
    "filter status: REJECTED": _FOREIGN,
    "ClassNotFoundException: ": _FOREIGN,
    "validity check failed": "has a certificate that is not valid now; expected one within its "
    "dates; renew it, or check the clocks of both hosts",
    "No subject alternative": _ANOTHER_HOST,
    "No name matching": _ANOTHER_HOST,
    "PKIX path": "has a certificate that is not trusted; expected one signed by an authority in "
    "jmx.cafile, or by one that Java trusts when that key is left out; name the authority's PEM "
    "file there",
    "Unsupported or unrecognized SSL message": "does not speak TLS in its registry; expected "
    "-Dcom.sun.management.jmxremote.registry.ssl=true at the broker, or jmx.tls: false",
}
"""Sign in the text of a Java exception → the remedy where JMX answers and refuses access. The first
sign counts, as the text of a failed login has two when it had no password."""

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)


SAMPLE_EACH_S = 0.004
"""Least time in the deadline of a sample for each node [s]."""
_GUARD, _FILTER, _POLLER = "RedlineJmxGuard", "RedlineJmxFilter", "RedlineJmxPoller"
_SOCKETS = "SslRMIClientSocketFactory"


def unreachable(endpoint: JmxEndpoint, error: str) -> ConfigError:
    """The error for a node that did not answer, with its remedy."""
    remedy = next((remedy for sign, remedy in LOCKS.items() if sign in error), None)
    if remedy is not None:
        return ConfigError(
            f"JMX of broker {endpoint.node_id} at {endpoint.address} {remedy} ({brief(error)})"
        )
    return ConfigError(
        f"broker {endpoint.node_id} does not answer JMX at {endpoint.address}: {brief(error)}. "
        f"Its metrics are required to judge a load. Start it with JMX_PORT={endpoint.port} "
        f"and -Djava.rmi.server.hostname={endpoint.host}, open that port to this machine, or "
        f"correct jmx.endpoints of the cluster's file in conf/clusters"
    )


def parse_answers(text: str) -> list[BeanAnswer]:
    """Parse the poller's answer, whose format `metrics.sources.jmx` describes."""
    answers = []
    for part in text.split("#\t")[1:]:
        head, *lines = part.rstrip("\n").split("\n")
        node_id, begin_us, end_us, error = head.split("\t")
        values = dict(line.split("\t", 1) for line in lines)
        at_s = (int(begin_us) + int(end_us)) / 2e6
        answers.append(BeanAnswer(int(node_id), at_s, error or None, values))
    return answers


def plan_text(readings: Iterable[Reading]) -> str:
    """The poller's plan for these readings."""
    return "\n".join(f"{r.name}\t{r.object_name}\t{r.attribute}\t{r.key or ''}" for r in readings)


class DriverJvmSource(BeanSource[JmxEndpoint]):
    """JMX through the JVM of the driver.

    Args:
        jvm: py4j's view of the JVM, `spark._jvm`.
        endpoints: the nodes to read, controllers included where known.
        deadline_s: time after which a node's sample counts as missed [s]; longer for more than
            some hundred nodes.
        access: login and certificates for JMX; None when it is open.
    """

    name = "driver-jvm"

    def __init__(
        self,
        jvm: Any,
        endpoints: Sequence[JmxEndpoint],
        deadline_s: float,
        access: JmxAccess | None = None,
    ) -> None:
        super().__init__(endpoints, max(deadline_s, SAMPLE_EACH_S * len(endpoints)))
        self._jvm = jvm
        self._access = access
        self._poller: Any = None

    def _connect(self) -> None:
        guard = compiled(self._jvm, _GUARD, java_source(__package__, _GUARD))
        guard.allow(ANSWERS)
        compiled(self._jvm, _FILTER, java_source(__package__, _FILTER)).install()
        name, poller = named_apart(_POLLER, java_source(__package__, _POLLER))
        for source in (java_source(__package__, _SOCKETS), poller):
            guard.own(bytecodes(self._jvm, source))
        self._poller = guard.loadClass(name).newInstance()
        if self._access is not None:
            self._unlock(self._access, guard)
        for endpoint in self._endpoints:
            self._poller.add(endpoint.node_id, endpoint.url)

    def _unlock(self, access: JmxAccess, guard: Any) -> None:
        if access.username is not None:
            self._poller.logIn(access.username, access.password)
        if access.is_tls:
            trusted = "".join(map(ssl.DER_cert_to_PEM_cert, access.trusted()))
            guard.trust(trusted, access.check_hostname)
            self._poller.useTls()

    def unreachable(self, endpoint: JmxEndpoint, error: str) -> ConfigError:
        """See `BeanSource.unreachable`."""
        return unreachable(endpoint, error)

    def _plan(self, readings: Mapping[int, Sequence[Reading]]) -> None:
        for node_id, own in readings.items():
            self._poller.plan(node_id, plan_text(own))

    def _answers(self, deadline_s: float) -> list[BeanAnswer]:
        return parse_answers(self._poller.sample(round(deadline_s * 1000)))

    def close(self) -> None:
        """See `MetricsSource.close`."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.close()


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
