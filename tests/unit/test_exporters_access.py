"""Exporters behind TLS and a login: samples with the right access, explanations without it."""

from __future__ import annotations

import base64
import errno
import http.client
import os
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from jobs.config.exporter_rules import load_rules
from jobs.config.metrics_hosts import NodeExporter
from jobs.config.metrics_prometheus import Prometheus
from jobs.testbed.keys import key_and_certificates
from metrics.common.errors import ConfigError
from metrics.sources.hosts.node_exporter import NodeExporters
from metrics.sources.http_access import HttpAccess, basic, bearer
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.source import Endpoint
from tests.support.served_exporter import Exporter, serving

USER, PASSWORD, TOKEN = "scraper", "pass:wörd", "eyJ0.to-ken_"
HOST_PAGE = 'node_procs_running 2\nnode_cpu_seconds_total{cpu="0",mode="idle"} 7\n'


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the test, and the certificates that it signed, as files."""

    folder: Path
    ca: trustme.CA

    @property
    def cafile(self) -> str:
        path = self.folder / "ca.pem"
        self.ca.cert_pem.write_to_path(path)
        return str(path)

    def signed(self, name: str, *hosts: str, ended: bool = False) -> str:
        now = datetime.now(timezone.utc)
        leaf = (
            self.ca.issue_cert(
                *hosts, not_before=now - timedelta(days=9), not_after=now - timedelta(days=1)
            )
            if ended
            else self.ca.issue_cert(*hosts)
        )
        path = self.folder / f"{name}.pem"
        path.write_bytes(key_and_certificates(leaf))
        return str(path)

    def context(self, name: str, *hosts: str, ended: bool = False) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.signed(name, *hosts, ended=ended))
        return made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), trustme.CA())


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), trustme.CA())


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRAPER", USER)
    monkeypatch.setenv("SCRAPER_PASSWORD", PASSWORD)
    monkeypatch.setenv("SCRAPER_TOKEN", TOKEN)


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


def refusal(exporter: Exporter, **keys: object) -> str:
    with pytest.raises(ConfigError) as caught, source_of(exporter, **keys) as source:
        source.open()
    message = str(caught.value)
    assert not any(secret in message for secret in (PASSWORD, TOKEN))
    assert "Start it with" not in message, "the exporter runs"
    return message


@pytest.mark.parametrize("login", [{}, BASIC, BEARER])
def test_exporters_are_read_over_https_with_each_login(
    authority: Authority, login: dict[str, str]
) -> None:
    exporter = Exporter()
    coded = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    exporter.login = {0: None, 1: f"Bearer {TOKEN}", 2: f"Basic {coded}"}[len(login)]
    keys = {**login, "tls": True, "cafile": authority.cafile}
    context = authority.context("server", "127.0.0.1")
    with serving(exporter, context), source_of(exporter, **keys) as source:
        source.open()
        samples = [source.sample_all()[0] for _ in range(3)]
    assert [each.error for each in samples] == [None] * 3
    assert samples[-1].values["leader_partitions"] == 10
    assert len(exporter.connections) == 1, "one handshake for all scrapes"


def test_a_closed_connection_loses_no_sample_over_https_either(
    authority: Authority,
) -> None:
    exporter, context = Exporter(), authority.context("server", "127.0.0.1")
    keys = {"tls": True, "cafile": authority.cafile}
    with serving(exporter, context), source_of(exporter, **keys) as source:
        source.open()
        exporter.hangs_up = True
        assert [source.sample_all()[0].error for _ in range(3)] == [None] * 3
    assert len(exporter.connections) > 1


def test_hosts_are_read_over_https_with_a_login(authority: Authority) -> None:
    exporter, context = Exporter(HOST_PAGE), authority.context("server", "127.0.0.1")
    exporter.login = f"Bearer {TOKEN}"
    keys = {"port": 1, **BEARER, "tls": True, "cafile": authority.cafile}
    access = NodeExporter.model_validate(keys).access()
    with serving(exporter, context):
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
    error = str(caught.value)
    assert f"at https://127.0.0.1:{exporter.port}/metrics: " in error
    assert "(Basic), HTTP 401" in error
    assert "metrics.host.prometheus.username_from" in error


def test_a_certificate_that_is_refused_is_explained(
    authority: Authority, stranger: Authority
) -> None:
    exporter, keys = Exporter(), {"tls": True, "cafile": authority.cafile}
    cases = [
        (stranger.context("server", "127.0.0.1"), "metrics.prometheus.cafile"),
        (authority.context("old", "127.0.0.1", ended=True), "has expired; expected a valid one"),
        (authority.context("far", "elsewhere.example"), "metrics.prometheus.endpoints or the"),
    ]
    for context, part in cases:
        with serving(exporter, context):
            message = refusal(exporter, **keys)
        assert (
            f"broker 1 shows no metrics at https://127.0.0.1:{exporter.port}/metrics: " in message
        )
        assert "its certificate" in message
        assert part in message


def test_a_cafile_replaces_the_authorities_of_the_system(
    authority: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", stranger.cafile)  # what OpenSSL takes for the system's
    exporter, context = Exporter(), stranger.context("server", "127.0.0.1")
    with serving(exporter, context):
        with source_of(exporter, tls=True) as source:
            source.open()
            assert source.sample_all()[0].error is None
        assert "is not trusted" in refusal(exporter, tls=True, cafile=authority.cafile)


def test_a_certificate_needs_a_trusted_authority_when_its_name_is_not_checked(
    authority: Authority, stranger: Authority
) -> None:
    exporter, keys = Exporter(), {"tls": True, "check_hostname": False}
    with serving(exporter, authority.context("far", "elsewhere.example")):
        with source_of(exporter, **keys, cafile=authority.cafile) as source:
            source.open()
            assert source.sample_all()[0].error is None
        assert "is not trusted" in refusal(exporter, **keys, cafile=stranger.cafile)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_exporter_may_require_a_clients_certificate(
    authority: Authority, stranger: Authority, version: ssl.TLSVersion
) -> None:
    context = authority.context("server", "127.0.0.1")
    context.load_verify_locations(authority.cafile)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = version
    exporter, keys = Exporter(), {"tls": True, "cafile": authority.cafile}
    own, wrong = authority.signed("own", "us.example"), stranger.signed("own", "us.example")
    with serving(exporter, context):
        with source_of(exporter, **keys, certfile=own, keyfile=own) as source:
            source.open()
            assert source.sample_all()[0].error is None
        without = refusal(exporter, **keys)
        refused = refusal(exporter, **keys, certfile=wrong, keyfile=wrong)
    # The version of TLS and the order of arrival decide whether the exporter sends an alert or
    # closes the connection.
    for message in (without, refused):
        assert "certificate" in message
        assert "metrics.prometheus.certfile" in message


@pytest.mark.parametrize(
    "heard",
    [
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        http.client.RemoteDisconnected("Remote end closed connection without response"),
    ],
    ids=lambda heard: type(heard).__name__,
)
def test_an_exporter_that_closes_after_tls_may_require_a_certificate(
    heard: Exception, snapshot: SnapshotAssertion
) -> None:
    access = HttpAccess("metrics.prometheus", is_tls=True)
    explanation = access.explain_refusal(heard, has_answered=False)
    assert explanation is not None
    assert "metrics.prometheus.certfile and keyfile" in explanation
    assert explanation == snapshot
    assert access.explain_refusal(heard, has_answered=True) is None, "it ended or restarts"


def test_plain_http_and_https_are_distinguished(authority: Authority) -> None:
    exporter = Exporter()
    with serving(exporter):
        message = refusal(exporter, tls=True, cafile=authority.cafile)
    assert "speaks no TLS; expected HTTPS" in message
    assert "metrics.prometheus.tls" in message
    with serving(exporter, authority.context("server", "127.0.0.1")):
        assert "set metrics.prometheus.tls: true" in refusal(exporter)


def test_a_server_in_go_reports_that_it_speaks_https() -> None:
    body = "Client sent an HTTP request to an HTTPS server.\n"
    explanation = HttpAccess("metrics.host.prometheus").explain_status(400, None, body)
    assert explanation is not None
    assert "set metrics.host.prometheus.tls: true" in explanation


def test_a_login_that_is_wrong_missing_or_without_rights_is_explained(
    snapshot: SnapshotAssertion,
) -> None:
    exporter = Exporter()
    exporter.login = "Basic other"
    with serving(exporter):
        missing = [refusal(exporter)]
        exporter.wants = "<script>"
        missing.append(refusal(exporter))
        wrong = [refusal(exporter, **BASIC), refusal(exporter, **BEARER)]
        exporter.login, exporter.status = None, 403
        without_rights = [refusal(exporter, **BEARER), refusal(exporter)]
    assert "(Basic), HTTP 401" in missing[0]
    assert "<script>" not in missing[1]
    for errors, status in ((missing, 401), (wrong, 401), (without_rights, 403)):
        for error in errors:
            assert f"HTTP {status}; expected" in error
            assert "metrics.prometheus.username_from and password_from, or token_from" in error
    everything = "\n".join((*missing, *wrong, *without_rights))
    assert everything.replace(str(exporter.port), "PORT") == snapshot


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


def test_an_exporter_that_restarts_is_not_a_refusal() -> None:
    exporter = Exporter()
    with serving(exporter), source_of(exporter) as source:
        source.open()
        access = configured(exporter).access()
        for error in (ConnectionResetError("gone"), ssl.SSLEOFError(8, "UNEXPECTED_EOF")):
            assert access.explain_refusal(error, has_answered=True) is None


def test_unusable_files_are_reported_before_any_request(
    authority: Authority, tmp_path: Path
) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    key = tmp_path / "locked.pem"
    key.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"locked"),
        )
    )
    own = authority.signed("own", "us.example")
    cases = [
        ({"cafile": str(tmp_path / "none.pem")}, "cafile is .*none.pem, which cannot be used: No"),
        ({"cafile": str(junk)}, "expected a PEM file of certificates; correct the path"),
        ({"certfile": str(junk), "keyfile": own}, r"prometheus\.certfile is .*junk.pem, which"),
        ({"certfile": own, "keyfile": str(key)}, "in keyfile its key without a password"),
    ]
    for keys, part in cases:
        with pytest.raises(ConfigError, match=part), source_of(Exporter(), tls=True, **keys):
            pass


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"cafile": "/ca.pem"}, "cafile has no effect without tls"),
        ({"certfile": "/c.pem", "keyfile": "/c.pem"}, "certfile has no effect without tls"),
        ({"tls": True, "certfile": "/c.pem"}, "certfile and keyfile belong together"),
        ({"username_from": "env:SCRAPER"}, "username_from and password_from belong together"),
        ({**BASIC, **BEARER}, "expected one of token_from and username_from with password_from"),
        ({"token_from": TOKEN}, "env:NAME or file:PATH"),
    ],
)
def test_keys_that_do_not_fit_each_other_are_refused(keys: dict[str, object], part: str) -> None:
    with pytest.raises(ValueError, match=part) as caught:
        configured(Exporter(), **keys)
    assert TOKEN not in str(caught.value)


def test_a_missing_secret_is_reported_before_any_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SCRAPER_PASSWORD")
    with pytest.raises(ConfigError, match=r"cluster metrics\.prometheus\.password_from is env:SC"):
        configured(Exporter(), **BASIC).access()


@pytest.mark.parametrize("token", ["", "two words", "a\r\nX-Other: 1", "tökèn", "a\x00"])
def test_a_malformed_token_is_neither_sent_nor_shown_in_a_message(token: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster metrics\.prometheus\.token_from .* token") as (
        caught
    ):
        bearer(token, "metrics.prometheus")
    assert not token or token not in str(caught.value)


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


def test_secrets_are_in_no_repr() -> None:
    access = configured(Exporter(), **BASIC).access()
    assert PASSWORD not in repr(access)
    assert PASSWORD not in repr(configured(Exporter(), **BASIC))
    assert os.environ["SCRAPER_PASSWORD"] == PASSWORD
