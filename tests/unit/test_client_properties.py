"""client.properties: each key of Kafka's clients, and the forms that providers document."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from jobs.config import load, load_cluster, load_recorded
from jobs.config.client_properties import keys_of, secret
from jobs.config.client_property_names import KNOWN, LIBRDKAFKA, NO_EFFECT, REFUSED, USED
from jobs.config.key_stores import is_store, read_store
from jobs.runs.resumption import config_text
from jobs.setup.jars import kafka_jars
from jobs.setup.releases import DEFAULT_RELEASE
from metrics.common.errors import ConfigError
from tests.support.class_constants import text_constants
from tests.support.java_stores import NAMES, store

DATA = Path(__file__).parents[1] / "data"
FORMS = DATA / "client-properties"
PAGE = Path(__file__).parents[2] / "docs" / "client-properties.md"
CLASSES = (
    "clients/CommonClientConfigs",
    "common/config/SslConfigs",
    "common/config/SaslConfigs",
    "common/config/SecurityConfig",
)


def write(folder: Path, text: str | bytes) -> str:
    file = folder / "client.properties"
    file.write_bytes(text.encode("latin-1") if isinstance(text, str) else text)
    return str(file)


def loaded(folder: Path, text: str, more: str = "") -> Any:
    """The cluster of a file that names such properties."""
    cluster = folder / "prod.yaml"
    named = write(folder, text)
    cluster.write_text(f"client_properties: {named}\nmetrics: {{client_only: true}}\n{more}")
    return load_cluster(str(cluster))


def kafka_keys(version: str = DEFAULT_RELEASE) -> set[str]:
    """The keys of a release's clients: constants that are names of properties."""
    jar = next(each for each in kafka_jars(version) if each.name.startswith("kafka-clients-"))
    found = {
        text
        for each in CLASSES
        for name, text in text_constants(jar, f"org/apache/kafka/{each}").items()
        if not name.endswith("_DOC")
    }
    return {text for text in found if re.fullmatch(r"[a-z]+\.[a-z.]+|retries", text)}


# --- each key of Kafka's clients ------------------------------------------------

GIVEN = YAML(typ="safe").load((DATA / "client-property-probes.yaml").read_text("utf-8"))
BASES: Mapping[str, Mapping[str, str]] = {"": {}, **GIVEN["files"]}
PROBES: Mapping[str, tuple[str, str]] = GIVEN["probes"]


def meaning(folder: Path, given: Mapping[str, str]) -> object:
    """The keys of a file, or the sentence that refuses it."""
    text = "".join(f"{name}={value}\n" for name, value in given.items())
    try:
        return keys_of(write(folder, text))[0]
    except ConfigError as error:
        return str(error)


def with_probe(key: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """A file without a key or with its usual value, and the file that differs by the key."""
    usual = "kerberos" if key.startswith("sasl.k") else "oauth"
    kind, value = PROBES.get(key, ("mutual" if key.startswith("ssl.") else usual, "7"))
    base = BASES[kind]
    changed = {**base, key: value}
    return base, {name: text for name, text in changed.items() if text}


@pytest.mark.parametrize(
    "version", [DEFAULT_RELEASE, pytest.param("4.3.1", marks=pytest.mark.long)]
)
def test_each_key_of_kafka_is_used_without_effect_or_refused(tmp_path: Path, version: str) -> None:
    keys = kafka_keys(version)
    assert len(keys) > 90 and set(PROBES) <= keys
    for key in sorted(keys):
        kinds = [kind for kind in (USED, NO_EFFECT, REFUSED) if key in kind]
        assert len(kinds) == 1, f"{key}: decide what it means here, in client_property_names.py"
        base, changed = with_probe(key)
        before, after = meaning(tmp_path, base), meaning(tmp_path, changed)
        if key in REFUSED:
            assert f"which has {key}; expected" in str(after)
        else:
            assert (after == before) == (key in NO_EFFECT), key


def test_the_lists_name_nothing_twice_and_the_page_has_each_used_property() -> None:
    assert len(USED) + len(NO_EFFECT) + len(REFUSED) + len(LIBRDKAFKA) == len(KNOWN)
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in USED if f"| `{key}` |" not in page] == []


# --- the forms that providers document ------------------------------------------

REFUSED_FORMS = {"kerberos-keytab"}


@pytest.mark.parametrize("name", sorted(each.stem for each in FORMS.iterdir()))
def test_forms_of_providers_are_taken_or_refused_with_a_remedy(
    tmp_path: Path, name: str, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "ca.password").write_text("changeit")
    (tmp_path / "user.password").write_text("changeit")
    (tmp_path / "sasl.jaas.config").write_text(
        'x.ScramLoginModule required username="alice" password="placeholder";'
    )
    text = (FORMS / f"{name}.properties").read_text().replace("SECRETS", str(tmp_path))
    servers = "" if "bootstrap.servers" in text else (
        "bootstrap_servers: ['b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098']"
    )  # fmt: skip
    try:
        security = loaded(tmp_path, text, servers).security
    except ConfigError as error:
        assert name in REFUSED_FORMS
        sentence = str(error).replace(str(tmp_path), "…")
        assert sentence == snapshot
        return
    assert name not in REFUSED_FORMS
    keys = {key: value for key, value in security.model_dump().items() if value is not None}
    assert {key: str(value).replace(str(tmp_path), "…") for key, value in keys.items()} == snapshot
    assert name in PAGE.read_text(encoding="utf-8")


# --- Java's form of properties --------------------------------------------------


def test_blanks_escapes_continuations_and_latin_1_are_those_of_java(tmp_path: Path) -> None:
    text = (
        b"\xef\xbb\xbf! a comment\n  security.protocol \t sasl_ssl  \n"
        b"sasl.mechanism:PLAIN\r\nbootstrap.servers = SASL_SSL://a:9092 , \\\r\n    b:9092\n"
        b'sasl.jaas.config=x.PlainLoginModule required /* first */ username="al\\u00efce" \\\n'
        b"  password='\xe9\\\\n\\\\101;'; // last\n"
    )
    file = write(tmp_path, text)
    keys, _ = keys_of(file)
    assert keys["bootstrap_servers"] == ["a:9092", "b:9092"]
    assert keys["security"]["protocol"] == "SASL_SSL"
    assert secret(f"{file}#username") == "alïce"
    assert secret(f"{file}#password") == "é\nA;"


def test_a_file_that_java_cannot_read_is_refused(tmp_path: Path) -> None:
    for content, part in (
        ("a=b".encode("utf-16"), "UTF-16"),
        (b"a=\\u12", "cannot be read"),
        (b"a" * 1_000_001, "more than 1,000,000 bytes"),
    ):
        with pytest.raises(ConfigError, match=part):
            keys_of(write(tmp_path, content))


# --- configuration providers ----------------------------------------------------


def provided(folder: Path, value: str, more: str = "") -> str:
    file = write(folder, f"sasl.password={value}\n{more}")
    return secret(f"{file}#sasl.password")


def test_values_of_providers_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PASSWORD", "of env")
    (tmp_path / "other.properties").write_text("key = of file\n")
    (tmp_path / "name").write_text("of dir\n")
    assert provided(tmp_path, "${env:TEST_PASSWORD}") == "of env"
    assert provided(tmp_path, f"${{file:{tmp_path}/other.properties:key}}") == "of file"
    assert provided(tmp_path, f"${{dir:{tmp_path}:name}}") == "of dir"
    declared = "config.providers=vars\nconfig.providers.vars.class=x.EnvVarConfigProvider\n"
    assert provided(tmp_path, "<${vars:TEST_PASSWORD}>", declared) == "<of env>"
    assert provided(tmp_path, "${no provider} ${vars:X}") == "${no provider} ${vars:X}"


# --- the cluster's own keys -----------------------------------------------------

CLUSTERS = YAML(typ="safe").load((DATA / "clusters-with-properties.yaml").read_text("utf-8"))


@pytest.mark.parametrize("name", CLUSTERS)
def test_keys_of_the_cluster_replace_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, snapshot: SnapshotAssertion
) -> None:
    for each in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(each, raising=False)
    security = loaded(tmp_path, *CLUSTERS[name]).security
    keys = {key: value for key, value in security.model_dump().items() if value is not None}
    assert {key: str(value).replace(str(tmp_path), "…") for key, value in keys.items()} == snapshot


def test_a_file_without_addresses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no bootstrap\.servers; expected bootstrap_servers"):
        loaded(tmp_path, CLUSTERS["a region of the cluster's own"][0])


def test_a_refused_property_with_a_value_without_effect_is_taken(tmp_path: Path) -> None:
    without_sasl = "sasl.mechanism=PLAIN\nsasl.login.class=x"
    for line in ("enable.ssl.certificate.verification=true", without_sasl):
        text = f"security.protocol=SSL\n{line}\n"
        assert keys_of(write(tmp_path, text))[0] == {"security": {"protocol": "SSL"}}


# --- stores ---------------------------------------------------------------------


def test_stores_of_java_are_read_with_and_without_their_password(tmp_path: Path) -> None:
    paths = {name: store(tmp_path, name) for name in NAMES}
    keys = (
        read_store(paths["client.jks"], "certfile", "changeit", "keypass"),
        read_store(paths["client.p12"], "certfile", "changeit"),
    )
    assert len({each.chain for each in keys}) == 1
    assert all("BEGIN PRIVATE KEY" in each.key and each.key not in repr(each) for each in keys)
    trusts = [
        read_store(paths["trust.jks"], "cafile"),
        read_store(paths["trust.jks"], "cafile", "changeit"),
        read_store(paths["trust.p12"], "cafile", "changeit"),
        read_store(paths["cacerts.p12"], "cafile"),
    ]
    assert {each.authorities for each in trusts} == {keys[0].chain}
    assert all(is_store(path) for path in paths.values())
    assert not is_store(write(tmp_path, "-----BEGIN CERTIFICATE-----\n"))


def test_a_store_that_does_not_open_is_refused_with_the_remedy(tmp_path: Path) -> None:
    for name, password, key_password, part in (
        ("trust.jks", "wrong", None, "the password is wrong"),
        ("client.jks", "changeit", "wrong", "the password of the private key is wrong"),
        ("client.jks", None, None, "no password is given"),
        ("trust.p12", "wrong", None, "Invalid password"),
        ("trust.p12", None, None, "Invalid password"),
        ("trust.jceks", "changeit", None, "it is a JCEKS store"),
    ):
        with pytest.raises(ConfigError, match=rf"{part}.*keytool -importkeystore") as caught:
            read_store(store(tmp_path, name), "certfile", password, key_password)
        assert "changeit" not in str(caught.value)
    whole = Path(store(tmp_path, "trust.jks"))
    content = whole.read_bytes()
    for at in (200, 100, 30):
        whole.write_bytes(content[:at])
        with pytest.raises(ConfigError, match="it ends in the middle of an entry"):
            read_store(str(whole), "cafile")


# --- clusters that they describe --------------------------------------------------

SASL = (DATA / "scram-client.properties").read_text()


def test_a_properties_file_supplies_addresses_and_security_besides_the_clusters_own_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "bootstrap_servers: ['c:9092']\nsecurity: {protocol: PLAINTEXT}"
    cluster = loaded(tmp_path, SASL, own)
    assert cluster.bootstrap_servers == ("c:9092",)
    assert cluster.security.protocol == "PLAINTEXT"
    cluster = loaded(tmp_path, SASL)
    assert cluster.bootstrap_servers == ("a.example.com:9092", "b.example.com:9092")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", lambda _: True)
        assert cluster.security.client_kwargs() == {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "alice",
            "sasl_plain_password": 'hun"ter2',
            "ssl_cafile": "/etc/kafka/ca.pem",
            "ssl_check_hostname": False,
        }
    file = str(tmp_path / "prod.yaml")
    config = load(file, "quick", "quick")
    recorded = config_text(config)
    assert "ter2" not in recorded and "alice" not in recorded
    assert f"properties:{tmp_path}/client.properties#password" in recorded
    assert load_recorded(json.loads(recorded), cluster=file) == config
    (tmp_path / "client.properties").unlink()
    with pytest.raises(ConfigError, match=r"cluster client_properties is .*cannot be read \(No su"):
        load_cluster(file)


# --- environment variables in a cluster's file ------------------------------------


def test_variables_have_their_values_and_are_recorded_as_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prod.yaml"
    file.write_text(
        "\nbootstrap_servers: ['${KAFKA_HOST}:9092', 'b:9092']\njmx: {port: '${JMX}'}\n"
    )
    with pytest.raises(ConfigError, match=r"line 2: bootstrap_servers\.0 has \$\{KAFKA_HOST\},"):
        load_cluster(str(file))
    monkeypatch.setenv("KAFKA_HOST", "kafka-7.internal")
    monkeypatch.setenv("JMX", "9998")
    config = load(str(file), "quick", "quick")
    assert config.cluster.bootstrap_servers == ("kafka-7.internal:9092", "b:9092")
    assert config.cluster.jmx is not None and config.cluster.jmx.port == 9998
    recorded = config_text(config)
    assert "kafka-7" not in recorded
    settings = json.loads(recorded)["cluster"]
    assert settings["bootstrap_servers"] == ["${KAFKA_HOST}:9092", "b:9092"]
    assert settings["jmx.port"] == "${JMX}"
    monkeypatch.setenv("KAFKA_HOST", "kafka-8.internal")
    resumed = load_recorded(json.loads(recorded), cluster=str(file)).cluster
    assert resumed.bootstrap_servers == ("kafka-8.internal:9092", "b:9092")
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    monkeypatch.setenv("WHO", "hunter2")
    for line in ("description: 'x ${KAFKA_PASSWORD}'", "security: {username_from: 'env:${WHO}'}"):
        file.write_text(f"bootstrap_servers: ['b:9092']\nmetrics: {{client_only: true}}\n{line}")
        words = r"which may be a secret; .* ends in _from"
        with pytest.raises(ConfigError, match=words) as caught:
            load_cluster(str(file))
        assert "hunter2" not in str(caught.value)
