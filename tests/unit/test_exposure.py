"""Secrets that others can read on the network, or change in their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.checks.exposure import CHECK, exposure_findings
from jobs.checks.finding import Severity
from jobs.config import load_cluster

LOGIN = [
    "cluster.security.sasl_mechanism=PLAIN",
    "cluster.security.username_from=env:U",
    "cluster.security.password_from=env:P",
]
CLEAR = ["cluster.security.protocol=SASL_PLAINTEXT", *LOGIN]
SAFE = ["cluster.security.protocol=SASL_SSL", *LOGIN]
JMX = ["cluster.jmx.username_from=env:U", "cluster.jmx.password_from=env:P"]
NO_JMX = "cluster.jmx=null"
EXPORTERS = [
    NO_JMX,
    "cluster.metrics.prometheus={port: 1, rules: msk, username_from: env:U, password_from: env:P}",
]
HOSTS = ["cluster.metrics.host.prometheus={port: 9100, token_from: env:T}"]
AUTHENTICATE = "spark.authenticate"
CRYPTO = {"spark.network.crypto.enabled": "true", AUTHENTICATE: "true"}
STANDALONE, LOCAL = "spark://master:7077", "local[2]"


def warnings(
    overrides: list[str],
    host: str = "broker-1.example.com",
    settings: dict[str, str] | None = None,
    master: str = LOCAL,
) -> list[str]:
    given = {AUTHENTICATE: "true"} if settings is None else settings
    found = exposure_findings(load_cluster("example", overrides), [host], given, master)
    assert all((each.check, each.severity) == (CHECK, Severity.WARNING) for each in found)
    return [each.sentence for each in found]


@pytest.mark.parametrize(
    ("overrides", "tls", "words"),
    [
        (CLEAR, "security.protocol=SASL_SSL", "SASL_PLAINTEXT, so the login and all data cross"),
        (JMX, "jmx.tls=true", "jmx has a password and no TLS"),
        (EXPORTERS, "metrics.prometheus.tls=true", "prometheus has a password and no TLS, so"),
        (HOSTS, "metrics.host.prometheus.tls=true", "host.prometheus has a token and no TLS"),
        ([], "", ""),
    ],
)
def test_secrets_that_cross_a_network_in_the_clear_are_one_warning(
    overrides: list[str], tls: str, words: str
) -> None:
    found = warnings(overrides)
    assert len(found) == bool(words) and all(words in sentence for sentence in found)
    for here in ("127.0.0.1", "::1", "localhost"):
        assert warnings(overrides, here) == []
    assert warnings([*overrides, f"cluster.{tls}"] if tls else []) == []


def test_a_prometheus_server_counts_by_its_url() -> None:
    for url, is_clear in (("http://p", True), ("https://p", False), ("http://localhost", False)):
        keys = f"{{server: '{url}', selector: 'job=\"k\"', token_from: env:T}}"
        found = warnings([NO_JMX, f"cluster.metrics.prometheus={keys}"], "127.0.0.1")
        assert len(found) == is_clear
        assert all("https:// in metrics.prometheus.server for other" in each for each in found)


def test_endpoints_count_by_their_own_hosts() -> None:
    port = "cluster.jmx.port=null"
    tunnelled = [*JMX, port, "cluster.jmx.endpoints={1: '127.0.0.1:9999', 2: '[::1]:9999'}"]
    assert warnings(tunnelled) == []
    away = [*JMX, port, "cluster.jmx.endpoints={1: '127.0.0.1:9999', 2: '[2001:db8::1]:9999'}"]
    (sentence,) = warnings(away, "127.0.0.1")
    assert "jmx has a password and no TLS" in sentence


def test_secrets_that_go_to_executors_require_sparks_encryption() -> None:
    (sentence,) = warnings(SAFE, master=STANDALONE)
    assert "sent to Spark's executors in the clear; expected spark.network.crypto" in sentence
    assert warnings(SAFE, master=STANDALONE, settings=CRYPTO) == []
    assert warnings([], master=STANDALONE) == [], "nothing to be sent"


FILES: tuple[tuple[str, str, list[str]], ...] = (
    ("security.password_from", "file:{}", SAFE[:-1]),
    ("security.cafile", "{}", SAFE),
    ("security.oauth_client_secret_from", "file:{}", [
        "cluster.security.protocol=SASL_SSL",
        "cluster.security.sasl_mechanism=OAUTHBEARER",
        "cluster.security.oauth_token_url=https://idp.example.com/t",
        "cluster.security.oauth_client_id_from=env:U",
    ]),
    ("jmx.cafile", "{}", ["cluster.jmx.tls=true"]),
    ("metrics.host.prometheus.token_from", "file:{}", [
        *HOSTS, "cluster.metrics.host.prometheus.tls=true",
    ]),
    ("client_properties", "{}", []),
)  # fmt: skip


@pytest.mark.parametrize(("key", "form", "others"), FILES)
def test_every_file_that_a_cluster_names_is_its_owners_to_change(
    tmp_path: Path, key: str, form: str, others: list[str]
) -> None:
    file = tmp_path / "named"
    file.write_text("ssl.truststore.type=PEM\n")
    overrides = [*others, f"cluster.{key}={form.format(file)}"]
    for mode, is_safe in ((0o640, True), (0o660, False), (0o602, False)):
        file.chmod(mode)
        found = [each for each in warnings(overrides) if "can write" in each]
        assert is_safe is not bool(found)
        for sentence in found:
            assert f"others can write the file of {key}, {file}" in sentence
            assert f"chmod go-w {file}" in sentence
    if form != "{}":
        file.unlink()
        assert warnings(overrides) == [], "the code that reads the file reports it"


def test_a_file_of_secrets_that_everybody_can_read_is_a_warning(tmp_path: Path) -> None:
    properties, store = tmp_path / "client.properties", tmp_path / "client.p12"
    store.write_bytes(b"store")
    properties.write_text(
        "security.protocol=SSL\n"
        f"ssl.keystore.type=PKCS12\nssl.keystore.location={store}\nssl.keystore.password=p\n"
    )
    properties.chmod(0o640)
    store.chmod(0o640)
    given = [f"cluster.client_properties={properties}"]
    assert warnings(given) == []
    properties.chmod(0o604)
    store.chmod(0o604)
    named, kept = warnings(given)
    assert f"everybody can read the file of client_properties, {properties}" in named
    assert f"everybody can read the file of security.certfile, {store}" in kept
    assert f"chmod o-rwx {store}" in kept


def test_a_certificate_of_any_name_is_a_warning() -> None:
    for key, tls in (("security", "protocol=SSL"), ("jmx", "tls=true")):
        overrides = [f"cluster.{key}.{tls}", f"cluster.{key}.check_hostname=false"]
        (sentence,) = warnings(overrides)
        assert f"{key}.check_hostname is false" in sentence
        assert warnings(overrides, "127.0.0.1") == []


def test_a_session_without_authentication_is_a_warning() -> None:
    for master in (LOCAL, STANDALONE):
        (sentence,) = warnings(SAFE, master=master, settings={**CRYPTO, AUTHENTICATE: "false"})
        assert "Spark's ports accept any program" in sentence
        assert "spark.authenticate=true" in sentence
