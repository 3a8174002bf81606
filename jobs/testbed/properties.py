"""The content of the files that a node reads: server.properties and meta.properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import javaproperties

from jobs.testbed.handler_time import handler_time_properties
from jobs.testbed.listeners import listener_properties
from jobs.testbed.model import RACK_PROPERTY, Node, NodeRole, Spec

_REPLICAS_MAX = 3


ZOOKEEPER_TICK_MS = 500
ZOOKEEPER_SESSION_MS = 6_000
"""Time after which a killed broker's registration ends; Kafka's 18 s would delay its restart."""


def node_properties(
    spec: Spec, node: Node, nodes: Sequence[Node], data_dirs: str
) -> dict[str, str]:
    """All properties of one node; the launcher's own come last and override all others.

    Args:
        spec: the testbed.
        node: the node.
        nodes: all Kafka nodes of the testbed, and ZooKeeper.
        data_dirs: its log dirs, separated by commas.
    """
    if node.role is NodeRole.ZOOKEEPER:
        return _zookeeper_properties(node, data_dirs)
    properties = {**internal_topic_properties(spec.brokers), **spec.broker_properties}
    if node.role is NodeRole.CONTROLLER or node.controller_port is not None:
        properties.update(spec.controller_properties)
    if node.role is NodeRole.CONTROLLER:
        properties["listeners"] = f"CONTROLLER://{node.address}"
    else:
        properties.update(listener_properties(node))
        properties.update(handler_time_properties(spec, node.node_id))
        if rack := spec.rack_of(node.node_id):
            properties[RACK_PROPERTY] = rack
    if spec.metadata == "zookeeper":
        properties.update(_of_zookeeper_mode(spec, node, nodes))
    else:
        properties.update(_of_kraft(node, nodes))
    return {**properties, "log.dirs": data_dirs}


def _of_kraft(node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    # Every release supports static voters.
    voters = (
        f"{each.node_id}@{each.host}:{each.controller_port or each.port}"
        for each in nodes
        if each.role is NodeRole.CONTROLLER or each.controller_port is not None
    )
    is_combined = node.controller_port is not None
    return {
        "process.roles": "broker,controller" if is_combined else node.role.value,
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
    }


def _of_zookeeper_mode(spec: Spec, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    zookeeper = next(each for each in nodes if each.role is NodeRole.ZOOKEEPER)
    properties = {
        "broker.id": str(node.node_id),
        "zookeeper.connect": zookeeper.address,
        "zookeeper.session.timeout.ms": str(ZOOKEEPER_SESSION_MS),
    }
    if len(spec.releases) > 1:  # as in a rolling upgrade, until all brokers have the new release
        oldest = ".".join(spec.releases[0].split(".")[:2])
        properties["inter.broker.protocol.version"] = oldest
    return properties


def _zookeeper_properties(node: Node, data_dir: str) -> dict[str, str]:
    """The content of ZooKeeper's zoo.cfg."""
    return {
        "dataDir": data_dir,
        "clientPort": str(node.port),
        "clientPortAddress": node.host,
        "tickTime": str(ZOOKEEPER_TICK_MS),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
    }


def internal_topic_properties(brokers: int) -> dict[str, str]:
    """The replication of Kafka's internal topics, limited to the number of brokers."""
    replicas = str(min(_REPLICAS_MAX, brokers))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
    }


def meta_properties(cluster_id: str, node_id: int, directory_id: str) -> dict[str, str]:
    """The content of meta.properties, as `kafka.tools.StorageTool format` writes it.

    Only the controller's log dir also needs the tool's bootstrap.checkpoint, so the testbed
    writes the brokers' files itself and saves a JVM for each.
    """
    return {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id,
    }


def render(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file, in alphabetical order of the keys."""
    return javaproperties.dumps(properties, timestamp=None, sort_keys=True)
