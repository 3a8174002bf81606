"""Clusters that are described by Kafka's client.properties, and by environment variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.config import load, load_cluster, load_recorded
from jobs.runs.resumption import config_text
from metrics.common.errors import ConfigError

SECRET = 'hun"ter2'
SASL = r"""
bootstrap.servers=a.example.com:9092, b.example.com:9092
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="alice" \
    password="hun\\"ter2";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
ssl.endpoint.identification.algorithm=
acks=all
client.dns.lookup=use_all_dns_ips
"""


def cluster_file(folder: Path, properties: str, more: str = "") -> str:
    given = folder / "client.properties"
    given.write_text(properties, encoding="utf-8")
    file = folder / "prod.yaml"
    file.write_text(f"client_properties: {given}\nmetrics: {{client_only: true}}\n{more}")
    return str(file)


def test_a_properties_file_of_kafka_supplies_addresses_and_security(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = load_cluster(cluster_file(tmp_path, SASL))
    assert cluster.bootstrap_servers == ("a.example.com:9092", "b.example.com:9092")
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    assert cluster.security.client_kwargs() == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
        "ssl_cafile": "/etc/kafka/ca.pem",
        "ssl_check_hostname": False,
    }


def test_its_secrets_are_recorded_nowhere_and_the_record_resumes(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, SASL)
    config = load(file, "quick", "quick")
    recorded = config_text(config)
    assert "ter2" not in recorded
    assert "alice" not in recorded
    assert f"properties:{tmp_path}/client.properties#password" in recorded
    assert load_recorded(json.loads(recorded), cluster=file) == config


def test_keys_of_the_cluster_itself_come_first(tmp_path: Path) -> None:
    own = "bootstrap_servers: ['c:9092']\nsecurity: {protocol: PLAINTEXT}"
    file = cluster_file(tmp_path, SASL, own)
    cluster = load_cluster(file)
    assert cluster.bootstrap_servers == ("c:9092",)
    assert cluster.security.protocol == "PLAINTEXT"


def test_an_oauth_client_is_read_from_the_properties(tmp_path: Path) -> None:
    properties = (
        "bootstrap.servers=a:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.token.endpoint.url=https://idp.example.com/token\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.x\n"
        "sasl.jaas.config=org.apache.kafka.OAuthBearerLoginModule required "
        "clientId='me' clientSecret='it' scope='kafka';\n"
    )
    security = load_cluster(cluster_file(tmp_path, properties)).security
    assert security.oauth_token_url == "https://idp.example.com/token"
    assert security.oauth_scope == "kafka"
    assert (security.oauth_client_id_from or "").endswith("client.properties#clientId")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ("sasl.mechanism=NTLM", 'sasl_mechanism is "NTLM"'),
        ("ssl.keystore.key=-----BEGIN", "which has ssl.keystore.key without ssl.keystore.cert"),
        ("sasl.jaas.config=X required username=a;", "with X and no sasl.mechanism; expected sasl"),
        (
            "sasl.mechanism=PLAIN\nsasl.jaas.config=X required username=a;",
            "without password; expected password=…",
        ),
    ],
)
def test_an_unsupported_property_is_refused(tmp_path: Path, properties: str, words: str) -> None:
    whole = f"bootstrap.servers=a:9092\nsecurity.protocol=SASL_SSL\n{properties}"
    with pytest.raises(ConfigError) as caught:
        load_cluster(cluster_file(tmp_path, whole))
    assert words in str(caught.value)


def test_a_missing_file_is_refused_with_its_key(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, SASL)
    (tmp_path / "client.properties").unlink()
    with pytest.raises(ConfigError, match=r"cluster client_properties is .*cannot be read \(No su"):
        load_cluster(file)


VARIABLES = """
bootstrap_servers: ['${KAFKA_HOST}:9092', 'b:9092']
jmx: {port: '${JMX}'}
link_mbit_per_s: 1000
"""


def test_variables_have_their_values_and_are_recorded_as_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_HOST", "kafka-7.internal")
    monkeypatch.setenv("JMX", "9998")
    file = tmp_path / "prod.yaml"
    file.write_text(VARIABLES)
    config = load(str(file), "quick", "quick")
    assert config.cluster.bootstrap_servers == ("kafka-7.internal:9092", "b:9092")
    assert config.cluster.jmx is not None
    assert config.cluster.jmx.port == 9998
    recorded = config_text(config)
    assert "kafka-7" not in recorded
    settings = json.loads(recorded)["cluster"]
    assert settings["bootstrap_servers"] == ["${KAFKA_HOST}:9092", "b:9092"]
    assert settings["jmx.port"] == "${JMX}"
    monkeypatch.setenv("KAFKA_HOST", "kafka-8.internal")
    resumed = load_recorded(json.loads(recorded), cluster=str(file)).cluster
    assert resumed.bootstrap_servers == ("kafka-8.internal:9092", "b:9092")


def test_a_variable_that_is_not_set_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "prod.yaml"
    file.write_text(VARIABLES)
    with pytest.raises(ConfigError, match=r"line 2: bootstrap_servers\.0 has \$\{KAFKA_HOST\},"):
        load_cluster(str(file))


@pytest.mark.parametrize(
    "line",
    ["description: 'x ${KAFKA_PASSWORD}'", "security: {username_from: 'env:${WHO}'}"],
)
def test_a_variable_with_a_secret_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    monkeypatch.setenv("WHO", SECRET)
    file = tmp_path / "prod.yaml"
    file.write_text(f"bootstrap_servers: ['b:9092']\nmetrics: {{client_only: true}}\n{line}")
    with pytest.raises(ConfigError, match=r"which may be a secret; .* ends in _from") as caught:
        load_cluster(str(file))
    assert SECRET not in str(caught.value)
