"""Exporters behind TLS and a login: samples with the right access, explanations without it."""

from __future__ import annotations

import base64
import errno
import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from jobs.config.metrics_registry import NodeExporter, Prometheus, load_rules
from jobs.testbed.listeners import key_and_certificates
from metrics.common.errors import ConfigError
from metrics.sources.hosts.node_exporter import NodeExporters
from metrics.sources.http_access import HttpAccess, basic
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.sample import BrokerSample
from metrics.sources.source import Endpoint
from tests.support.served_exporter import Exporter, serving

USER, PASSWORD, TOKEN = "scraper", "pass:wörd", "eyJ0.to-ken_"
HOST_PAGE = 'node_procs_running 2\nnode_cpu_seconds_total{cpu="0",mode="idle"} 7\n'


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the test, and the certificates that it signed, as files."""

    folder: Path
    ca: trustme.CA = field(default_factory=trustme.CA)

    @property
    def cafile(self) -> str:
        path = self.folder / "ca.pem"
        self.ca.cert_pem.write_to_path(path)
        return str(path)

    def signed(self, host: str = "127.0.0.1", valid_days: int = 9) -> str:
        now = datetime.now(timezone.utc)
        begin, end = now - timedelta(9), now + timedelta(valid_days)
        path = self.folder / f"{host}{valid_days}.pem"
        leaf = self.ca.issue_cert(host, not_before=begin, not_after=end)
        path.write_bytes(key_and_certificates(leaf))
        return str(path)

    def context(self, host: str = "127.0.0.1", valid_days: int = 9) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.signed(host, valid_days))
        return made

    @property
    def keys(self) -> dict[str, object]:
        """The keys of an exporter whose certificate the authority signed."""
        return {"tls": True, "cafile": self.cafile}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("", USER), ("_PASSWORD", PASSWORD), ("_TOKEN", TOKEN)):
        monkeypatch.setenv(f"SCRAPER{name}", value)


BASIC = {"username_from": "env:SCRAPER", "password_from": "env:SCRAPER_PASSWORD"}
BEARER = {"token_from": "env:SCRAPER_TOKEN"}


def configured(exporter: Exporter, **keys: object) -> Prometheus:
    endpoints = {1: f"127.0.0.1:{exporter.port or 9404}"}
    return Prometheus.model_validate({"endpoints": endpoints, "rules": "kafka-kraft", **keys})


@contextmanager
def source_of(exporter: Exporter, **keys: object) -> Iterator[PrometheusSource]:
    endpoints = [Endpoint(1, "127.0.0.1", exporter.port)]
    access = configured(exporter, **keys).access()
    made = PrometheusSource(endpoints, load_rules("kafka-kraft"), 5.0, "4.1", access=access)
    with closing(made) as source:
        yield source


def sampled(exporter: Exporter, **keys: object) -> BrokerSample:
    """The last of three samples, none of which is missed."""
    with source_of(exporter, **keys) as source:
        source.open()
        samples = [source.sample_all()[0] for _ in range(3)]
    assert [each.error for each in samples] == [None] * 3
    return samples[-1]


def refusal(exporter: Exporter, **keys: object) -> str:
    with pytest.raises(ConfigError) as caught, source_of(exporter, **keys) as source:
        source.open()
    message = str(caught.value)
    assert not any(secret in message for secret in (PASSWORD, TOKEN))
    assert "Start it with" not in message, "the exporter runs"
    return message


@pytest.mark.parametrize("hangs_up", [False, True])
def test_exporters_are_read_over_https_with_each_login(
    authority: Authority, hangs_up: bool
) -> None:
    """A connection that the exporter ended meanwhile costs no sample."""
    coded = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    logins = [({}, None), (BEARER, f"Bearer {TOKEN}"), (BASIC, f"Basic {coded}")]
    for keys, header in logins:
        exporter = Exporter()
        exporter.login, exporter.hangs_up = header, hangs_up
        with serving(exporter, authority.context()):
            found = sampled(exporter, **keys, **authority.keys)
        assert found.values["leader_partitions"] == 10
        assert (len(exporter.connections) > 1) is hangs_up, "one handshake for all scrapes"


def test_hosts_are_read_over_https_with_a_login(authority: Authority) -> None:
    exporter = Exporter(HOST_PAGE)
    exporter.login = f"Bearer {TOKEN}"
    keys = {"port": 1, **BEARER, **authority.keys}
    access = NodeExporter.model_validate(keys).access()
    with serving(exporter, authority.context()):
        addresses = {1: f"127.0.0.1:{exporter.port}"}
        with closing(NodeExporters(addresses, 5.0, access=access).open()) as hosts:
            (look,) = hosts.sample_all()
            exporter.status = 403
            (refused,) = hosts.sample_all()
        open_to_all = NodeExporter.model_validate({**keys, "token_from": None}).access()
        with pytest.raises(ConfigError) as caught:
            NodeExporters(addresses, 5.0, access=open_to_all).open()
    assert look.values["running_threads"] == 2
    assert "does not show its metrics to this login, HTTP 403" in str(refused.error)
    at = f"at https://127.0.0.1:{exporter.port}/metrics: "
    for part in (at, "(Basic), HTTP 401", "metrics.host.prometheus.username_from"):
        assert part in str(caught.value)


def test_a_certificate_that_is_refused_is_explained(
    authority: Authority, stranger: Authority
) -> None:
    far = authority.context("elsewhere.example")
    unchecked = {"tls": True, "check_hostname": False}
    cases = [
        (stranger.context(), authority.keys, "metrics.prometheus.cafile"),
        (
            authority.context(valid_days=-1),
            authority.keys,
            "has expired; expected a valid certificate",
        ),
        (far, authority.keys, "metrics.prometheus.endpoints or the"),
        (far, {**unchecked, "cafile": stranger.cafile}, "is not trusted"),
    ]
    for context, keys, part in cases:
        with serving(Exporter(), context) as exporter:
            message = refusal(exporter, **keys)
        at = f"broker 1 shows no metrics at https://127.0.0.1:{exporter.port}/metrics: "
        assert all(words in message for words in (at, "its certificate", part)), message
    with serving(Exporter(), far) as exporter:
        sampled(exporter, **unchecked, cafile=authority.cafile)


def test_a_cafile_replaces_the_authorities_of_the_system(
    authority: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", stranger.cafile)  # what OpenSSL takes for the system's
    with serving(Exporter(), stranger.context()) as exporter:
        sampled(exporter, tls=True)
        assert "is not trusted" in refusal(exporter, **authority.keys)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_exporter_may_require_a_clients_certificate(
    authority: Authority, stranger: Authority, version: ssl.TLSVersion
) -> None:
    context, keys = authority.context(), authority.keys
    context.load_verify_locations(authority.cafile)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = version
    own, wrong = authority.signed("us.example"), stranger.signed("us.example")
    with serving(Exporter(), context) as exporter:
        sampled(exporter, **keys, certfile=own, keyfile=own)
        # The version of TLS and the order of arrival decide whether the exporter sends an alert or
        # closes the connection.
        for more in ({}, {"certfile": wrong, "keyfile": wrong}):
            message = refusal(exporter, **keys, **more)
            assert "certificate" in message and "metrics.prometheus.certfile" in message


def test_an_exporter_that_closes_after_tls_may_require_a_certificate(
    snapshot: SnapshotAssertion,
) -> None:
    access = HttpAccess("metrics.prometheus", is_tls=True)
    heard: tuple[Exception, ...] = (
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        http.client.RemoteDisconnected("Remote end closed connection without response"),
    )
    for error in heard:
        explanation = access.explain_refusal(error, has_answered=False)
        assert explanation == snapshot(name=type(error).__name__)
    plain = HttpAccess("metrics.prometheus")
    restarts = [(access, heard[0]), (plain, heard[1]), (plain, ssl.SSLEOFError(8, "EOF"))]
    for each, error in restarts:
        assert each.explain_refusal(error, has_answered=True) is None, "it ended or restarts"


def test_plain_http_and_https_are_distinguished(authority: Authority) -> None:
    with serving(Exporter()) as exporter:
        message = refusal(exporter, **authority.keys)
    assert "does not use TLS; expected HTTPS" in message
    assert "metrics.prometheus.tls" in message
    with serving(Exporter(), authority.context()) as exporter:
        assert "set metrics.prometheus.tls: true" in refusal(exporter)
    in_go = "Client sent an HTTP request to an HTTPS server.\n"
    explanation = HttpAccess("metrics.host.prometheus").explain_status(400, None, in_go)
    assert "set metrics.host.prometheus.tls: true" in str(explanation)


def test_a_login_that_is_wrong_missing_or_without_rights_is_explained(
    snapshot: SnapshotAssertion,
) -> None:
    exporter = Exporter()
    exporter.login = "Basic other"
    with serving(exporter):
        errors = [refusal(exporter)]
        exporter.wants = "<script>"
        errors += [refusal(exporter), refusal(exporter, **BASIC), refusal(exporter, **BEARER)]
        exporter.login, exporter.status = None, 403
        errors += [refusal(exporter, **BEARER), refusal(exporter)]
    for error, status in zip(errors, [401] * 4 + [403] * 2, strict=True):
        assert f"HTTP {status}; expected" in error
        assert "metrics.prometheus.username_from and password_from, or token_from" in error
    assert "\n".join(errors).replace(str(exporter.port), "PORT") == snapshot


def test_a_token_that_was_renewed_is_read_for_the_next_scrape(tmp_path: Path) -> None:
    file, exporter = tmp_path / "token", Exporter()
    file.write_text("first\n")
    exporter.login = "Bearer first"
    with serving(exporter), source_of(exporter, token_from=f"file:{file}") as source:
        source.open()
        exporter.login = "Bearer second"
        (refused,) = source.sample_all()
        file.write_text("second\n")
        (renewed,) = source.sample_all()
        file.unlink()
        (gone,) = source.sample_all()
    assert "HTTP 401" in str(refused.error)
    assert "metrics.prometheus.username_from" in str(refused.error)
    assert renewed.error is None
    assert "metrics.prometheus.token_from is file:" in str(gone.error)
    assert "cannot be read" in str(gone.error)


def test_unusable_files_are_reported_before_any_request(
    authority: Authority, tmp_path: Path
) -> None:
    junk, key = tmp_path / "junk.pem", tmp_path / "locked.pem"
    junk.write_text("junk")
    key.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"locked"),
        )
    )
    own = authority.signed("us.example")
    cases = [
        ({"cafile": str(tmp_path / "none.pem")}, "cafile is .*none.pem, which cannot be used: No"),
        ({"cafile": str(junk)}, "expected a PEM file of certificates; correct the path"),
        ({"certfile": str(junk), "keyfile": own}, r"prometheus\.certfile is .*junk.pem, which"),
        ({"certfile": own, "keyfile": str(key)}, "in keyfile its key without a password"),
    ]
    for keys, part in cases:
        with pytest.raises(ConfigError, match=part), source_of(Exporter(), tls=True, **keys):
            pass


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PASSWORD not in repr(configured(Exporter(), **BASIC))
    assert PASSWORD not in repr(configured(Exporter(), **BASIC).access())
    monkeypatch.delenv("SCRAPER_PASSWORD")
    with pytest.raises(ConfigError, match=r"cluster metrics\.prometheus\.password_from is env:SC"):
        configured(Exporter(), **BASIC).access()


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text())
def test_a_user_and_a_password_are_one_header_or_one_sentence(user: str, password: str) -> None:
    password = password.encode("utf-8", errors="replace").decode()
    if ":" in user or any(ord(each) < 32 or ord(each) == 127 for each in user + password):
        with pytest.raises(ConfigError, match="cannot be sent by HTTP"):
            basic(user, password, "metrics.prometheus")
        return
    header = basic(user, password, "metrics.prometheus")
    assert header.isascii() and header.isprintable()
    kind, _, coded = header.partition(" ")
    assert kind == "Basic"
    assert base64.b64decode(coded).decode().split(":", 1) == [user, password]
