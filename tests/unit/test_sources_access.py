"""JMX that requires a login or TLS: explanations of refusals, and places without its password."""

from __future__ import annotations

import json
from pathlib import Path

import jmxquery
import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.common.errors import ConfigError
from metrics.sources.access import JmxAccess
from metrics.sources.jmxquery_program import ask
from metrics.sources.jmxquery_source import JmxQuerySource
from metrics.sources.probe import unreachable
from metrics.sources.source import JmxEndpoint
from tests.support.processes import PATIENCE_S

ENDPOINT = JmxEndpoint(3, "broker-3", 9999)
ROW = {"mBeanName": "a:type=B", "attribute": "Value", "attributeType": "Integer", "value": 10}


def test_a_password_is_not_on_jmxquerys_command_line(tmp_path: Path) -> None:
    seen, java = tmp_path / "seen", tmp_path / "java"
    java.write_text(
        f'#!/bin/sh\necho "$@" > {seen}; cat "${{1#@}}" >> {seen}; echo \'{json.dumps([ROW])}\'\n'
    )
    java.chmod(0o755)
    connection = jmxquery.JMXConnection(ENDPOINT.url, java_path=str(java))
    access = JmxAccess("reader", 'se "cret')
    (answer,) = ask(connection, [jmxquery.JMXQuery("a:type=B", "Value")], access, PATIENCE_S)
    assert (answer.mBeanName, answer.attribute, answer.value) == ("a:type=B", "Value", 10)
    command, *arguments = seen.read_text().splitlines()
    assert command.startswith("@") and "cret" not in command
    assert not Path(command.removeprefix("@")).exists(), "deleted with its reader"
    assert arguments[arguments.index('"-p"') + 1] == r'"se \"cret"'
    assert arguments[arguments.index('"-u"') + 1] == '"reader"'


def test_jmxquery_refuses_tls() -> None:
    with pytest.raises(ConfigError, match="JMX with TLS is read through the driver's own JVM"):
        JmxQuerySource([ENDPOINT], 1.0, access=JmxAccess(is_tls=True))


@pytest.mark.parametrize(
    ("error", "part"),
    [
        ("java.lang.SecurityException: Authentication failed! Bad", "jmx.password_from point at"),
        ("SecurityException: Authentication failed! Credentials required", "jmx.username_from and"),
        ("java.rmi.ConnectIOException: non-JRMP server at remote endpoint", "jmx.tls: true"),
        ("SSLHandshakeException: PKIX path building failed", "jmx.cafile"),
        ("SSLException: Unsupported or unrecognized SSL message", "registry.ssl=true"),
        ("CertificateException: No subject alternative DNS name matching b", "another host"),
        ("CertificateException: No name matching b found", "jmx.check_hostname: false"),
        ("PKIX path validation failed: validity check failed", "not valid now"),
        ("java.lang.SecurityException: refused java.net.URL", "which program runs there"),
    ],
)
def test_refused_access_to_jmx_is_explained(
    error: str, part: str, snapshot: SnapshotAssertion
) -> None:
    explanation = str(unreachable(ENDPOINT, error))
    assert part in explanation and "broker 3 at broker-3:9999" in explanation
    assert "JMX_PORT" not in explanation
    assert explanation == snapshot
    assert "JMX_PORT=9999" in str(unreachable(ENDPOINT, "Connection refused"))


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing", encoding="ascii")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(ConfigError, match=rf"jmx\.cafile is .*{name}, which cannot be used"):
            JmxAccess(is_tls=True, cafile=str(tmp_path / name)).trusted()
    assert JmxAccess(is_tls=True).trusted() == []


def test_access_shows_no_password() -> None:
    assert "hunter2" not in repr(JmxAccess("reader", "hunter2"))
