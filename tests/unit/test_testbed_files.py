"""The files and command lines of nodes, and the state that three processes share."""

from __future__ import annotations

import json
import os
import random
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.testbed import authorizer_java
from jobs.testbed.errors import TestbedStartError
from jobs.testbed.handler_time import limit_lines
from jobs.testbed.jvm import MARKER, format_command, server_command, writes_archive
from jobs.testbed.logs import error_lines, says_address_in_use
from jobs.testbed.model import (
    CONTROLLER_ID,
    HOST,
    Node,
    NodeRole,
    ProcessRecord,
    State,
    Status,
)
from jobs.testbed.nodes import Nodes, random_id
from jobs.testbed.places import disk_bytes, node_files, read_state, write_state
from jobs.testbed.ports import FIRST_PORT, LAST_PORT, free_ports
from jobs.testbed.properties import node_properties, render
from tests.support.testbed_spec import SPEC


def broker(folder: Path) -> Node:
    return Node(2, NodeRole.BROKER, 20002, 20012, str(folder / "broker-2"))


def controller(folder: Path) -> Node:
    return Node(CONTROLLER_ID, NodeRole.CONTROLLER, 20000, 20010, str(folder / "controller"))


def test_a_broker_listens_on_loopback_and_finds_the_controller(tmp_path: Path) -> None:
    properties = node_properties(SPEC, broker(tmp_path), (controller(tmp_path),), "/data")
    assert properties["process.roles"] == "broker"
    assert properties["node.id"] == "2"
    assert (
        properties["listeners"]
        == properties["advertised.listeners"]
        == ("PLAINTEXT://127.0.0.1:20002")
    )
    assert properties["controller.quorum.voters"] == "100@127.0.0.1:20000"
    assert properties["log.dirs"] == "/data"
    assert properties["num.io.threads"] == "2"


def test_internal_topics_fit_the_cluster_unless_the_profile_sets_them(tmp_path: Path) -> None:
    properties = node_properties(SPEC, broker(tmp_path), (controller(tmp_path),), "/data")
    assert properties["transaction.state.log.replication.factor"] == "2"
    assert properties["offsets.topic.replication.factor"] == "1"


def test_the_controller_reads_the_brokers_properties_and_then_its_own(tmp_path: Path) -> None:
    properties = node_properties(SPEC, controller(tmp_path), (controller(tmp_path),), "/data")
    assert properties["process.roles"] == "controller"
    assert properties["listeners"] == "CONTROLLER://127.0.0.1:20000"
    assert properties["num.io.threads"] == "1"
    assert properties["offsets.topic.replication.factor"] == "1"
    assert "advertised.listeners" not in properties


def test_a_broker_with_zookeeper_has_its_address_and_no_kraft_properties(tmp_path: Path) -> None:
    zookeeper = Node(CONTROLLER_ID, NodeRole.ZOOKEEPER, 20000, 20010, str(tmp_path / "zookeeper"))
    spec = replace(SPEC, metadata="zookeeper", kafka_version="3.6.2")
    properties = node_properties(spec, broker(tmp_path), (zookeeper,), "/data")
    assert (properties["broker.id"], properties["zookeeper.connect"]) == ("2", "127.0.0.1:20000")
    assert not [name for name in properties if name.startswith(("process.", "controller."))]
    assert "inter.broker.protocol.version" not in properties
    upgrading = replace(spec, broker_releases={"1": "3.9.2"})
    properties = node_properties(upgrading, broker(tmp_path), (zookeeper,), "/data")
    assert properties["inter.broker.protocol.version"] == "3.6"
    own = node_properties(spec, zookeeper, (zookeeper,), "/zk")
    assert (own["dataDir"], own["clientPort"]) == ("/zk", "20000")
    assert own["clientPortAddress"] == HOST


def test_combined_brokers_are_voters_with_a_listener_of_their_own(tmp_path: Path) -> None:
    nodes = [replace(broker(tmp_path), node_id=i, controller_port=20040 + i) for i in (1, 2)]
    properties = node_properties(replace(SPEC, metadata="combined"), nodes[1], nodes, "/data")
    assert properties["process.roles"] == "broker,controller"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:20041,2@127.0.0.1:20042"
    assert properties["listeners"].endswith(",CONTROLLER://127.0.0.1:20042")
    assert "CONTROLLER" not in properties["advertised.listeners"]


def test_brokers_are_in_racks_by_turns_and_the_controller_in_none(tmp_path: Path) -> None:
    nodes = [replace(broker(tmp_path), node_id=number) for number in (1, 2, 3)]
    spec = replace(SPEC, brokers=3, racks=2)
    racks = [
        node_properties(spec, node, (controller(tmp_path),), "/data")["broker.rack"]
        for node in nodes
    ]
    assert racks == ["rack-1", "rack-2", "rack-1"]
    own = node_properties(spec, controller(tmp_path), (controller(tmp_path),), "/data")
    assert "broker.rack" not in own
    without = node_properties(SPEC, nodes[0], (controller(tmp_path),), "/data")
    assert "broker.rack" not in without
    assert "2 racks" in spec.title and "rack" not in SPEC.title


def test_a_broker_of_another_release_has_its_own_class_path_and_no_archive(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.touch()
    spec = replace(
        SPEC, class_archive=str(archive), broker_jars={"2": ("/new.jar",)}, jars=("/old.jar",)
    )
    command = server_command(spec, broker(tmp_path))
    assert command[command.index("-cp") + 1] == "/new.jar"
    assert not [each for each in command if str(archive) in each]
    other = server_command(spec, replace(broker(tmp_path), node_id=1))
    assert other[other.index("-cp") + 1] == "/old.jar"
    assert [each for each in other if str(archive) in each]


def test_the_log_dir_is_formatted_for_the_oldest_release(tmp_path: Path) -> None:
    assert "--release-version" not in format_command(SPEC, controller(tmp_path), "id")
    mixed = replace(SPEC, kafka_version="4.1.2", broker_releases={"2": "3.9.2"})
    command = format_command(mixed, controller(tmp_path), "id")
    assert command[command.index("--release-version") + 1] == "3.9"


def test_no_property_overrides_those_of_the_launcher(tmp_path: Path) -> None:
    spec = replace(SPEC, broker_properties={"listeners": "PLAINTEXT://0.0.0.0:9092"})
    properties = node_properties(spec, broker(tmp_path), (controller(tmp_path),), "/data")
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20002"


def test_each_broker_has_its_stated_handler_time_and_the_controller_none(tmp_path: Path) -> None:
    spec = replace(SPEC, produce_handler_ms={"1": 5.0, "2": 7.25})
    properties = node_properties(spec, broker(tmp_path), (controller(tmp_path),), "/data")
    assert properties["authorizer.class.name"] == authorizer_java.NAME
    assert properties[authorizer_java.HANDLER_TIME_PROPERTY] == "7250000"
    others = [
        node_properties(spec, controller(tmp_path), (controller(tmp_path),), "/data"),
        node_properties(SPEC, broker(tmp_path), (controller(tmp_path),), "/data"),
    ]
    for each in others:
        assert not {"authorizer.class.name", authorizer_java.HANDLER_TIME_PROPERTY} & set(each)
    state = State(spec, Status.STARTING, created_s=1.0)
    assert State.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_the_authorizer_reads_the_property_that_is_written() -> None:
    assert f'properties.get("{authorizer_java.HANDLER_TIME_PROPERTY}")' in authorizer_java.SOURCE
    assert f"public class {authorizer_java.NAME} implements" in authorizer_java.SOURCE
    assert "@" not in authorizer_java.SOURCE


def test_the_planted_limit_of_each_broker_is_printed() -> None:
    assert limit_lines(SPEC) == []
    spec = replace(SPEC, produce_handler_ms={"1": 5.0, "2": 0.0})
    first, second = limit_lines(spec)
    assert first == (
        "  planted, broker 1  320.0 produce requests/s at most: 2 handlers x 0.80 / 5 ms, "
        "before the own time of a request"
    )
    assert second == "  planted, broker 2  no limit: 0 ms in a produce request"
    one = replace(SPEC, broker_properties={}, produce_handler_ms={"1": 8.0})
    assert "800.0 produce requests/s at most: 8 handlers" in limit_lines(one)[0]


def test_rendering_escapes_as_java_reads_it() -> None:
    text = render({"b": " C:\\x\ny", "a key:": "é=1"})
    assert text == "a\\ key\\:=\\u00e9\\=1\nb=\\ C\\:\\\\x\\ny\n"


def test_a_server_carries_the_marker_and_opens_jmx_on_loopback(tmp_path: Path) -> None:
    node = broker(tmp_path)
    command = server_command(SPEC, node)
    assert command[0] == SPEC.java
    assert f"{MARKER}small-00c0ffee" in command
    assert "-Xmx256m" in command
    assert "-Dcom.sun.management.jmxremote.port=20012" in command
    assert "-Dcom.sun.management.jmxremote.rmi.port=20012" in command
    assert f"-Dcom.sun.management.jmxremote.host={HOST}" in command
    assert f"-Djava.rmi.server.hostname={HOST}" in command
    assert command[-2:] == ["kafka.Kafka", str(node_files(node).properties)]
    assert command[command.index("-cp") + 1] == "/jars/a.jar:/jars/b.jar"


def test_a_node_gets_its_own_java_options_and_no_other(tmp_path: Path) -> None:
    node = broker(tmp_path)
    agent = "-javaagent:/agent.jar=127.0.0.1:9404:/rules.yaml"
    spec = replace(SPEC, node_jvm_options={str(node.node_id): (agent,)})
    command = server_command(spec, node)
    assert command.index(agent) < command.index("-cp")
    assert agent not in server_command(spec, controller(tmp_path))
    state = State(spec, Status.STARTING, created_s=1.0)
    assert State.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_options_of_the_profile_reach_every_jvm_after_kafkas_own(tmp_path: Path) -> None:
    spec = replace(SPEC, jvm_options=("-XX:TieredStopAtLevel=1", "-Xss512k"))
    for node in (broker(tmp_path), controller(tmp_path)):
        command = server_command(spec, node)
        given = [command.index(option) for option in spec.jvm_options]
        assert command.index("-XX:+UseG1GC") < given[0] < given[1] < command.index("-cp")
    state = State(spec, Status.STARTING, created_s=1.0)
    assert State.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_the_command_of_formatting_has_the_marker(tmp_path: Path) -> None:
    command = format_command(SPEC, controller(tmp_path), "abc")
    assert f"{MARKER}small-00c0ffee" in command
    assert command[-5:-1] == ["format", "-t", "abc", "-c"]


def test_only_the_controller_writes_the_class_archive_and_only_once(tmp_path: Path) -> None:
    spec = replace(SPEC, class_archive=str(tmp_path / "classes.jsa"))
    assert writes_archive(spec, controller(tmp_path))
    assert not writes_archive(spec, broker(tmp_path))
    assert not writes_archive(SPEC, controller(tmp_path))
    (tmp_path / "classes.jsa").touch()
    assert not writes_archive(spec, controller(tmp_path))
    assert f"-XX:SharedArchiveFile={spec.class_archive}" in server_command(spec, broker(tmp_path))


def test_a_second_layout_leaves_only_its_own_files(tmp_path: Path) -> None:
    nodes = Nodes(SPEC, tmp_path)
    nodes.lay_out(lambda count: list(range(21_000, 21_000 + count)))
    (node_files(nodes.brokers[0]).data / "old").touch()
    nodes.lay_out(lambda count: list(range(22_000, 22_000 + count)))
    assert [node.node_id for node in nodes.nodes] == [CONTROLLER_ID, 1, 2]
    assert [node.port for node in nodes.nodes] == [22_000, 22_002, 22_004]
    assert [node.jmx_port for node in nodes.nodes] == [22_001, 22_003, 22_005]
    data = node_files(nodes.brokers[0]).data
    assert [entry.name for entry in data.iterdir()] == ["meta.properties"]
    assert f"cluster.id={nodes.cluster_id}\n" in (data / "meta.properties").read_text()
    # The format tool refuses a folder that is formatted already.
    assert list(node_files(nodes.nodes[0]).data.iterdir()) == []


def test_random_ids_are_no_options() -> None:
    ids = {random_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_a_state_is_read_back_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    state = State(
        SPEC,
        Status.READY,
        created_s=123.5,
        owner=ProcessRecord(1, 2.5),
        supervisor=ProcessRecord(3, 4.5),
        nodes=(controller(tmp_path), broker(tmp_path)),
        processes=(ProcessRecord(5, 6.5, 2),),
    )
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert state.bootstrap_servers == ("127.0.0.1:20002",)
    text = (tmp_path / "state.json").read_text()
    for damaged in (text[: len(text) // 2], "[]", json.dumps({"spec": {}})):
        (tmp_path / "state.json").write_text(damaged)
        assert read_state(tmp_path) is None
    (tmp_path / "state.json").unlink()
    assert read_state(tmp_path) is None


def test_free_ports_are_distinct_bindable_and_below_the_clients_range() -> None:
    ports = free_ports(12, random.Random(1))
    assert len(set(ports)) == 12
    assert all(FIRST_PORT <= port <= LAST_PORT for port in ports)
    for port in ports:
        with socket.socket() as mine:
            mine.bind((HOST, port))


def test_a_port_in_use_is_skipped() -> None:
    first = free_ports(1, random.Random(7))[0]
    with socket.socket() as other:
        other.bind((HOST, first))
        assert free_ports(1, random.Random(7))[0] != first


def test_too_few_free_ports_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr("jobs.testbed.ports.FIRST_PORT", port)
    monkeypatch.setattr("jobs.testbed.ports.LAST_PORT", port)
    with pytest.raises(TestbedStartError, match=r"only 1 of 2 ports are free on 127\.0\.0\.1"):
        free_ports(2)


def test_disk_use_counts_blocks_and_not_lengths(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "full").write_bytes(os.urandom(1_000_000))
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(50_000_000)
    assert 1_000_000 <= disk_bytes([tmp_path]) < 2_000_000
    assert disk_bytes([tmp_path / "absent"]) == 0


def test_error_lines_are_those_with_the_cause(tmp_path: Path) -> None:
    node = broker(tmp_path)
    files = node_files(node)
    files.log.parent.mkdir()
    files.log.write_text(
        "[2026-11-21 10:00:00,000] INFO starting (kafka.Kafka)\n"
        "[2026-11-21 10:00:01,000] ERROR Exiting Kafka (kafka.Kafka)\n"
        "org.apache.kafka.common.config.ConfigException: Invalid value many\n"
        "\tat kafka.Kafka.main(Kafka.scala)\n"
        "[2026-11-21 10:00:02,000] ERROR Exiting Kafka (kafka.Kafka)\n"
    )
    assert error_lines(node) == [
        "[2026-11-21 10:00:01,000] ERROR Exiting Kafka (kafka.Kafka)",
        "org.apache.kafka.common.config.ConfigException: Invalid value many",
    ]
    assert not says_address_in_use(node)


def test_a_node_without_a_log_is_quoted_from_its_console(tmp_path: Path) -> None:
    node = broker(tmp_path)
    files = node_files(node)
    assert error_lines(node) == []
    files.console.parent.mkdir()
    files.console.write_text("Could not reserve enough space for object heap\n\n")
    assert error_lines(node) == ["Could not reserve enough space for object heap"]
    files.console.write_text("Error: JMX connector server: Port already in use: 20012\n")
    assert says_address_in_use(node)
