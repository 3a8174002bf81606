"""Security of clusters: secrets by reference, tokens of three kinds, and Kerberos."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import pickle
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from kafka import errors as kafka_errors
from kafka.net.sasl.oauth import SaslMechanismOAuth
from syrupy.assertion import SnapshotAssertion

from jobs.checks.survey import Needs
from jobs.config import load, load_cluster
from jobs.config.security import Security, read_secret
from jobs.config.tokens import MSK_TOKEN_S, ClientCredentials, MskTokens, end_of
from jobs.engine.clients.librdkafka import connection_options
from jobs.engine.network.refusals import explain_refusal
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.setup.places import child_environment, secrets_withheld
from jobs.testbed.listeners import unsecured_token
from jobs.trials.load import TOKEN_LOOK_S, Generator
from metrics.common.errors import ConfigError
from tests.support.java_stores import store
from tests.support.token_server import SECRET, TokenServer, token_server

PROVIDER = "sasl_oauth_token_provider"
OAUTH = {"protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


def options_of(keys: dict[str, Any]) -> dict[str, Any]:
    """The options of kafka-python for these keys of security."""
    return Security.model_validate(keys).client_kwargs()


def of_executor(value: Any) -> Any:
    """A value as an executor receives it."""
    return pickle.loads(pickle.dumps(value))


def environment_of_child() -> str:
    show = [sys.executable, "-c", "import os; print(dict(os.environ))"]
    return subprocess.run(show, capture_output=True, text=True, check=True).stdout


def test_references_become_the_options_of_kafka_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    password, authority = tmp_path / "password", tmp_path / "ca.pem"
    password.write_text(f"{SECRET}\n", encoding="utf-8")
    authority.write_text("certificate", encoding="utf-8")
    monkeypatch.setenv("TEST_KAFKA_USER", "alice")
    given = {
        "protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "cafile": authority,
        "username_from": "env:TEST_KAFKA_USER", "password_from": f"file:{password}",
        "check_hostname": "false",
    }  # fmt: skip
    overrides = [f"cluster.security.{key}={value}" for key, value in given.items()]
    cluster = load_cluster("example", overrides)
    assert cluster.security.client_kwargs() == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
        "ssl_cafile": str(authority),
        "ssl_check_hostname": False,
    }
    assert SECRET not in repr(cluster)
    assert load_cluster("example").security.client_kwargs() == {"security_protocol": "PLAINTEXT"}
    mutual = {"certfile": str(authority), "keyfile": str(authority)}
    assert options_of({"protocol": "SSL", **mutual, "key_password_from": f"file:{password}"}) == {
        "security_protocol": "SSL",
        "ssl_check_hostname": True,
        "ssl_certfile": str(authority),
        "ssl_keyfile": str(authority),
        "ssl_password": SECRET,
    }


def test_an_authority_that_is_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"security\.cafile is /nowhere/ca\.pem"):
        options_of({"protocol": "SSL", "cafile": "/nowhere/ca.pem"})


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
    with secrets_withheld():
        shown = environment_of_child()
    assert SECRET not in shown and "no secret" in shown
    assert "no secret" in child_environment().values()
    assert not any(SECRET in value for value in child_environment().values())
    assert read_secret("env:TEST_PASSWORD", "security.password_from") == SECRET


# --- OAUTHBEARER: executors get no more than one token ----------------------------


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as made:
        yield made


def test_a_token_is_used_for_most_of_its_life_and_then_renewed(server: TokenServer) -> None:
    now = [0.0]
    tokens = ClientCredentials(server.url, "us", SECRET, "kafka", clock=lambda: now[0])
    seen = []
    for now[0] in (0.0, 79.0, 81.0, 160.0, 162.0):
        seen.append(tokens.token())
    assert seen == ["token-1", "token-1", "token-2", "token-2", "token-3"]
    assert server.forms[0] == "grant_type=client_credentials&scope=kafka"
    sent = pickle.dumps(tokens)
    assert SECRET.encode() not in sent and server.url.encode() not in sent
    one = pickle.loads(sent)
    assert one.token() == "token-3", "an executor gets one token and no credentials"
    assert one.good_until_s is not None


def test_a_lifetime_may_be_a_text(server: TokenServer) -> None:
    for given, fetched in (("100", 2), (100.0, 2), ("soon", 3), (True, 3), ("inf", 3), (-5, 3)):
        now, before = [0.0], server.given
        tokens = ClientCredentials(server.url, "us", SECRET, clock=lambda now=now: now[0])  # type: ignore[misc]
        server.answer = {"access_token": "token", "expires_in": given}
        for now[0] in (0.0, 47.0, 49.0, 79.0, 81.0, 98.0):
            assert tokens.token() == "token"
        assert server.given - before == fetched, given


def test_the_message_for_a_refused_token_contains_no_secret(server: TokenServer) -> None:
    cases: list[tuple[str, int, object, str]] = [
        ("wrong", 200, None, "401 Unauthorized"),
        (SECRET, 500, None, "500 Internal"),
        (SECRET, 200, {"error": "x"}, "no access_token"),
        (SECRET, 200, [1], "not a JSON object"),
    ]
    for secret, server.status, server.answer, part in cases:
        with pytest.raises(ConfigError, match=part) as caught:
            ClientCredentials(server.url, "us", secret).token()
        assert server.url in str(caught.value)
        assert SECRET not in str(caught.value)
    server.answer, server.expected = None, f"us:{SECRET}"
    with pytest.raises(ConfigError, match="401"):
        ClientCredentials(server.url, "us", SECRET).token()
    plain = ClientCredentials(server.url, "us", SECRET, is_encoded=False)
    assert plain.token(), "some servers expect the secret without URL encoding"


def test_a_token_in_a_file_is_read_again_for_every_plan(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    options = options_of({**OAUTH, "token_from": f"file:{file}"})
    first = of_executor(options)
    file.write_text("second\n")
    assert [each[PROVIDER].token() for each in (first, of_executor(options))] == ["first", "second"]


def test_options_show_no_secret_and_need_no_pydantic_on_an_executor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_TOKEN", SECRET)
    options = options_of({**OAUTH, "token_from": "env:TEST_TOKEN"})
    assert SECRET not in repr(options) and SECRET not in str({"plan": options})
    (tmp_path / "options").write_bytes(pickle.dumps(options))
    code = (
        "import pickle, sys; options = pickle.load(open(sys.argv[1], 'rb')); "
        f"print(options['{PROVIDER}'].token(), 'pydantic' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "options")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [SECRET, "False"]


def test_a_token_is_used_to_its_end_while_the_server_gives_no_other(server: TokenServer) -> None:
    now = [0.0]
    tokens = ClientCredentials(server.url, "us", SECRET, clock=lambda: now[0])
    assert tokens.token() == "token-1"
    server.status = 500
    for now[0], asked in ((81.0, 2), (85.0, 2), (87.0, 3), (99.0, 4)):
        assert (tokens.token(), server.given) == ("token-1", asked)
    now[0] = 100.0
    with pytest.raises(ConfigError, match="500"):
        tokens.token()
    server.status = 200
    assert tokens.token() == "token-6"


def test_a_load_continues_while_the_server_gives_no_token(server: TokenServer) -> None:
    now, said, sent = [0.0], list[str](), list[str]()
    tokens = ClientCredentials(server.url, "us", SECRET, clock=lambda: now[0])
    options = {"sasl_oauth_token_provider": tokens}
    generator: Any = Generator(None, 1, options, None, report=said.append)  # type: ignore[arg-type]
    channel = SimpleNamespace(renew_token=lambda token, _until_s: sent.append(token))
    for now[0], server.status in ((0.0, 200), (150.0, 500), (151.0, 500), (152.0, 200)):
        assert generator._send_token(channel) == TOKEN_LOOK_S
    assert sent == ["token-1", "token-4"]
    (sentence,) = said
    assert sentence.startswith("the tasks of the load keep their last token: the token server")


def test_the_end_of_a_token_is_read_from_its_claims() -> None:
    for claims, end_s in (
        ({"exp": 5e9}, 5e9),
        ({"exp": "5e9"}, 5e9),
        ({"exp": []}, None),
        ({}, None),
        ([], None),
    ):
        claim = base64.b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        assert end_of(f"e30.{claim}.") == end_s, claims
    for token in ("", "opaque", "a.b", "a.é.c", "..", "a." + "W" * 9_999):
        assert end_of(token) is None, token


def test_a_token_in_a_variable_is_refused_where_the_load_is_longer(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr("jobs.config.loading.time.time", lambda: 1_000.0)
    token = unsecured_token("me", 0.0, 1_300.0)
    monkeypatch.setenv("TEST_TOKEN", token)
    by_server = {"oauth_token_url": "https://idp.example/t", "oauth_client_id_from": "env:A",
                 "oauth_client_secret_from": "env:B"}  # fmt: skip
    variable = {**OAUTH, "token_from": "env:TEST_TOKEN"}
    refused = []
    for keys, load_s, steady_s in (
        (variable, 290, 0), (variable, 400, 0), (variable, 100, 310),
        ({**OAUTH, "token_from": "file:/token"}, 4_000, 4_000),
        ({**OAUTH, **by_server}, 4_000, 4_000), (MSK, 4_000, 4_000),
    ):  # fmt: skip
        overrides = [f"cluster.security.{key}={value}" for key, value in keys.items()]
        overrides += ["workload.trial.warmup_s=0", f"workload.trial.measure_s={load_s}",
                      f"goal.search.steady_s={steady_s}"]  # fmt: skip
        try:
            given = load("example", "1kB", "default", overrides)
            FixedLoadRun(given, FixedLoad(1_000, 1, duration_s=3_000.0))
        except ConfigError as error:
            refused.append(str(error))
    assert token not in str(refused)
    assert refused == snapshot


def test_extensions_go_to_executors_and_into_the_login_of_each_client(server: TokenServer) -> None:
    extensions = {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}
    sent = of_executor(ClientCredentials(server.url, "us", SECRET, extensions=extensions))
    assert SaslMechanismOAuth(sasl_oauth_token_provider=sent).auth_bytes() == (
        b"n,,\x01auth=Bearer token-1\x01logicalCluster=lkc-1\x01identityPoolId=pool-1\x01\x01"
    )
    callback = connection_options({PROVIDER: sent})["oauth_cb"]
    assert callable(callback)
    token, _, _, given = callback("")
    assert (token, given) == ("token-1", extensions)


def test_a_token_server_may_have_its_own_certificate_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    monkeypatch.setenv("TEST_ID", "us")
    monkeypatch.setenv("TEST_SECRET", SECRET)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    with token_server(context=context) as server:
        keys = {
            **OAUTH,
            "oauth_token_url": server.url,
            "oauth_client_id_from": "env:TEST_ID",
            "oauth_client_secret_from": "env:TEST_SECRET",
        }
        own = {**keys, "oauth_cafile": str(ca)}
        assert options_of(own)[PROVIDER].token() == "token-1"
        with pytest.raises(ConfigError, match=r"certificate verify failed.*oauth_cafile"):
            options_of(keys)
        with pytest.raises(ConfigError, match="certificate verify failed"):
            options_of({**keys, "oauth_cafile": store(tmp_path, "trust.jks")})
        ca.write_text("nothing")
        with pytest.raises(ConfigError, match=r"oauth_cafile has no usable certificate"):
            options_of(own)


# --- AWS_MSK_IAM: tokens that AWS's own signer makes here -------------------------

AWS_KEY = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_SESSION_TOKEN": "session/token+",
}
REGION = "eu-west-1"
MSK = {"protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM", "aws_region": REGION}


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the credentials of this machine, and send no request for any to the network."""
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="set-up is older than the extra msk")
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def credentials(no_credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AWS_KEY.items():
        monkeypatch.setenv(name, value)


def signed(token: str) -> tuple[str, dict[str, str]]:
    """Host and query of the URL in a token."""
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    parts = urlsplit(url)
    assert (parts.scheme, parts.path) == ("https", "/")
    return parts.netloc, {name: value for name, (value,) in parse_qs(parts.query).items()}


@pytest.mark.usefixtures("credentials")
def test_a_token_is_a_url_signed_for_the_region_with_its_expiry() -> None:
    before = int(time.time())
    options = options_of(MSK)
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    host, query = signed(options[PROVIDER].token())
    assert host == f"kafka.{REGION}.amazonaws.com"
    at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    assert before <= at.timestamp() <= time.time()
    scope = f"{query['X-Amz-Date'][:8]}/{REGION}/kafka-cluster/aws4_request"
    assert query["X-Amz-Credential"] == f"{AWS_KEY['AWS_ACCESS_KEY_ID']}/{scope}"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Expires"] == f"{MSK_TOKEN_S:g}"
    assert query["X-Amz-Security-Token"] == AWS_KEY["AWS_SESSION_TOKEN"]
    assert len(query["X-Amz-Signature"]) == 64


@pytest.mark.usefixtures("credentials")
def test_an_executor_and_librdkafka_get_a_token_of_aws_and_no_credentials() -> None:
    options = options_of(MSK)
    plain = pickle.dumps(options)
    assert AWS_KEY["AWS_SECRET_ACCESS_KEY"].encode() not in plain
    sent = pickle.loads(plain)
    one = sent[PROVIDER]
    assert signed(one.token())[0] == f"kafka.{REGION}.amazonaws.com"
    assert one.good_until_s == pytest.approx(time.time() + MSK_TOKEN_S, abs=60.0)
    given = connection_options(sent)
    assert given["sasl.mechanism"] == "OAUTHBEARER" and callable(given["oauth_cb"])
    assert given["oauth_cb"]("") == (one.token(), one.good_until_s)
    error = kafka_errors.SaslAuthenticationFailedError("Access denied")
    for each in (options, sent):
        assert "allows kafka-cluster:Connect on the cluster" in explain_refusal(error, each)
        assert "token_from" not in explain_refusal(error, each)


@pytest.mark.usefixtures("credentials")
def test_credentials_stay_out_of_processes_that_are_started() -> None:
    provider = options_of(MSK)[PROVIDER]
    with secrets_withheld():
        shown = environment_of_child()
        assert signed(of_executor(provider).token()), "kept since the first call"
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        assert AWS_KEY[name] not in shown
        assert os.environ[name] == AWS_KEY[name]


@pytest.mark.usefixtures("no_credentials")
def test_a_profile_is_used_and_missing_credentials_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    none = "chain fails: no credentials found; expected credentials on the driver"
    with pytest.raises(ConfigError, match=none):
        options_of(MSK)
    (tmp_path / "credentials").write_text(
        "[load]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = secret\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "load")
    _, query = signed(MskTokens(REGION).token())
    assert query["X-Amz-Credential"].startswith("AKIDPROFILE/")
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(ConfigError, match=r"chain fails: .*profile \(other\) could not be found"):
        MskTokens(REGION)


# --- GSSAPI: Kerberos supplies the tickets ----------------------------------------

GSSAPI = {"protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
KERBEROS = [f"cluster.security.{key}={value}" for key, value in GSSAPI.items()]


def test_the_message_about_a_missing_extra_names_the_extra_and_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafka-redline\[msk\]'"):
        options_of(MSK)
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError) as caught:
        options_of(GSSAPI)
    options = {"sasl_mechanism": "GSSAPI", "security_protocol": "SASL_SSL"}
    options["sasl_kerberos_service_name"] = "kafka"
    refused = explain_refusal(RuntimeError("GSSAPI lib not found!"), options)
    for message in (str(caught.value), refused):
        assert f"gssapi is not installed on {socket.gethostname()}" in message
        assert "pip install 'kafka-redline[gssapi]'" in message


def test_kerberos_needs_a_service_a_package_and_another_client_than_librdkafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = load("example", "1kB", "default", KERBEROS)
    assert Needs.of(config.workload, config.cluster).packages["gssapi"] == "gssapi"
    plain = load("example", "1kB", "default")
    assert "gssapi" not in Needs.of(plain.workload, plain.cluster).packages
    for role in ("producer", "consumers"):
        client = f"workload.{role}.client"
        overrides = [*KERBEROS, "workload.consumers.groups=1", f"{client}=librdkafka"]
        with pytest.raises(ConfigError, match=f"--set {client}=wire"):
            load("example", "1kB", "default", overrides)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    for given, service in ((None, "kafka"), ("broker", "broker")):
        options = options_of({**GSSAPI, "kerberos_service_name": given})
        assert options["sasl_mechanism"] == "GSSAPI"
        assert options["sasl_kerberos_service_name"] == service
