"""Secrets that others can read on the network, or change in their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from jobs.checks.exposure import CHECK, exposure_findings
from jobs.checks.finding import Severity
from jobs.config import load_cluster
from tests.support.commands import ROOT

EXPOSURES: dict[str, list[str]] = YAML(typ="safe", pure=True).load(
    (ROOT / "tests/data/exposures.yaml").read_text(encoding="utf-8")
)
LOGIN = [
    "cluster.security.sasl_mechanism=PLAIN",
    "cluster.security.username_from=env:U",
    "cluster.security.password_from=env:P",
]
SAFE = ["cluster.security.protocol=SASL_SSL", *LOGIN]
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
    found = list(exposure_findings(load_cluster("example", overrides), [host], given, master))
    assert all((each.check, each.severity) == (CHECK, Severity.WARNING) for each in found)
    return [each.sentence for each in found]


@pytest.mark.parametrize("name", EXPOSURES)
def test_secrets_and_names_that_cross_a_network_unprotected_are_warnings(
    name: str, snapshot: SnapshotAssertion
) -> None:
    hosts = ("broker-1.example.com", "127.0.0.1", "::1", "localhost")
    away, *here = (warnings(EXPOSURES[name], host) for host in hosts)
    assert {"elsewhere": away, "on this machine": here[0]} == snapshot
    assert here[1:] == here[:1] * 2


def test_secrets_that_go_to_executors_require_sparks_encryption() -> None:
    (sentence,) = warnings(SAFE, master=STANDALONE)
    assert "to Spark's executors without encryption; expected spark.network.crypto" in sentence
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
        found = [each for each in warnings(overrides) if "can change" in each and "which" in each]
        assert is_safe is not bool(found)
        for sentence in found:
            assert f"{key} names {file}, which other users can change" in sentence
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
    assert f"client_properties names {properties}; this file contains a secret" in named
    assert f"security.certfile names {store}; this file contains a secret" in kept
    assert f"chmod o-rwx {store}" in kept


def test_a_session_without_authentication_is_a_warning() -> None:
    for master in (LOCAL, STANDALONE):
        (sentence,) = warnings(SAFE, master=master, settings={**CRYPTO, AUTHENTICATE: "false"})
        assert "any program can connect to Spark's ports" in sentence
        assert "spark.authenticate=true" in sentence
