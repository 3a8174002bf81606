"""A secret that is planted at every place of a reference is in no record, message or repr."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.config import describe, load, load_cluster
from jobs.runs.results import command_of
from jobs.runs.resumption import config_text
from metrics.common.errors import ConfigError

CANARY = "canary-7f3a9c"
PROPERTIES = {
    "bootstrap.servers": CANARY + ":9092",
    "sasl.kerberos.service.name": CANARY,
    "ssl.truststore.location": f"/{CANARY}.pem",
    "sasl.oauthbearer.scope": CANARY,
    "sasl.oauthbearer.extensions": f"name={CANARY}",
    "sasl.oauthbearer.token.endpoint.url": f"https://{CANARY}.example.com/token",
    "extension_name": CANARY,
    "scope": CANARY,
    "clientSecret": CANARY,
    "password": CANARY,
}
JAAS = {"extension_name", "scope", "clientSecret", "password"}
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def properties_file(folder: Path, name: str, provider: str) -> Path:
    """A client.properties whose property or option `name` comes from a provider."""
    mechanism = {"sasl.kerberos.service.name": "GSSAPI", "password": "PLAIN"}.get(
        name, "OAUTHBEARER"
    )
    options = {"clientId": "me", "clientSecret": "s", "username": "me", "password": "p"}
    given = {
        "bootstrap.servers": "a:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.oauthbearer.token.endpoint.url": "https://idp.example.com/token",
    }
    (options if name in JAAS else given)[name] = provider
    if mechanism != "GSSAPI":
        entry = " ".join(f'{key}="{value}"' for key, value in options.items())
        given["sasl.jaas.config"] = f"{OAUTH} {entry};"
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return file


def provided(kind: str, folder: Path, value: str, patch: pytest.MonkeyPatch) -> str:
    (folder / "secrets").write_text(f"k={value}\n")
    patch.setenv("CANARY_VARIABLE", value)
    return {"file": f"${{file:{folder}/secrets:k}}", "env": "${env:CANARY_VARIABLE}"}[kind]


def shown(action: Callable[[], Any]) -> str:
    """What is recorded and shown of a configuration, or the message that refuses it."""
    try:
        config = action()
    except ConfigError as error:
        return str(error)
    settings = json.loads(config_text(config))
    return "\n".join(
        (
            config_text(config),
            json.dumps(describe(config.cluster), default=str),
            str(command_of(settings)),
            *(str(section.unencrypted_secret()) for section in config.cluster.sources),
        )
    )


@pytest.mark.parametrize("kind", ["file", "env"])
@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("is_valid", [True, False])
def test_a_value_of_a_provider_is_recorded_as_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, is_valid: bool
) -> None:
    value = PROPERTIES[name] if is_valid else f"{CANARY} / not {PROPERTIES[name]}"
    file = properties_file(tmp_path, name, provided(kind, tmp_path, value, monkeypatch))
    cluster = tmp_path / "prod.yaml"
    cluster.write_text(f"client_properties: {file}\nmetrics: {{client_only: true}}\n")
    assert CANARY not in shown(lambda: load(str(cluster), "quick", "quick"))


SECTIONS: dict[str, Any] = {
    "security.password_from": {"security": {"protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
                                            "username_from": "R", "password_from": "R"}},
    "jmx": {"jmx": {"port": 1, "username_from": "R", "password_from": "R"}},
    "exporters": {"metrics": {"prometheus": {"port": 1, "token_from": "R"}}},
    "server": {"metrics": {"prometheus": {"server": "https://p", "selector": 'job="k"',
                                          "username_from": "R", "password_from": "R"}}},
}  # fmt: skip


@pytest.mark.parametrize("section", SECTIONS)
def test_a_reference_is_recorded_and_its_value_is_in_no_repr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    monkeypatch.setenv("CANARY_VARIABLE", CANARY)
    document = {"bootstrap_servers": ["a:9092"], **SECTIONS[section]}
    if "metrics" not in document:
        document.setdefault("jmx", {"port": 1})
    file = tmp_path / "prod.yaml"
    file.write_text(json.dumps(document).replace('"R"', '"env:CANARY_VARIABLE"'))
    config = load(str(file), "quick", "quick")
    options = config.cluster.client_kwargs()
    sources = config.cluster.sources
    opened = [each.access() for each in sources if hasattr(each, "access")]
    assert CANARY not in shown(lambda: config) + repr((config, options, opened))


def test_a_literal_secret_of_an_extension_is_refused() -> None:
    keys = ("password", "passphrase", "api_key", "apiKey", "access-key", "token", "client_secret",
            "Authorization", "PWD")  # fmt: skip
    for option in (*(f"{key}: {CANARY}" for key in keys), f"url: 'https://u:{CANARY}@example.com'"):
        override = f"cluster.metrics.extension={{source: own, options: {{{option}}}}}"
        with pytest.raises(ConfigError, match="env:NAME or file:PATH") as refused:
            load_cluster("example", ["cluster.jmx=null", override])
        assert CANARY not in str(refused.value)
