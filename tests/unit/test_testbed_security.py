"""What secures a testbed: listeners, keys, and where its passwords are not."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest

from jobs.testbed.cleanup import keep_logs
from jobs.testbed.jvm import MARKER, format_command, server_command
from jobs.testbed.keys import Keystore, KeytoolError, SecurityFiles, unsecured_token, write_secret
from jobs.testbed.keystore import Entry, build, parse, pem, private_key
from jobs.testbed.model import CONTROLLER_ID, Node, NodeRole, State, Status
from jobs.testbed.nodes import Nodes
from jobs.testbed.places import node_files
from jobs.testbed.properties import node_properties
from tests.support.testbed_spec import SPEC

KEY = bytes(range(100))


def controller(folder: Path) -> Node:
    return Node(CONTROLLER_ID, NodeRole.CONTROLLER, 20000, 20010, str(folder / "controller"))


def secured_broker(folder: Path) -> Node:
    ports = {"SASL_SSL": 20022, "SSL": 20032}
    return Node(2, NodeRole.BROKER, 20002, 20012, str(folder / "broker-2"), ports)


def secrets_in(folder: Path) -> SecurityFiles:
    """The files of a secured testbed that need no keytool."""
    files = SecurityFiles(folder)
    files.folder.mkdir()
    write_secret(files.password, "hunter2")
    return files


def test_a_secured_broker_keeps_a_plain_listener_for_the_testbed(tmp_path: Path) -> None:
    secrets_in(tmp_path)
    node = secured_broker(tmp_path)
    properties = node_properties(SPEC, node, 20000, "/data")
    assert properties["listeners"] == properties["advertised.listeners"]
    assert properties["listeners"].split(",") == [
        "PLAINTEXT://127.0.0.1:20002",
        "SASL_SSL://127.0.0.1:20022",
        "SSL://127.0.0.1:20032",
    ]
    assert properties["listener.name.ssl.ssl.client.auth"] == "required"
    assert "SCRAM-SHA-512" in properties["sasl.enabled.mechanisms"]
    assert "hunter2" in properties["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert (node.address, node.client_address) == ("127.0.0.1:20002", "127.0.0.1:20022")
    state = State(replace(SPEC, security=("SASL_SSL", "SSL")), Status.READY, 1.0, nodes=(node,))
    assert State.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert state.bootstrap_servers == ("127.0.0.1:20022",)


def test_no_password_is_on_a_command_line(tmp_path: Path) -> None:
    files = secrets_in(tmp_path)
    spec = replace(SPEC, security=("SASL_SSL",), jmx_secured=True)
    node = controller(tmp_path)
    Path(node.directory).mkdir()
    command = format_command(spec, node, "abc")
    assert "hunter2" not in str(command)
    assert f"{MARKER}{spec.id}" in command
    arguments = Path(command[-1].removeprefix("@"))
    assert arguments.stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in arguments.read_text().splitlines()]
    assert lines[:2] == ["kafka.tools.StorageTool", "format"]
    assert lines[-1] == "SCRAM-SHA-512=[name=redline,password=hunter2]"
    server = server_command(spec, node)
    assert "-Dcom.sun.management.jmxremote.authenticate=true" in server
    assert f"-Dcom.sun.management.jmxremote.password.file={files.jmx_password}" in server
    assert "-Dcom.sun.management.jmxremote.registry.ssl=true" in server
    assert not any("authenticate=false" in option for option in server)
    assert "hunter2" not in str(server)


def test_only_tls_listeners_have_no_user_to_make_known(tmp_path: Path) -> None:
    spec = replace(SPEC, security=("SSL",))
    command = format_command(spec, controller(tmp_path), "abc")
    assert command[-5:-1] == ["format", "-t", "abc", "-c"]


def test_each_broker_gets_a_port_for_each_secured_listener(tmp_path: Path) -> None:
    secrets_in(tmp_path)
    nodes = Nodes(replace(SPEC, security=("SASL_SSL", "SSL")), tmp_path)
    nodes.lay_out(lambda count: list(range(21_000, 21_000 + count)))
    ports = [p for n in nodes.nodes for p in (n.port, n.jmx_port, *n.secured_ports.values())]
    assert ports == list(range(21_000, 21_010))
    assert nodes.nodes[0].secured_ports == {}
    assert node_files(nodes.brokers[0]).properties.stat().st_mode & 0o077 == 0


def test_a_failed_testbed_keeps_no_keys(tmp_path: Path) -> None:
    folder = tmp_path / SPEC.id
    folder.mkdir()
    secrets_in(folder)
    kept = keep_logs(folder, State(SPEC, Status.FAILED, 1.0))
    assert [entry.name for entry in kept.iterdir()] == ["state.json"]


def sealed(plain: bytes, password: str) -> bytes:
    """A private key as the JKS keystore of Java encrypts it, in its DER envelope."""
    wide, salt = password.encode("utf-16-be"), b"s" * 20
    stream, digest = b"", salt
    while len(stream) < len(plain):
        digest = sha1(wide + digest).digest()
        stream += digest
    body = bytes(a ^ b for a, b in zip(plain, stream, strict=False))
    octets = salt + body + sha1(wide + plain).digest()
    value = b"\x04\x81" + bytes([len(octets)]) + octets
    content = b"\x30\x02\x05\x00" + value
    return b"\x30\x81" + bytes([len(content)]) + content


def test_a_keystore_gives_back_what_was_put_in() -> None:
    mine = Entry("mine", 1_700_000_000_000, sealed(KEY, "changeit"), (b"own", b"signer"))
    trusted = Entry("ca", 1, None, (b"signer",))
    store = build([mine, trusted], "changeit")
    assert parse(store) == {"mine": mine, "ca": trusted}
    assert private_key(parse(store)["mine"], "changeit") == KEY
    with pytest.raises(ValueError, match="does not open the key of mine"):
        private_key(mine, "changed")
    with pytest.raises(ValueError, match="ca has no private key"):
        private_key(trusted, "changeit")
    with pytest.raises(ValueError, match="cut off"):
        parse(store[:40])
    with pytest.raises(ValueError, match="no Java keystore"):
        parse(b"PK" * 10)
    assert "own" not in repr(mine)


def test_pem_is_in_lines_of_64() -> None:
    lines = pem("CERTIFICATE", b"x" * 100).splitlines()
    assert (lines[0], lines[-1]) == ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----")
    assert [len(line) for line in lines[1:-1]] == [64, 64, 8]


def test_a_java_without_keytool_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KeytoolError, match=r"no keytool is beside .* or on the PATH"):
        Keystore(tmp_path / "keys.jks", str(tmp_path / "java"))
    refusing = tmp_path / "keytool"
    refusing.write_text("#!/bin/sh\necho 'keytool error: no'; exit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(KeytoolError, match="made no certificate for ca: keytool error: no"):
        Keystore(tmp_path / "keys.jks", str(tmp_path / "java")).add_authority("ca")


def test_the_token_names_the_user_and_its_end() -> None:
    head, claims, signature = unsecured_token("alice", 1_000.0, 60.0).split(".")
    assert signature == "" and head and "=" not in claims
