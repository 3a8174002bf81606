"""A ready testbed has its documented state."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from jobs.cluster.admin import KafkaAdmin
from jobs.testbed.handle import Testbed
from jobs.testbed.model import CONTROLLER_ID, HOST
from jobs.testbed.nodes import registered_brokers
from jobs.testbed.places import accepts
from tests.support.exporters import Exporter

pytestmark = pytest.mark.together


def test_a_ready_testbed_has_its_documented_state(
    kafka_testbed: Testbed, exporters: dict[int, Exporter], admin: KafkaAdmin
) -> None:
    assert kafka_testbed.broker_ids == (1, 2, 3)
    assert set(kafka_testbed.jmx_endpoints) == {1, 2, 3}
    assert set(kafka_testbed.pids) == {CONTROLLER_ID, 1, 2, 3}
    cluster = admin.client.describe_cluster()
    at = {f"{each['host']}:{each['port']}" for each in cluster["brokers"]}
    assert at == set(kafka_testbed.bootstrap_servers)
    for broker in kafka_testbed.brokers.values():
        assert registered_brokers(broker.port, timeout_s=5) == {1, 2, 3}
        assert kafka_testbed.jmx_endpoints[broker.node_id] == f"{HOST}:{broker.jmx_port}"
        assert accepts(broker.jmx_port, timeout_s=5)
        log = (Path(broker.directory) / "server.log").read_text()
        assert f"Kafka version: {kafka_testbed.kafka_version}" in log
    for node in (kafka_testbed.controller, *kafka_testbed.brokers.values()):
        listening = {
            connection.laddr.port: connection.laddr.ip
            for connection in psutil.Process(kafka_testbed.pids[node.node_id]).net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening.pop(node.port) == listening.pop(node.jmx_port) == HOST, node.node_id
        if node.node_id in exporters:
            assert listening.pop(exporters[node.node_id].port) == HOST
        # The JVM's attach port: the JVM refuses connections from other machines.
        assert len(listening) == 1, node.node_id
