"""Secrets: read by reference, never part of a file, never quoted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.config import load_cluster
from jobs.config.security import Security, read_secret
from jobs.setup.child_environment import child_environment, secrets_withheld
from metrics.common.errors import ConfigError

SECRET = "hunter2"
SASL = [
    "cluster.security.protocol=SASL_SSL",
    "cluster.security.sasl_mechanism=SCRAM-SHA-512",
    "cluster.security.username_from=env:TEST_KAFKA_USER",
]


def test_plaintext_is_the_default() -> None:
    assert load_cluster("example").security.client_kwargs() == {"security_protocol": "PLAINTEXT"}


def test_references_become_the_options_of_kafka_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    password, authority = tmp_path / "password", tmp_path / "ca.pem"
    password.write_text(f"{SECRET}\n", encoding="utf-8")
    authority.write_text("certificate", encoding="utf-8")
    monkeypatch.setenv("TEST_KAFKA_USER", "alice")
    cluster = load_cluster(
        "example",
        [
            *SASL,
            f"cluster.security.password_from=file:{password}",
            f"cluster.security.cafile={authority}",
            "cluster.security.check_hostname=false",
        ],
    )
    assert cluster.security.client_kwargs() == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
        "ssl_cafile": str(authority),
        "ssl_check_hostname": False,
    }
    assert SECRET not in repr(cluster)


def test_mutual_tls_passes_certificate_key_and_its_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_KEY_PASSWORD", SECRET)
    pem = tmp_path / "client.pem"
    pem.write_text("certificate and key", encoding="utf-8")
    security = Security(
        protocol="SSL",
        certfile=str(pem),
        keyfile=str(pem),
        key_password_from="env:TEST_KEY_PASSWORD",
    )
    assert security.client_kwargs() == {
        "security_protocol": "SSL",
        "ssl_check_hostname": True,
        "ssl_certfile": str(pem),
        "ssl_keyfile": str(pem),
        "ssl_password": SECRET,
    }


@pytest.mark.parametrize(
    "override",
    [
        f"cluster.security.password={SECRET}",
        f"cluster.security.password_from={SECRET}",
        f"cluster.security.sasl_plain_password={SECRET}",
        f"cluster.security.password_from={{value: {SECRET}}}",
        f"cluster.password={SECRET}",
        f"cluster.security.password_from=*{SECRET}",
        f"cluster.security.password_from=!{SECRET} x",
        f"cluster.security.token_from={{{SECRET}: [}}",
        f"cluster.security.password_from={{1.5: {SECRET}, *{SECRET}: 1}}",
        f"cluster.jmx.password_from='{SECRET}",
        f"cluster.security.oauth_token_url=https://me:{SECRET}@idp.example.com/token",
        f"cluster.metrics.host.prometheus.token={SECRET}",
        f"cluster.metrics.host.prometheus={{port: 9100, token_from: {SECRET}}}",
        f"cluster.metrics.host.prometheus.endpoints={{1: 'https://me:{SECRET}@host:9100'}}",
        f"cluster.metrics.host.prometheus.endpoints={{1: 'me:{SECRET}@host:9100'}}",
        f"cluster.metrics.host.prometheus.endpoints={{1: '{SECRET}@host:9100'}}",
    ],
)
def test_a_literal_secret_is_refused_and_not_quoted(override: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_cluster("example", [*SASL, override])
    assert SECRET not in str(caught.value)
    expected = ("env:", "without user and password", "expected an address such as")
    assert any(part in str(caught.value) for part in expected)


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["cluster.security.protocol=SASL_SSL"], "needs sasl_mechanism as well"),
        (SASL, "needs password_from as well"),
        (["cluster.security.username_from=env:A"], "no effect with protocol PLAINTEXT"),
        (["cluster.security.cafile=/ca.pem"], "expected protocol SSL or SASL_SSL"),
        (
            ["cluster.security.protocol=SSL", "cluster.security.certfile=/c.pem"],
            "certfile and keyfile belong together",
        ),
    ],
)
def test_contradicting_keys_of_security_are_refused(overrides: list[str], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        load_cluster("example", overrides)


def test_a_missing_file_is_named_before_any_connection() -> None:
    with pytest.raises(ConfigError, match=r"security\.cafile is /nowhere/ca\.pem"):
        Security(protocol="SSL", cafile="/nowhere/ca.pem").client_kwargs()


def test_the_message_for_a_missing_secret_names_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TEST_KAFKA_NOWHERE", raising=False)
    empty = tmp_path / "empty"
    empty.write_text("\n", encoding="utf-8")
    for reference, part in (
        ("env:TEST_KAFKA_NOWHERE", "TEST_KAFKA_NOWHERE is not set or empty"),
        (f"file:{tmp_path / 'missing'}", "cannot be read"),
        (f"file:{empty}", "is empty"),
    ):
        with pytest.raises(ConfigError, match=part):
            read_secret(reference, "security.password_from")


@pytest.mark.parametrize("given", [SECRET, f"https://hooks.example.com/{SECRET}", "file:", "env: "])
def test_a_secret_instead_of_its_reference_is_refused_and_not_quoted(given: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is neither env:NAME nor file:PATH; .* name that"
    ) as caught:
        read_secret(given, "--notify", "")
    assert SECRET not in str(caught.value)


def test_a_secret_of_the_environment_is_kept_from_processes_that_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_PASSWORD", SECRET)
    monkeypatch.setenv("TEST_OTHER", "no secret")
    monkeypatch.setenv("TEST_TOKEN", f"another {SECRET}")
    read_secret("env:TEST_PASSWORD", "security.password_from")
    # A configured secret counts before any code reads it.
    exporters = "cluster.metrics.host.prometheus={port: 9100, token_from: env:TEST_TOKEN}"
    load_cluster("example", [exporters])
    show = [sys.executable, "-c", "import os; print(dict(os.environ))"]
    with secrets_withheld():
        shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert SECRET not in shown and "no secret" in shown
    assert "no secret" in child_environment().values()
    assert not any(SECRET in value for value in child_environment().values())
    assert read_secret("env:TEST_PASSWORD", "security.password_from") == SECRET
