"""JMX of the brokers, read by the driver's JVM, or by jmxquery if the driver has no JVM.

**The driver's JVM.** One call through py4j takes the samples of all brokers, and no process is
started. The source works with any py4j view of a JVM that has Janino on its class path, such as
`spark._jvm` of Spark's driver. The source does not depend on Spark.

The Java class `RedlineJmxPoller` polls all brokers inside the driver's JVM, because a sample has
about 80 readings of each broker, and each call through py4j takes one round trip. Janino, the
compiler that Spark uses for its generated code, compiles `RedlineJmxPoller` when the source is
opened. The class uses neither lambdas nor type inference, because Janino does not support them. The
brokers are polled in parallel, up to a limit. When one broker has answered, the poll of the next
broker begins. All polls begin within half of the deadline even if no broker answers.

The protocol is text. A plan has one line `name TAB object name TAB attribute TAB key` for each
reading. Lines with the same object name are adjacent. For each broker, `sample` returns a line `#
TAB node id TAB begin [µs since the epoch] TAB end TAB error` and then lines `name TAB value`. The
name for a bean with `*` is followed by a colon and the text that `*` matched.

The beans of a broker are read one after the other if all reads together take `READ_NS` or less, for
example within a data center. If all reads together take longer than `READ_NS`, up to
`CALLS_IN_PARALLEL` calls read the broker's beans at the same time, and RMI opens a connection for
each call. The number of parallel calls is computed from the connection's fastest call, so that the
number does not rise if a broker or the driver becomes slow under load. One call reads all
attributes of a bean. `poll_ms` is the time between the first and the last call of a sample. Each
reading was taken at most half of `poll_ms` before or after the sample's time.

If a new connection leads to another node than the first connection, for example behind a load
balancer, the sample has an error.

Between the samples, a cheap call probes each connection five times per second. With more than 200
brokers, all connections together are probed a thousand times per second. `silent_ms` is the longest
wait for the answer to a probe; each sample has the longest wait since the previous sample. If the
driver's JVM itself was paused during the wait, the time of the pause is subtracted. So `silent_ms`
shows whether the process or the machine of a broker was paused.

**Protection of the driver's JVM.** The client side of JMX creates objects of any class that occurs
in an answer. The client side also uses the JVM's default TLS context, and does not check the host's
name. The classes, the TLS context and the check of the host's name cannot be configured for a
single connection. To find classes, RMI uses the class loader of its caller or of its thread. So a
separate class loader, `RedlineJmxGuard`, defines the class of the poller. `RedlineJmxGuard` is also
the class loader of the poller's threads. `RedlineJmxGuard` knows Java's own classes, and no class
of Spark. `RedlineJmxGuard` replaces Java's `SslRMIClientSocketFactory` by a class that trusts the
source's certificates and checks the host's name.

The JVM also gets a deserialization filter (JEP 290), `RedlineJmxFilter`. In a thread of a poller,
`RedlineJmxFilter` asks the thread's `RedlineJmxGuard` whether a class is allowed. In a thread that
does not belong to a poller, `RedlineJmxFilter` neither allows nor rejects a class. So each source
has its own rules, and the rest of the JVM is not affected. If the JVM was started with a
deserialization filter, the JVM uses only that filter.

**Without a JVM in the driver.** The Java program of the Python package `jmxquery` reads JMX. The
option `jdk.serialFilter` allows this program only the classes that JMX answers contain. `jmxquery`
passes the password to its Java program as an argument, so the password is visible in lists of
processes. `jmxquery` also cannot pass options to the JVM. But Java's launcher can read arguments
from a file. So this module writes the arguments to a file that only its owner can read, and deletes
the file after the call. Each poll of a broker starts a JVM, which takes about 0.35 s and 0.4
core-seconds. So one call reads all beans of a broker, and the interval between samples is some
seconds. The time of a sample is the end of the call, because the JVM reads the values in its last
milliseconds.
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
"""A pattern for Java's jdk.serialFilter that allows only the classes of JMX answers: numbers,
texts, collections, open types, RMI stubs and errors."""


@dataclass(frozen=True)
class JmxAccess:
    """The login and the TLS settings for the JMX of all brokers.

    Attributes:
        username, password: user and password of jmxremote.password, or None if JMX has no password.
        is_tls: whether the RMI registry and the JMX connections use TLS.
        cafile: PEM file of the certificates to trust, or None for Java's default authorities.
        check_hostname: whether a certificate must be for the host of the broker's address.
    """

    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    is_tls: bool = False
    cafile: str | None = None
    check_hostname: bool = True

    def trusted(self) -> list[bytes]:
        """The certificates of `cafile` in DER form, or an empty list if no file is set.

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
            why = "it contains no certificate"
            raise unusable_file("jmx.cafile", self.cafile, why, "of certificates")
        return found


_FOREIGN = (
    "answers with unexpected Java objects; expected numbers and texts of Kafka's beans; check "
    "which program runs at this address"
)
_ANOTHER_HOST = (
    "has a certificate for another host; expected a certificate for the host of its address; "
    "correct the certificate, the broker's -Djava.rmi.server.hostname or jmx.endpoints "
    "(jmx.check_hostname: false accepts any host)"
)
LOCKS = {
    "Credentials required": "requires a password; expected jmx.username_from and "
    "jmx.password_from; add them to the cluster's file",
    "Authentication failed": "refuses the password; expected an entry of its jmxremote.password; "
    "check the secrets that jmx.username_from and jmx.password_from refer to",
    "non-JRMP server": "uses TLS in its registry; expected jmx.tls: true; add it to the "
    "cluster's file",
    "SecurityException: refused ": _FOREIGN,
    "filter status: REJECTED": _FOREIGN,
    "ClassNotFoundException: ": _FOREIGN,
    "validity check failed": "has a certificate that has expired or is not valid yet; expected a "
    "valid certificate; renew the certificate, or check the clocks of both hosts",
    "No subject alternative": _ANOTHER_HOST,
    "No name matching": _ANOTHER_HOST,
    "PKIX path": "has a certificate that is not trusted; expected a certificate signed by an "
    "authority in jmx.cafile, or without this key by an authority that Java trusts; set jmx.cafile "
    "to the authority's PEM file",
    "Unsupported or unrecognized SSL message": "does not use TLS in its registry; expected "
    "-Dcom.sun.management.jmxremote.registry.ssl=true at the broker, or jmx.tls: false",
}
"""Part of the text of a Java exception → a clause with the reason why JMX refuses access, and with
the remedy. The first key that the text contains counts, because the text of one exception can
contain several keys."""

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)


SAMPLE_EACH_S = 0.004
"""The deadline of a sample leaves at least this much time for each node [s]."""
_GUARD, _FILTER, _POLLER = "RedlineJmxGuard", "RedlineJmxFilter", "RedlineJmxPoller"
_SOCKETS = "SslRMIClientSocketFactory"


class _JmxSource(BeanSource[JmxEndpoint]):
    """A source that reads JMX. The class makes the error for a node that does not answer."""

    def unreachable(self, endpoint: JmxEndpoint, error: str) -> ConfigError:
        """The error for a node that does not answer `open`, with a remedy."""
        remedy = next((remedy for sign, remedy in LOCKS.items() if sign in error), None)
        if remedy is not None:
            return ConfigError(
                f"JMX of broker {endpoint.node_id} at {endpoint.address} {remedy} ({brief(error)})"
            )
        return ConfigError(
            f"broker {endpoint.node_id} does not answer JMX at {endpoint.address}: "
            f"{brief(error)}. Its metrics are required to judge a load. Start it with "
            f"JMX_PORT={endpoint.port} and -Djava.rmi.server.hostname={endpoint.host}, open that "
            "port to this machine, or correct jmx.endpoints of the cluster's file in conf/clusters"
        )


def parse_answers(text: str) -> list[BeanAnswer]:
    """The answers of all nodes, parsed from the poller's text. The module describes the format."""
    answers = []
    for part in text.split("#\t")[1:]:
        head, *lines = part.rstrip("\n").split("\n")
        node_id, begin_us, end_us, error = head.split("\t")
        values = dict(line.split("\t", 1) for line in lines)
        at_s = (int(begin_us) + int(end_us)) / 2e6
        answers.append(BeanAnswer(int(node_id), at_s, error or None, values))
    return answers


def plan_text(readings: Iterable[Reading]) -> str:
    """The text of the poller's plan for the given readings."""
    return "\n".join(f"{r.name}\t{r.object_name}\t{r.attribute}\t{r.key or ''}" for r in readings)


class DriverJvmSource(_JmxSource):
    """A source that reads JMX with the driver's JVM.

    Args:
        jvm: py4j's view of the JVM, such as `spark._jvm`.
        endpoints: the nodes to read, and the controllers if they are known.
        deadline_s: time after which a node's sample counts as missing [s]. The deadline is at least
            `SAMPLE_EACH_S` for each node.
        access: login and certificates for JMX, or None if JMX needs no login.
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
        access = self._access
        if access is not None and access.username is not None:
            self._poller.logIn(access.username, access.password)
        if access is not None and access.is_tls:
            trusted = "".join(map(ssl.DER_cert_to_PEM_cert, access.trusted()))
            guard.trust(trusted, access.check_hostname)
            self._poller.useTls()
        for endpoint in self._endpoints:
            self._poller.add(endpoint.node_id, endpoint.url)

    def _plan(self, readings: Mapping[int, Sequence[Reading]]) -> None:
        for node_id, own in readings.items():
            self._poller.plan(node_id, plan_text(own))

    def _answers(self, deadline_s: float) -> list[BeanAnswer]:
        return parse_answers(self._poller.sample(round(deadline_s * 1000)))

    def close(self) -> None:
        """Close all connections, as `MetricsSource.close` describes."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.close()


_OF_JAVA = (
    "HOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LANG", "LC_ALL", "LC_CTYPE",
    "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ",
)  # fmt: skip
"""The environment variables that Java reads, and that are passed on to it. No other environment
variables are passed on to Java, because they may contain secrets."""

_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Option that turns off Java's second compiler (C2), whose code a JVM that runs for only one second
never uses."""


def ask(
    connection: jmxquery.JMXConnection,
    queries: Sequence[jmxquery.JMXQuery],
    access: JmxAccess | None,
    timeout_s: float,
) -> list[jmxquery.JMXQuery]:
    """Run queries as `connection.query` does, but hide the password from other users of the
    machine.

    Args:
        connection: the node and the `java` command.
        queries: the attributes to read.
        access: login for JMX, or None if JMX needs no login.
        timeout_s: longest wait for an answer [s].

    Raises:
        subprocess.CalledProcessError: the program failed, for the reason in its `stdout`.
        subprocess.TimeoutExpired: no answer arrived within `timeout_s`.
        ValueError: the answer is cut off.
    """
    query_text = "".join(f"{query.to_query_string()};" for query in queries)
    arguments = [_QUICK_COMPILER, f"-Djdk.serialFilter={ANSWERS}", "-jar", jmxquery.JAR_PATH]
    arguments += ["-url", connection.connection_uri, "-json"]
    if access is not None:
        arguments += ["-u", access.username or "", "-p", access.password or ""]
    arguments += ["-q", query_text]
    descriptor, name = tempfile.mkstemp(prefix="redline-jmx-")  # only its owner can read the file
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            # Java's launcher quotes like JSON, except for non-ASCII characters.
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


# jmxquery's errors are in exceptions and samples. Its log would repeat them on the console.
logging.getLogger("jmxquery").setLevel(logging.CRITICAL)


class JmxQuerySource(_JmxSource, BeanPoller[JmxEndpoint]):
    """A source that reads JMX with a new JVM for each broker and each sample.

    Args:
        endpoints, deadline_s, clock: see `BeanPoller`.
        java: path or name of the `java` command.
        access: login for JMX, or None if JMX needs no login.

    Raises:
        ConfigError: `access` requires TLS, which the Java program of `jmxquery` does not support.
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
                "jmx.tls is true, but this Spark session has no JVM in the driver (Spark Connect "
                "or serverless), which JMX with TLS requires; expected jmx.tls: false, "
                "metrics.prometheus, or a session with a JVM"
            )
        super().__init__(endpoints, deadline_s, clock)
        self._access = access
        self._java = java

    def poll(
        self, endpoint: JmxEndpoint, beans: Mapping[str, Sequence[str]], timeout_s: float
    ) -> Iterator[BeanValue]:
        """Read beans of one node, as `BeanPoller.poll` describes."""
        # With a key in the query, JMXQuery would send it twice and return all items twice.
        queries = [jmxquery.JMXQuery(name, each) for name in beans for each in beans[name]]
        connection = jmxquery.JMXConnection(endpoint.url, java_path=self._java)
        try:
            results = ask(connection, queries, self._access, timeout_s)
        except subprocess.CalledProcessError as error:
            output = error.stdout or error.stderr or b""
            raise PollError(output.decode(errors="replace").strip()) from error
        except FileNotFoundError as error:
            raise PollError(f"{self._java!r} is not on the PATH; install Java 17") from error
        except (subprocess.TimeoutExpired, ValueError) as error:  # the JSON may be cut off
            raise PollError(f"no answer within {timeout_s:g} s") from error
        if not results:
            raise PollError(f"no answer within {timeout_s:g} s")
        return iter(
            BeanValue(each.mBeanName, each.attribute, each.value, each.attributeKey)
            for each in results
        )


JMXQUERY_DEADLINE_S = 5.0
"""Minimum deadline of a sample with jmxquery [s]. A JVM of jmxquery starts in 2 s on a busy
machine."""


def open_jmx(
    addresses: Mapping[int, str],
    jvm: Any | None,
    deadline_s: float = 2.0,
    access: JmxAccess | None = None,
) -> MetricsSource:
    """Open a source that reads nodes over JMX.

    Args:
        addresses: node id → `host:port` of its JMX, for all brokers, and for the controllers if
            they are known.
        jvm: the driver's JVM (`spark._jvm`), or None if the driver has no JVM (Spark Connect and
            serverless).
        deadline_s: time after which a node's sample counts as missing [s]. With jmxquery, which
            starts a JVM for each node, the deadline is at least 5 s.
        access: login and certificates for JMX, or None if JMX needs no login.

    Raises:
        ConfigError: there is no address, a node cannot be reached, or its metrics do not suffice.
    """
    if not addresses:
        raise ConfigError(
            "no JMX address of a broker is known; expected an address of each broker, because its "
            "metrics are required to judge a load; set jmx.port or jmx.endpoints in the cluster's "
            "file in conf/clusters"
        )
    endpoints = [JmxEndpoint.parse(node, address) for node, address in sorted(addresses.items())]
    source: MetricsSource
    if jvm is not None:
        source = DriverJvmSource(jvm, endpoints, deadline_s, access)
    else:
        source = JmxQuerySource(endpoints, max(deadline_s, JMXQUERY_DEADLINE_S), access=access)
    source.open()
    return source
