"""Broker metrics over JMX through the driver's own JVM: one call for each sample, no new process.

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
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metrics.common.errors import ConfigError
from metrics.sources.access import ANSWERS, LOCKS, JmxAccess
from metrics.sources.bean_poller import BeanAnswer, BeanSource, brief
from metrics.sources.beans import Reading
from metrics.sources.java_class import bytecodes, compiled, java_source, named_apart
from metrics.sources.source import JmxEndpoint

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
    """Parse the poller's answer, whose format `metrics.sources.driver_jvm` describes."""
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
