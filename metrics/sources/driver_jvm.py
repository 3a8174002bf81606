"""Broker metrics over JMX through the driver's own JVM: one call for each sample, no new process.

It works with any py4j view of a JVM that has Janino on its class path, such as `spark._jvm` of
Spark's driver, and does not depend on Spark.

The first answer of a process over JMX: its version, node id and roles, or the reason why not.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metrics.common.errors import ConfigError
from metrics.sources import guard_java, poller_java
from metrics.sources.access import ANSWERS, JmxAccess, remedy_of_lock
from metrics.sources.beans import (
    ARGUMENTS,
    AT_START,
    FACTS,
    FROM_FIRST_USE,
    HANDLER_IDLE_NS,
    PARTITIONS,
    QUORUM,
    Reading,
    Role,
    beans_for,
    controller_share,
    readings_of,
    with_own_idle,
)
from metrics.sources.exposition import numbers
from metrics.sources.java_class import bytecodes, compiled, named_apart
from metrics.sources.sample import BrokerSample
from metrics.sources.source import Endpoint, JmxEndpoint, NodeInfo, jmx_interval_s

_HARMLESS = re.compile(r"-X(?:m[nsx]|ss)\d+[kmgtKMGT]?|-XX:[+-]\w+|-XX:\w+=[\d.]+[kmgtKMGT%]?")


def unreachable(endpoint: JmxEndpoint, error: str) -> ConfigError:
    """The error for a node that did not answer, with its remedy."""
    remedy = remedy_of_lock(error)
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


def brief(error: str) -> str:
    """The innermost cause of a Java exception's text, on one line.

    RMI nests up to four exceptions in one message; the last names the cause.
    """
    last = " ".join(error.split()).rsplit("nested exception is:", 1)[-1].strip(" ]\"'}")
    return last.removeprefix("java.net.").removeprefix("java.io.")


def node_info(endpoint: Endpoint, values: Mapping[str, str]) -> NodeInfo:
    """The node behind an endpoint, from the answers to `metrics.sources.beans.AT_START`.

    Raises:
        ConfigError: the process is not a Kafka node, or has another node id than expected.
    """
    versions = {
        name.partition(":")[2]: text for name, text in values.items() if name.startswith("version:")
    }
    if not versions:
        raise ConfigError(
            f"the JVM at {endpoint.address} is not a running Kafka broker: it has no "
            f"kafka.server:type=app-info bean. Expected broker {endpoint.node_id} there; "
            f"correct jmx.endpoints of the cluster's file in conf/clusters"
        )
    if str(endpoint.node_id) not in versions:
        found = ", ".join(sorted(versions))
        raise ConfigError(
            f"JMX at {endpoint.address} answers as node {found}, expected node "
            f"{endpoint.node_id}; correct jmx.endpoints of the cluster's file in conf/clusters"
        )
    roles = frozenset(role for role in Role if role.value in values)
    facts = {fact.name: values[fact.name] for fact in FACTS if fact.name in values}
    if ARGUMENTS in facts:
        facts[ARGUMENTS] = harmless_arguments(facts[ARGUMENTS])
    version = versions[str(endpoint.node_id)]
    return NodeInfo(
        endpoint.node_id,
        version,
        roles,
        facts,
        has_quorum=QUORUM in values,
        spared_s=jmx_interval_s(int(numbers(values).get(PARTITIONS.name, 0))),
    )


def readings_for(node: NodeInfo) -> tuple[Reading, ...]:
    """The numbers to read from a node."""
    return readings_of(beans_for(node.version, node.roles, has_quorum=node.has_quorum))


def with_lacks(node: NodeInfo, values: Mapping[str, float]) -> NodeInfo:
    """The node with the readings that its release lacks, from its first sample.

    Args:
        values: the readings of that sample, with the derived ones.

    Raises:
        ConfigError: a broker does not show the idle time of its request handlers.
    """
    if Role.BROKER in node.roles and HANDLER_IDLE_NS not in values:
        raise ConfigError(
            f"broker {node.node_id}, Kafka {node.version}, does not show the idle time of its "
            f"request handlers over JMX (Count of RequestHandlerAvgIdlePercent), which is required "
            f"to recognize an overload; check its log, or set metrics.client_only: true"
        )
    have = {*FROM_FIRST_USE, *(name.partition(":")[0] for name in values)}
    lacks = tuple(dict.fromkeys(r.name for r in readings_for(node) if r.name not in have))
    return replace(node, lacks=lacks, controller_share=controller_share(values))


def harmless_arguments(text: str) -> str:
    """The JVM's arguments about memory, garbage collection and compilation, sorted.

    All others are left out: a system property or an agent's options may contain a secret, and a
    command or a path does not affect the speed.
    """
    given = (word.strip("[], ") for word in text.split(", "))
    return " ".join(sorted({word for word in given if _HARMLESS.fullmatch(word)}))


OPEN_DEADLINE_S = 15.0
"""Deadline of the first answer on a busy machine, the connection included [s]."""
OPEN_EACH_S = 0.05
SAMPLE_EACH_S = 0.004
"""Least time in a deadline for each node: for the connection to it, and for a sample [s]."""


@dataclass(frozen=True)
class NodeAnswer:
    """One broker's part of the poller's answer, as text."""

    node_id: int
    at_s: float
    error: str | None
    values: Mapping[str, str]


def parse_answers(text: str) -> list[NodeAnswer]:
    """Parse the poller's answer, whose format `metrics.sources.poller_java` describes."""
    answers = []
    for part in text.split("#\t")[1:]:
        head, *lines = part.rstrip("\n").split("\n")
        node_id, begin_us, end_us, error = head.split("\t")
        values = dict(line.split("\t", 1) for line in lines)
        at_s = (int(begin_us) + int(end_us)) / 2e6
        answers.append(NodeAnswer(int(node_id), at_s, error or None, values))
    return answers


def plan_text(readings: Iterable[Reading]) -> str:
    """The poller's plan for these readings."""
    return "\n".join(f"{r.name}\t{r.object_name}\t{r.attribute}\t{r.key or ''}" for r in readings)


def _readings_in(answer: NodeAnswer) -> dict[str, float]:
    return with_own_idle(numbers(answer.values), answer.at_s)


class DriverJvmSource:
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
        self._jvm = jvm
        self._access = access
        self._endpoints = endpoints
        self._deadline_ms = round(max(deadline_s, SAMPLE_EACH_S * len(endpoints)) * 1000)
        self._poller: Any = None
        self.nodes: Mapping[int, NodeInfo] = {}

    def open(self) -> None:
        """See `MetricsSource.open`."""
        guard = compiled(self._jvm, guard_java.NAME, guard_java.SOURCE)
        guard.allow(ANSWERS)
        compiled(self._jvm, guard_java.FILTER_NAME, guard_java.FILTER_SOURCE).install()
        name, poller = named_apart(poller_java.NAME, poller_java.SOURCE)
        for source in (guard_java.SOCKETS_SOURCE, poller):
            guard.own(bytecodes(self._jvm, source))
        self._poller = guard.loadClass(name).newInstance()
        try:
            if self._access is not None:
                self._unlock(self._access, guard)
            self.nodes = self._probe()
            for node in self.nodes.values():
                self._poller.plan(node.node_id, plan_text(readings_for(node)))
            self.nodes = self._with_lacks(self.nodes)
        except BaseException:
            self.close()
            raise

    def _unlock(self, access: JmxAccess, guard: Any) -> None:
        if access.username is not None:
            self._poller.logIn(access.username, access.password)
        if access.is_tls:
            trusted = "".join(map(ssl.DER_cert_to_PEM_cert, access.trusted()))
            guard.trust(trusted, access.check_hostname)
            self._poller.useTls()

    def _probe(self) -> dict[int, NodeInfo]:
        for endpoint in self._endpoints:
            self._poller.add(endpoint.node_id, endpoint.url)
            self._poller.plan(endpoint.node_id, plan_text(AT_START))
        return {
            endpoint.node_id: self._node(endpoint, answer.values)
            for endpoint, answer in self._first_answers()
        }

    def _first_answers(self) -> Iterator[tuple[JmxEndpoint, NodeAnswer]]:
        """The answer of each node to its plan, within the deadline of the opening."""
        deadline_s = max(OPEN_DEADLINE_S, OPEN_EACH_S * len(self._endpoints))
        answers = parse_answers(self._poller.sample(round(deadline_s * 1000)))
        for endpoint, answer in zip(self._endpoints, answers, strict=True):
            if answer.error is not None:
                raise unreachable(endpoint, answer.error)
            yield endpoint, answer

    def _with_lacks(self, nodes: Mapping[int, NodeInfo]) -> dict[int, NodeInfo]:
        """The nodes with the readings that their releases lack."""
        return {
            endpoint.node_id: with_lacks(nodes[endpoint.node_id], _readings_in(answer))
            for endpoint, answer in self._first_answers()
        }

    def _node(self, endpoint: JmxEndpoint, values: Mapping[str, str]) -> NodeInfo:
        return node_info(endpoint, values)

    def sample_all(self) -> list[BrokerSample]:
        """See `MetricsSource.sample_all`."""
        return [
            BrokerSample(answer.node_id, answer.at_s, _readings_in(answer), answer.error)
            for answer in parse_answers(self._poller.sample(self._deadline_ms))
        ]

    def close(self) -> None:
        """See `MetricsSource.close`."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.close()
