"""The files and command lines of nodes, and the state that three processes share."""

from __future__ import annotations

import json
import os
import random
import socket
from dataclasses import asdict, replace
from pathlib import Path

import javaproperties
import pytest
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from jobs.setup.releases import installed_spark
from jobs.testbed.cleanup import keep_logs
from jobs.testbed.handler_time import limit_lines
from jobs.testbed.jvm import format_command, server_command, writes_archive
from jobs.testbed.listeners import SecurityFiles
from jobs.testbed.model import (
    CONTROLLER_ID,
    HOST,
    Node,
    NodeRole,
    ProcessRecord,
    Spec,
    State,
    Status,
    TestbedStartError,
)
from jobs.testbed.nodes import Nodes, random_id, render
from jobs.testbed.places import (
    FIRST_PORT,
    LAST_PORT,
    NodeFiles,
    disk_bytes,
    free_ports,
    log_dirs,
    read_state,
    write_state,
)
from jobs.testbed.processes import error_lines, says_address_in_use
from jobs.testbed.spark import spark_command, spark_environment
from metrics.columns import restored
from metrics.reporting.files import write_private
from tests.support.commands import ROOT
from tests.support.testbed_spec import SPEC


def broker(folder: Path) -> Node:
    return Node(2, NodeRole.BROKER, 20002, 20012, str(folder / "broker-2"))


def controller(folder: Path) -> Node:
    return Node(CONTROLLER_ID, NodeRole.CONTROLLER, 20000, 20010, str(folder / "controller"))


VARIANTS: dict[str, Spec] = {
    name: restored(Spec, asdict(SPEC) | more)
    for name, more in YAML(typ="safe", pure=True)
    .load((ROOT / "tests/data/testbed-variants.yaml").read_text(encoding="utf-8"))
    .items()
}
"""What a specification adds to the plain one."""
CHECKOUTS_OWN = {
    "PATH": "/bin", "PYTHONPATH": "/checkout", "SPARK_CONF_DIR": "/x", "PYSPARK_PYTHON": "x",
}  # fmt: skip
"""Variables of a command; those that lead to its checkout are not for executors."""


def laid_out(spec: Spec, folder: Path) -> Nodes:
    """The nodes of a testbed, whose secrets are known."""
    folder.mkdir()
    files = SecurityFiles(folder)
    files.folder.mkdir()
    write_private(files.password, "hunter2")
    nodes = Nodes(spec, folder)
    nodes.lay_out(lambda count: list(range(21_000, 21_000 + count)))
    return nodes


def lines_of(spec: Spec, folder: Path) -> dict[str, list[str]]:
    """All that a specification decides: title → the lines of properties or a command."""
    nodes = laid_out(spec, folder)
    if spec.class_archive is not None:
        spec = replace(spec, class_archive=str(folder / spec.class_archive))
        (folder / "classes.jsa").touch()
    state = State(spec, Status.READY, 1.0, nodes=nodes.nodes, spark=nodes.spark)
    assert restored(State, json.loads(json.dumps(asdict(state)))) == state
    assert nodes.members == (*nodes.nodes, *nodes.spark)
    found = {"printed": [spec.title, f"Spark {state.spark_master}", *limit_lines(spec)]}
    for node in nodes.nodes:
        properties = javaproperties.loads(NodeFiles(node).properties.read_text())
        found[f"properties of {node.title}"] = [f"{k}={v}" for k, v in sorted(properties.items())]
        found[f"command of {node.title}"] = server_command(spec, node)
    if nodes.nodes[0].role is not NodeRole.ZOOKEEPER:
        found["format command"] = format_command(spec, nodes.nodes[0], "an-id")
        arguments = NodeFiles(nodes.nodes[0]).format_arguments
        if arguments.exists():
            assert arguments.stat().st_mode & 0o077 == 0
            found["arguments of the format command"] = arguments.read_text().splitlines()
    for worker in nodes.spark:
        assert NodeFiles(worker).work.is_dir()
        found[f"command of {worker.title}"] = spark_command(spec, worker, nodes.spark[0])
        variables = spark_environment(spec, worker, CHECKOUTS_OWN)
        assert variables.pop("SPARK_SCALA_VERSION") == installed_spark().scala
        found[f"environment of {worker.title}"] = [f"{k}={v}" for k, v in variables.items()]
    for title, lines in found.items():
        assert "command of" not in title or "hunter2" not in str(lines), "no password there"
        found[title] = [
            line.replace(str(folder), "FOLDER").replace(str(ROOT), "CHECKOUT") for line in lines
        ]
    return found


def test_the_files_and_commands_of_a_plain_testbed(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    assert lines_of(SPEC, tmp_path / "plain") == snapshot


@pytest.mark.parametrize("name", VARIANTS)
def test_what_an_option_changes_in_files_and_commands(
    tmp_path: Path, name: str, snapshot: SnapshotAssertion
) -> None:
    plain = lines_of(SPEC, tmp_path / "plain")
    changed = lines_of(VARIANTS[name], tmp_path / name.replace(" ", "-"))
    differences = {title: ["gone"] for title in plain.keys() - changed.keys()}
    for title, lines in changed.items():
        before = plain.get(title, [])
        if lines != before:
            differences[title] = [
                *(f"- {line}" for line in before if line not in lines),
                *(f"+ {line}" for line in lines if line not in before),
            ]
    assert differences == snapshot


def test_clients_of_a_secured_testbed_have_its_secured_address(tmp_path: Path) -> None:
    nodes = laid_out(VARIANTS["SASL and TLS"], tmp_path / "secured")
    state = State(VARIANTS["SASL and TLS"], Status.READY, 1.0, nodes=nodes.nodes)
    ports = [p for n in nodes.nodes for p in (n.port, n.jmx_port, *n.secured_ports.values())]
    assert ports == list(range(21_000, 21_010)), "no two are the same"
    first = nodes.brokers[0]
    assert (first.address, first.client_address) == ("127.0.0.1:21002", "127.0.0.1:21004")
    assert state.bootstrap_servers == tuple(each.client_address for each in nodes.brokers)
    assert NodeFiles(first).properties.stat().st_mode & 0o077 == 0
    kept = keep_logs(tmp_path / "secured", State(SPEC, Status.FAILED, 1.0))
    assert not [each for each in kept.rglob("*") if "security" in each.name], "no keys are kept"


def test_properties_are_escaped_as_java_reads_them_and_random_ids_are_no_options() -> None:
    text = render({"b": " C:\\x\ny", "a key:": "é=1"})
    assert text == "a\\ key\\:=\\u00e9\\=1\nb=\\ C\\:\\\\x\\ny\n"
    ids = {random_id() for _ in range(500)}
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


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
    (NodeFiles(nodes.brokers[0]).data / "old").touch()
    nodes.lay_out(lambda count: list(range(22_000, 22_000 + count)))
    assert [node.node_id for node in nodes.nodes] == [CONTROLLER_ID, 1, 2]
    assert [node.port for node in nodes.nodes] == [22_000, 22_002, 22_004]
    assert [node.jmx_port for node in nodes.nodes] == [22_001, 22_003, 22_005]
    data = NodeFiles(nodes.brokers[0]).data
    assert [entry.name for entry in data.iterdir()] == ["meta.properties"]
    assert f"cluster.id={nodes.cluster_id}\n" in (data / "meta.properties").read_text()
    several = laid_out(replace(SPEC, brokers=1, log_dirs=2), tmp_path / "dirs")
    folders = log_dirs(Path(several.brokers[0].directory) / "data", 2)
    texts = [(each / "meta.properties").read_text() for each in folders]
    assert len({javaproperties.loads(text)["directory.id"] for text in texts}) == 2
    assert not (Path(several.nodes[0].directory) / "data" / "1").exists(), "brokers only"
    # The format tool refuses a folder that is formatted already.
    assert list(NodeFiles(nodes.nodes[0]).data.iterdir()) == []


def test_a_state_is_read_back_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    state = State(
        SPEC, Status.READY, 123.5, owner=ProcessRecord(1, 2.5), supervisor=ProcessRecord(3, 4.5),
        nodes=(controller(tmp_path), broker(tmp_path)), processes=(ProcessRecord(5, 6.5, 2),),
    )  # fmt: skip
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert state.bootstrap_servers == ("127.0.0.1:20002",)
    text = (tmp_path / "state.json").read_text()
    for damaged in (text[: len(text) // 2], "[]", json.dumps({"spec": {}})):
        (tmp_path / "state.json").write_text(damaged)
        assert read_state(tmp_path) is None
    (tmp_path / "state.json").unlink()
    assert read_state(tmp_path) is None


def test_free_ports_are_distinct_unused_and_below_the_clients_range() -> None:
    ports = free_ports(12, random.Random(1))
    assert len(set(ports)) == 12
    assert all(FIRST_PORT <= port <= LAST_PORT for port in ports)
    with socket.socket() as other:
        other.bind((HOST, ports[0]))
        assert ports[0] not in free_ports(12, random.Random(1))
        words = rf"0 ports are free on 127\.0\.0\.1 between {ports[0]} and {ports[0]};"
        with pytest.raises(TestbedStartError, match=words):
            free_ports(1, between=(ports[0], ports[0]))


def test_disk_use_counts_blocks_and_not_lengths(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "full").write_bytes(os.urandom(1_000_000))
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(50_000_000)
    assert 1_000_000 <= disk_bytes([tmp_path]) < 2_000_000
    assert disk_bytes([tmp_path / "absent"]) == 0


def test_error_lines_are_those_with_the_cause(tmp_path: Path) -> None:
    node = broker(tmp_path)
    files = NodeFiles(node)
    assert error_lines(node) == []
    files.console.parent.mkdir()
    files.console.write_text("Could not reserve enough space for object heap\n\n")
    assert error_lines(node) == ["Could not reserve enough space for object heap"]
    files.console.write_text("Error: JMX connector server: Port already in use: 20012\n")
    assert says_address_in_use(node)
    files.console.unlink()
    files.log.parent.mkdir(exist_ok=True)
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
