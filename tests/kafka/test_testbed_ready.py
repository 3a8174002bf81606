"""A ready testbed has its documented state."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.model import CONTROLLER_ID, HOST
from jobs.testbed.nodes import registered_brokers
from jobs.testbed.places import accepts
from tests.support.exporters import Exporter

pytestmark = pytest.mark.together


def test_every_broker_knows_all_brokers_and_the_controller_is_not_one(
    kafka_testbed: Testbed,
) -> None:
    assert kafka_testbed.broker_ids == (1, 2, 3)
    for broker in kafka_testbed.brokers.values():
        assert registered_brokers(broker.port, timeout_s=5) == {1, 2, 3}
    assert CONTROLLER_ID not in kafka_testbed.broker_ids
    assert set(kafka_testbed.pids) == {CONTROLLER_ID, 1, 2, 3}


def test_kafka_python_reaches_it_by_its_bootstrap_servers(kafka_testbed: Testbed) -> None:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=list(kafka_testbed.bootstrap_servers))
    try:
        cluster = admin.describe_cluster()
    finally:
        admin.close()
    at = {f"{each['host']}:{each['port']}" for each in cluster["brokers"]}
    assert at == set(kafka_testbed.bootstrap_servers)


def test_the_testbed_listens_on_loopback_only(
    kafka_testbed: Testbed, exporters: dict[int, Exporter]
) -> None:
    nodes = [kafka_testbed.controller, *kafka_testbed.brokers.values()]
    for node in nodes:
        listening = {
            connection.laddr.port: connection.laddr.ip
            for connection in psutil.Process(kafka_testbed.pids[node.node_id]).net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening.pop(node.port) == HOST
        assert listening.pop(node.jmx_port) == HOST
        if node.node_id in exporters:
            assert listening.pop(exporters[node.node_id].port) == HOST
        # The JVM's attach port: the JVM refuses connections from other machines.
        assert len(listening) == 1


def test_jmx_of_every_broker_accepts(kafka_testbed: Testbed) -> None:
    assert set(kafka_testbed.jmx_endpoints) == {1, 2, 3}
    for endpoint in kafka_testbed.jmx_endpoints.values():
        host, port = endpoint.split(":")
        assert host == HOST
        assert accepts(int(port), timeout_s=5)


def test_logs_exist_while_it_runs_and_have_the_version(kafka_testbed: Testbed) -> None:
    for node in kafka_testbed.brokers.values():
        log = (Path(node.directory) / "server.log").read_text()
        assert f"Kafka version: {kafka_testbed.kafka_version}" in log
