"""The first answer of a process over JMX: its version, node id and roles, or the reason why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from metrics.common.broker_costs import jmx_interval_s
from metrics.common.errors import ConfigError
from metrics.sources.access import remedy_of_lock
from metrics.sources.beans import (
    ARGUMENTS,
    FACTS,
    FROM_FIRST_USE,
    HANDLER_IDLE_NS,
    PARTITIONS,
    QUORUM,
    Reading,
    Role,
    beans_for,
    readings_of,
)
from metrics.sources.exposition import numbers
from metrics.sources.shared_handlers import controller_share
from metrics.sources.source import Endpoint, JmxEndpoint, NodeInfo

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
