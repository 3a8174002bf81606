"""Metrics over TLS with right and wrong certificates and logins, by JMX and of an exporter; JMX
answers with objects of other classes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from jobs.config.metrics_registry import Prometheus, load_rules
from jobs.setup.jars import exporter_jar
from jobs.testbed.listeners import PASSWORD_OF_STORES, write_jmx_tls
from jobs.testbed.places import accepts, free_ports
from metrics.common.errors import ConfigError
from metrics.sources.http_access import ClosedError
from metrics.sources.jmx import JmxAccess, open_jmx
from metrics.sources.scraper import Scraper
from metrics.sources.source import Endpoint
from tests.support.bare_jvm import bare_jvm
from tests.support.jmx_nodes import JmxNode
from tests.support.processes import becomes

pytestmark = pytest.mark.together

HERE = "127.0.0.1"
MEANT = 10
"""Number of leaders that a node reports by default."""


class Authorities:
    """Two authorities: one in the cluster's file, and one that the driver's Java trusts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.own, self.of_java = trustme.CA(), trustme.CA()
        self.own.cert_pem.write_to_path(folder / "ca.pem")
        self.access = JmxAccess(is_tls=True, cafile=str(folder / "ca.pem"))

    def jvm_options(self) -> list[str]:
        """Options of a JVM that trusts only the second authority."""
        known = load_pem_x509_certificate(self.of_java.cert_pem.bytes())
        store = self._folder / "known.p12"
        sealed = BestAvailableEncryption(PASSWORD_OF_STORES.encode())
        entry = pkcs12.PKCS12Certificate(known, b"known")
        store.write_bytes(pkcs12.serialize_java_truststore([entry], sealed))
        prefix = "-Djavax.net.ssl.trustStore"
        return [f"{prefix}={store}", f"{prefix}Password={PASSWORD_OF_STORES}"]

    def node(self, leaf: trustme.LeafCert) -> JmxNode:
        properties = self._folder / "jmx.properties"
        write_jmx_tls(leaf, self._folder / "jmx.p12", properties)
        access = (
            "authenticate=false",
            "ssl=true",
            "registry.ssl=true",
            f"ssl.config.file={properties}",
        )
        return JmxNode(1, access=access)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("authorities"))


@pytest.fixture(scope="module")
def jvm(authorities: Authorities) -> Iterator[Any]:
    with bare_jvm(*authorities.jvm_options()) as (view, _):
        yield view


def leaders(node: JmxNode, jvm: Any, access: JmxAccess | None) -> float | None:
    """The node's number of leaders, checked in two samples."""
    with closing(open_jmx({1: node.address}, jvm, 20.0, access)) as source:
        first, second = (source.sample_all()[0] for _ in range(2))
    assert (first.error, second.error) == (None, None)
    return second.values.get("leader_partitions")


def refusal(node: JmxNode, jvm: Any, access: JmxAccess | None) -> str:
    with pytest.raises(ConfigError) as caught:
        leaders(node, jvm, access)
    assert f"JMX of broker 1 at {node.address}" in str(caught.value)
    return str(caught.value)


def test_each_source_trusts_its_own_authority_and_no_other(
    authorities: Authorities, jvm: Any
) -> None:
    own, of_java = authorities.access, JmxAccess(is_tls=True)
    usual = jvm.javax.net.ssl.SSLContext.getDefault()
    with authorities.node(authorities.own.issue_cert(HERE)) as node:
        assert leaders(node, jvm, own) == MEANT
        assert "a certificate that is not trusted" in refusal(node, jvm, of_java), (
            "the default authorities stay"
        )
        assert leaders(node, jvm, own) == MEANT
    with authorities.node(authorities.of_java.issue_cert(HERE)) as node:
        assert leaders(node, jvm, of_java) == MEANT
        assert "a certificate that is not trusted" in refusal(node, jvm, own), (
            "cafile replaces the authorities"
        )
    assert jvm.javax.net.ssl.SSLContext.getDefault().equals(usual), (
        "the JVM's default context stays"
    )


def test_a_certificate_for_another_host_or_an_expired_one_is_refused_with_its_reason(
    authorities: Authorities, jvm: Any
) -> None:
    with authorities.node(authorities.own.issue_cert("elsewhere.example")) as node:
        message = refusal(node, jvm, authorities.access)
        assert "has a certificate for another host" in message
        assert "jmx.check_hostname: false" in message
        assert leaders(node, jvm, replace(authorities.access, check_hostname=False)) == MEANT
    now = datetime.now(timezone.utc)
    begun, ended = now - timedelta(days=10), now - timedelta(days=5)
    leaf = authorities.own.issue_cert(HERE, not_before=begun, not_after=ended)
    with authorities.node(leaf) as node:
        assert "that has expired or is not valid yet" in refusal(node, jvm, authorities.access)


def url(jvm: Any) -> Any:
    """A java.net.URL, which looks up names when it is put into a set."""
    return jvm.java.net.URL("http://localhost/")


def of_a_library(jvm: Any) -> Any:
    """An object of a library's class, which the driver and the node both have."""
    return jvm.org.codehaus.commons.compiler.CompileException("no more than that", None)


def nested(jvm: Any) -> Any:
    """Lists nested more deeply than in any reading."""
    inner = jvm.java.util.ArrayList()
    for _ in range(60):
        outer = jvm.java.util.ArrayList()
        outer.add(inner)
        inner = outer
    return inner


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (url, "refused java.net.URL"),
        (of_a_library, "org.codehaus.commons.compiler.CompileException"),
        (nested, "refused "),
    ],
)
def test_an_answer_of_an_unexpected_class_is_not_deserialized(
    jvm: Any, answer: Callable[[Any], Any], what: str
) -> None:
    with JmxNode(1, leaders=answer) as node:
        message = refusal(node, jvm, None)
        assert "answers with unexpected Java objects" in message and what in message
        if answer is url:  # once, as each poll of jmxquery starts a JVM
            assert leaders(node, None, None) is None, "jmxquery leaves it out"


def test_a_filter_of_the_jvms_options_stays() -> None:
    with (
        JmxNode(1) as plain,
        JmxNode(1, leaders=of_a_library) as foreign,
        bare_jvm("-Djdk.serialFilter=maxdepth=100") as (jvm, _),
    ):
        assert leaders(plain, jvm, None) == MEANT
        assert "ClassNotFoundException: org.codehaus" in refusal(foreign, jvm, None)
        kept = jvm.java.io.ObjectInputFilter.Config.getSerialFilter()
        assert "maxdepth=100" in kept.toString()


def test_other_reads_of_the_jvm_are_not_filtered(jvm: Any) -> None:
    with JmxNode(1) as node:
        assert leaders(node, jvm, None) == MEANT
    installed = jvm.java.io.ObjectInputFilter.Config.getSerialFilter()
    assert "RedlineJmxFilter" in installed.getClass().getName()
    data = jvm.java.io.ByteArrayOutputStream()
    with closing(jvm.java.io.ObjectOutputStream(data)) as stream:
        stream.writeObject(url(jvm))
    read = jvm.java.io.ObjectInputStream(jvm.java.io.ByteArrayInputStream(data.toByteArray()))
    assert read.readObject().getHost() == "localhost"


USER, PASSWORD = "scraper", "pass:word of the exporter"
START_S = 30.0
"""Deadline for the first answer of a JVM on two busy cores [s]."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def port(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder, (number,) = tmp_path_factory.mktemp("exporter"), free_ports(1)
    write_jmx_tls(authority.issue_cert(HERE), folder / "keys.p12", folder / "unused.properties")
    server = {
        "authentication": {"basic": {"username": USER, "password": PASSWORD}},
        "ssl": {
            "keyStore": {"filename": str(folder / "keys.p12"), "password": PASSWORD_OF_STORES},
            "certificate": {"alias": "broker"},
        },
    }
    (folder / "rules.yaml").write_text(
        json.dumps({"httpServer": server, "rules": [{"pattern": ".*"}]})
    )
    agent = f"-javaagent:{exporter_jar()}={HERE}:{number}:{folder / 'rules.yaml'}"
    with bare_jvm(agent, "-Xmx64m"):
        assert becomes(lambda: accepts(number, 1.0), START_S)
        yield number


@pytest.fixture
def way(
    port: int, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, object]:
    """The keys of a cluster file with the right login."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SCRAPER", USER)
    monkeypatch.setenv("SCRAPER_PASSWORD", PASSWORD)
    monkeypatch.setenv("SCRAPER_OTHER", "another")
    return {
        "port": port,
        "rules": "msk",
        "tls": True,
        "cafile": str(tmp_path / "ca.pem"),
        "username_from": "env:SCRAPER",
        "password_from": "env:SCRAPER_PASSWORD",
    }


def scraped(way: dict[str, object]) -> dict[str, float]:
    """The readings of a sample; raises the error of a failed one."""
    keys = Prometheus.model_validate(way)
    assert keys.port is not None
    endpoint = Endpoint(1, HERE, keys.port)
    with closing(Scraper(endpoint, keys.access(), load_rules("msk"))) as scraper:
        values = [dict(scraper.scrape(START_S).values) for _ in range(2)]
    assert values[0].keys() == values[1].keys()
    return values[1]


def test_it_is_read_with_the_password_and_its_authority(way: dict[str, object]) -> None:
    values = scraped(way)
    assert values["process_cpu_ns"] > 0
    assert values["heap_used_bytes"] > 0


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"password_from": "env:SCRAPER_OTHER"}, "it refuses the login, HTTP 401"),
        ({"username_from": None, "password_from": None}, "it requires a login (Basic), HTTP 401"),
        ({"cafile": None}, "its certificate is not trusted"),
        ({"tls": False, "cafile": None}, "set metrics.prometheus.tls: true if it uses HTTPS"),
    ],
)
def test_each_refusal_is_explained(
    way: dict[str, object], changed: dict[str, object], part: str
) -> None:
    with pytest.raises(ClosedError) as caught:
        scraped({**way, **changed})
    assert part in str(caught.value)
    assert PASSWORD not in str(caught.value)
