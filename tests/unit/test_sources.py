"""JMX of brokers: addresses, polls, nodes, and refusals of access without its password."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import jmxquery
import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.common.errors import ConfigError
from metrics.sources.bean_poller import brief, node_info
from metrics.sources.beans import PROBE, Role, beans_for, readings_of
from metrics.sources.exposition import numbers
from metrics.sources.java_class import compiled
from metrics.sources.jmx import (
    JmxAccess,
    JmxQuerySource,
    ask,
    open_jmx,
    parse_answers,
    plan_text,
)
from metrics.sources.source import JmxEndpoint
from tests.support.processes import PATIENCE_S

ENDPOINT = JmxEndpoint(3, "broker-3", 9999)
COMBINED = {"quorum": "3.0", "controller": "48", "broker": "10"}
READINGS = readings_of(beans_for("3.9.2", [Role.BROKER]))


def test_addresses() -> None:
    for address, host, port in (("a.b:99", "a.b", 99), ("[::1]:9999", "[::1]", 9999)):
        endpoint = JmxEndpoint.parse(1, address)
        assert (endpoint.host, endpoint.port, endpoint.address) == (host, port, address)
        assert endpoint.url == f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi"
    refused = r"of broker 1 is .*; expected host:port"
    for address in ("", "host", ":99", "host:", "host:no", "host:0", "host:65536"):
        with pytest.raises(ConfigError, match=refused):
            JmxEndpoint.parse(1, address)
    with pytest.raises(ConfigError, match=r"set jmx\.port or jmx\.endpoints"):
        open_jmx({}, jvm=None)


def test_a_poll_is_read_and_a_failed_one_keeps_its_error() -> None:
    text = (
        "#\t1\t1000000\t3000000\t\nbytes_in\t12\nmachine_cpu_share\tNaN\ngc_ms:G1 Old\t1.5E3\n"
        "#\t2\t4000000\t4000000\tjava.io.IOException: gone\n"
    )
    first, second = parse_answers(text)
    assert (first.node_id, first.at_s, first.error) == (1, 2.0, None)
    assert numbers(first.values) == {"bytes_in": 12.0, "gc_ms:G1 Old": 1500.0}
    assert (second.node_id, second.error, second.values) == (2, "java.io.IOException: gone", {})
    error = (
        "java.io.IOException: Failed to retrieve RMIServer stub: javax.naming.ServiceUnavailable"
        "Exception [Root exception is java.rmi.ConnectException: Connection refused to host: a; "
        "nested exception is: \n\tjava.net.ConnectException: Connection refused]"
    )
    assert brief(error) == "ConnectException: Connection refused", "the innermost cause"


def test_a_plan_keeps_the_readings_of_a_bean_together() -> None:
    beans = [line.split("\t")[1] for line in plan_text(READINGS).split("\n")]
    changes = sum(before != after for before, after in pairwise(beans))
    assert changes + 1 == len(set(beans)), "each bean costs one round trip"


def test_two_pollers_in_one_jvm_have_different_names() -> None:
    cooked: list[str] = []
    loader = SimpleNamespace(loadClass=lambda name: SimpleNamespace(newInstance=lambda: name))
    compiler = SimpleNamespace(cook=cooked.append, getClassLoader=lambda: loader)
    janino = SimpleNamespace(SimpleCompiler=lambda: compiler)
    jvm = SimpleNamespace(org=SimpleNamespace(codehaus=SimpleNamespace(janino=janino)))
    first, second = (compiled(jvm, "Poller", "public class Poller {}") for _ in range(2))
    assert first != second
    assert cooked == [f"public class {name} {{}}" for name in (first, second)]


def test_a_node_has_its_version_and_roles_and_the_wrong_process_is_refused() -> None:
    node = node_info(ENDPOINT, {"version:3": "4.3.1", **COMBINED})
    assert (node.version, node.roles) == ("4.3.1", frozenset({Role.BROKER, Role.CONTROLLER}))
    silent = r"broker-3:9999 .* kafka\.server:type=app-info .* correct jmx\.endpoints"
    with pytest.raises(ConfigError, match=silent):
        node_info(ENDPOINT, {})
    with pytest.raises(ConfigError, match="answers as node 4, expected node 3"):
        node_info(ENDPOINT, {"version:4": "3.9.2"})


def fake_java(folder: Path, script: str) -> str:
    path = folder / "java"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


HANDLERS = next(each.object_name for each in READINGS if each.name == "handler_idle_ns")
ROWS = json.dumps(
    [
        {"mBeanName": bean, "attribute": attribute, "attributeType": kind, "value": value}
        for bean, attribute, kind, value in (
            ("kafka.server:type=app-info,id=3", "Version", "String", "3.9.2"),
            (PROBE[-1].object_name, "Value", "Integer", 10),
            (HANDLERS, "Count", "Long", 7),
        )
    ]
)


def test_jmxquery_polls_fail_one_by_one(tmp_path: Path) -> None:
    java = fake_java(tmp_path, f"echo '{ROWS}'")
    source = JmxQuerySource([ENDPOINT], PATIENCE_S, java, clock=lambda: 42.0)
    hasty = JmxQuerySource([ENDPOINT], 0.2, java)
    source.open()
    hasty.open()
    assert source.nodes[3].version == "3.9.2"
    (good,) = source.sample_all()
    values = {"leader_partitions": 10.0, "handler_idle_ns": 7.0}
    assert (good.at_s, good.error, dict(good.values)) == (42.0, None, values)
    assert "fenced_brokers" not in source.nodes[3].lacks
    assert {"network_wait_ns", "bytes_in"} <= set(source.nodes[3].lacks)
    for script, asked, error in (
        ('echo \'{"error": "connection-error", "message":"refused"}\'; exit 2', source, "refused"),
        (f"echo '{ROWS.replace('id=3', 'id=4')}'", source, "node 4 answers at broker-3:9999"),
        ("exec sleep 30", hasty, "no answer within 0.2 s"),
    ):
        fake_java(tmp_path, script)
        (bad,) = asked.sample_all()
        assert bad.values == {} and error in (bad.error or "")
    hasty.close()
    source.close()
    source.close()
    with pytest.raises(RuntimeError, match="not open"):
        source.sample_all()


def test_jmxquery_without_java_or_with_tls_is_refused(tmp_path: Path) -> None:
    words = r"broker 3 does not answer JMX at broker-3:9999.*Java 17"
    with pytest.raises(ConfigError, match=words):
        JmxQuerySource([ENDPOINT], 1.0, str(tmp_path / "none")).open()
    with pytest.raises(ConfigError, match="which JMX with TLS requires"):
        JmxQuerySource([ENDPOINT], 1.0, access=JmxAccess(is_tls=True))


ROW = {"mBeanName": "a:type=B", "attribute": "Value", "attributeType": "Integer", "value": 10}


def test_a_password_is_not_on_jmxquerys_command_line(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = f'echo "$@" > {seen}; cat "${{1#@}}" >> {seen}; echo \'{json.dumps([ROW])}\''
    java = fake_java(tmp_path, script)
    connection = jmxquery.JMXConnection(ENDPOINT.url, java_path=java)
    access = JmxAccess("reader", 'se "cret')
    (answer,) = ask(connection, [jmxquery.JMXQuery("a:type=B", "Value")], access, PATIENCE_S)
    assert (answer.mBeanName, answer.attribute, answer.value) == ("a:type=B", "Value", 10)
    command, *arguments = seen.read_text().splitlines()
    assert command.startswith("@") and "cret" not in command
    assert not Path(command.removeprefix("@")).exists(), "deleted with its reader"
    assert arguments[arguments.index('"-p"') + 1] == r'"se \"cret"'
    assert arguments[arguments.index('"-u"') + 1] == '"reader"'
    assert "cret" not in repr(access)


REFUSED = {
    "java.lang.SecurityException: Authentication failed! Bad": "jmx.password_from refer to",
    "SecurityException: Authentication failed! Credentials required": "jmx.username_from and",
    "java.rmi.ConnectIOException: non-JRMP server at remote endpoint": "jmx.tls: true",
    "SSLHandshakeException: PKIX path building failed": "jmx.cafile",
    "SSLException: Unsupported or unrecognized SSL message": "registry.ssl=true",
    "CertificateException: No subject alternative DNS name matching b": "another host",
    "CertificateException: No name matching b found": "jmx.check_hostname: false",
    "PKIX path validation failed: validity check failed": "not valid yet",
    "java.lang.SecurityException: refused java.net.URL": "which program runs at",
}
"""An error of Java → a part of its explanation."""


def test_refused_access_to_jmx_is_explained(snapshot: SnapshotAssertion) -> None:
    source = JmxQuerySource([ENDPOINT], 2.0)
    sentences = [str(source.unreachable(ENDPOINT, error)) for error in REFUSED]
    for sentence, part in zip(sentences, REFUSED.values(), strict=True):
        assert part in sentence and "broker 3 at broker-3:9999" in sentence
        assert "JMX_PORT" not in sentence
    assert sentences == snapshot
    assert "JMX_PORT=9999" in str(source.unreachable(ENDPOINT, "Connection refused"))


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing", encoding="ascii")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(ConfigError, match=rf"jmx\.cafile is .*{name}, which cannot be used"):
            JmxAccess(is_tls=True, cafile=str(tmp_path / name)).trusted()
    assert JmxAccess(is_tls=True).trusted() == []
