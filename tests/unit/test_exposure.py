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
CRYPTO = {"spark.network.crypto.enabled": "true"}
STANDALONE, LOCAL = "spark://master:7077", "local[2]"


def warnings(
    overrides: list[str],
    host: str = "broker-1.example.com",
    settings: dict[str, str] | None = None,
    master: str = LOCAL,
) -> list[str]:
    found = exposure_findings(load_cluster("example", overrides), [host], settings or {}, master)
    assert all((each.check, each.severity) == (CHECK, Severity.WARNING) for each in found)
    return [each.sentence for each in found]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (CLEAR, "SASL_PLAINTEXT, so the login and all data cross the network in the clear"),
        (JMX, "jmx has a password and no TLS"),
        (EXPORTERS, "metrics.prometheus has a password and no TLS, so it crosses the network"),
        (HOSTS, "metrics.host.prometheus has a token and no TLS"),
    ],
)
def test_secrets_that_cross_a_network_in_the_clear_are_one_warning(
    overrides: list[str], words: str
) -> None:
    (sentence,) = warnings(overrides)
    assert words in sentence
    for here in ("127.0.0.1", "::1", "localhost"):
        assert warnings(overrides, here) == []


def test_tls_causes_no_warning() -> None:
    assert warnings([*SAFE, *JMX, "cluster.jmx.tls=true"]) == []
    for section, login in (("prometheus", EXPORTERS), ("host.prometheus", HOSTS)):
        assert warnings([*login, f"cluster.metrics.{section}.tls=true"]) == []
    assert warnings([]) == []


@pytest.mark.parametrize(("url", "is_clear"), [("http://p", True), ("https://p", False)])
def test_a_prometheus_server_counts_by_its_url(url: str, is_clear: bool) -> None:
    keys = f"{{server: '{url}', selector: 'job=\"k\"', token_from: env:T}}"
    given = [NO_JMX, f"cluster.metrics.prometheus={keys}"]
    found = warnings(given, "127.0.0.1")
    assert ["https:// in metrics.prometheus.server for other" in each for each in found] == (
        [True] if is_clear else []
    )
    assert warnings([NO_JMX, given[1].replace("//p", "//localhost")]) == []


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


def test_a_secret_that_others_can_write_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2")
    overrides = [*SAFE[:-1], f"cluster.security.password_from=file:{file}"]
    file.chmod(0o640)
    assert warnings(overrides) == []
    for mode in (0o660, 0o602):
        file.chmod(mode)
        (sentence,) = warnings(overrides)
        assert f"others can write the file of security.password_from, {file}" in sentence
        assert f"chmod go-w {file}" in sentence
    for_scraping = [
        HOSTS[0].replace("env:T", f"file:{file}"),
        "cluster.metrics.host.prometheus.tls=true",
    ]
    (sentence,) = warnings(for_scraping)
    assert f"others can write the file of metrics.host.prometheus.token_from, {file}" in sentence
    file.unlink()
    assert warnings(overrides) == [], "the code that reads the file reports it"
