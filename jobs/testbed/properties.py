"""The content of the files that a node reads: server.properties and meta.properties."""

from __future__ import annotations

from collections.abc import Mapping

import javaproperties

from jobs.testbed.handler_time import handler_time_properties
from jobs.testbed.listeners import listener_properties
from jobs.testbed.model import CONTROLLER_ID, Node, NodeRole, Spec

_REPLICAS_MAX = 3


def node_properties(spec: Spec, node: Node, controller_port: int, data_dirs: str) -> dict[str, str]:
    """All properties of one node; the launcher's own come last and override all others.

    Args:
        spec: the testbed.
        node: the node.
        controller_port: port of the controller's listener.
        data_dirs: its log dirs, separated by commas.
    """
    properties = {**internal_topic_properties(spec.brokers), **spec.broker_properties}
    if node.role is NodeRole.CONTROLLER:
        properties.update(spec.controller_properties)
        properties["listeners"] = f"CONTROLLER://{node.address}"
    else:
        properties.update(listener_properties(node))
        properties.update(handler_time_properties(spec, node.node_id))
    properties.update(
        {
            "process.roles": node.role.value,
            "node.id": str(node.node_id),
            # Every release from 3.9 on supports static voters.
            "controller.quorum.voters": f"{CONTROLLER_ID}@{node.host}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": data_dirs,
        }
    )
    return properties


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
