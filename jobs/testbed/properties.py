"""The files that a node reads: server.properties and meta.properties. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import javaproperties

from jobs.testbed.handler_time import handler_time_properties
from jobs.testbed.listeners import listener_properties
from jobs.testbed.model import CONTROLLER_ID, Node, NodeRole, Spec

_REPLICAS_MAX = 3


def node_properties(spec: Spec, node: Node, controller_port: int, data_dirs: str) -> dict[str, str]:
    """All properties of one node; what the launcher decides comes last, so nothing undoes it.

    Args:
        spec: the testbed.
        node: the node.
        controller_port: port of the controller's listener.
        data_dirs: its log dirs, with commas between them.
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
            # Static voters: the one way that every release from 3.9 on takes without more.
            "controller.quorum.voters": f"{CONTROLLER_ID}@{node.host}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": data_dirs,
        }
    )
    return properties


def internal_topic_properties(brokers: int) -> dict[str, str]:
    """Replication of Kafka's own topics, which cannot be larger than the cluster."""
    replicas = str(min(_REPLICAS_MAX, brokers))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
    }


def meta_properties(cluster_id: str, node_id: int, directory_id: str) -> dict[str, str]:
    """What `kafka.tools.StorageTool format` writes into a broker's log dir.

    Only the controller's log dir also needs the tool's bootstrap.checkpoint. Writing the
    brokers' own saves a JVM for each.
    """
    return {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id,
    }


def render(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file, one key a line in alphabetical order."""
    return javaproperties.dumps(properties, timestamp=None, sort_keys=True)
