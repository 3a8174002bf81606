"""OAUTHBEARER: tokens are renewed on the driver, and executors get no more than one."""

from __future__ import annotations

import json
import pickle
import ssl
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from kafka.net.sasl.oauth import SaslMechanismOAuth
from syrupy.assertion import SnapshotAssertion

from jobs.config import load
from jobs.config.security import Security
from jobs.config.tokens import ClientCredentials, end_of
from jobs.engine.clients.librdkafka import connection_options
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.testbed.keys import unsecured_token
from jobs.trials.load import TOKEN_LOOK_S, Generator
from metrics.common.errors import ConfigError
from tests.support.java_stores import store
from tests.support.token_server import SECRET, TokenServer, token_server


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as made:
        yield made


def test_a_token_is_used_for_most_of_its_life_and_then_renewed(server: TokenServer) -> None:
    now = [0.0]
    tokens = ClientCredentials(server.url, "us", SECRET, "kafka", clock=lambda: now[0])
    seen = []
    for at_s in (0.0, 79.0, 81.0, 160.0, 162.0):
        now[0] = at_s
        seen.append(tokens.token())
    assert seen == ["token-1", "token-1", "token-2", "token-2", "token-3"]
    assert server.forms[0] == "grant_type=client_credentials&scope=kafka"


def test_an_executor_gets_one_token_and_no_credentials(server: TokenServer) -> None:
    tokens = ClientCredentials(server.url, "us", SECRET)
    sent = pickle.dumps(tokens)
    assert SECRET.encode() not in sent and server.url.encode() not in sent
    one = pickle.loads(sent)
    assert one.token() == "token-1"
    assert one.good_until_s == pytest.approx(time.time() + 100.0, abs=60.0)


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


def test_a_token_in_a_file_is_read_again_for_every_plan(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    options = Security(
        protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", token_from=f"file:{file}"
    ).client_kwargs()
    first = pickle.loads(pickle.dumps(options))
    file.write_text("second\n")
    second = pickle.loads(pickle.dumps(options))
    provider = "sasl_oauth_token_provider"
    assert [each[provider].token() for each in (first, second)] == ["first", "second"]


def test_options_show_no_secret_and_need_no_pydantic_on_an_executor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_TOKEN", SECRET)
    options = Security(
        protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", token_from="env:TEST_TOKEN"
    ).client_kwargs()
    assert SECRET not in repr(options) and SECRET not in str({"plan": options})
    (tmp_path / "options").write_bytes(pickle.dumps(options))
    code = (
        "import pickle, sys; options = pickle.load(open(sys.argv[1], 'rb')); "
        "print(options['sasl_oauth_token_provider'].token(), 'pydantic' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "options")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [SECRET, "False"]


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({}, "exactly one of token_from and oauth_token_url"),
        ({"token_from": "env:A", "oauth_token_url": "https://a/t"}, "exactly one of token_from"),
        ({"oauth_token_url": "https://a/t"}, "needs oauth_client_id_from as well"),
        ({"oauth_token_url": "http://idp.example/t"}, "an https address"),
        ({"token_from": "env:A", "username_from": "env:B"}, "username_from has no effect"),
    ],
)
def test_an_incomplete_oauth_configuration_is_refused(keys: dict[str, str], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Security.model_validate({"protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", **keys})


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


@pytest.mark.parametrize(
    ("claims", "end_s"),
    [({"exp": 5e9}, 5e9), ({"exp": "5e9"}, 5e9), ({"exp": []}, None), ({}, None), ([], None)],
)
def test_the_end_of_a_token_is_read_from_its_claims(claims: object, end_s: float | None) -> None:
    claim = b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assert end_of(f"e30.{claim}.") == end_s


@pytest.mark.parametrize("token", ["", "opaque", "a.b", "a.é.c", "..", "a." + "W" * 9_999])
def test_a_token_without_claims_has_no_known_end(token: str) -> None:
    assert end_of(token) is None


def test_a_token_in_a_variable_is_refused_where_the_load_is_longer(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr("jobs.config.loading.time.time", lambda: 1_000.0)
    token = unsecured_token("me", 0.0, 1_300.0)
    monkeypatch.setenv("TEST_TOKEN", token)
    ways = {"oauth_token_url": "https://idp.example/t", "oauth_client_id_from": "env:A",
            "oauth_client_secret_from": "env:B"}  # fmt: skip
    keys = ["protocol=SASL_SSL", "sasl_mechanism=OAUTHBEARER"]
    by_variable, by_file = (
        [f"cluster.security.{key}" for key in (*keys, f"token_from={place}")]
        for place in ("env:TEST_TOKEN", "file:/token")
    )
    by_server = [f"cluster.security.{key}" for key in keys]
    by_server += [f"cluster.security.{key}={value}" for key, value in ways.items()]
    refused = []
    for options, load_s, steady_s in (
        (by_variable, 290, 0), (by_variable, 400, 0), (by_variable, 100, 310),
        (by_file, 4_000, 4_000), (by_server, 4_000, 4_000),
    ):  # fmt: skip
        times = f"workload.trial.warmup_s=0 workload.trial.measure_s={load_s}".split()
        try:
            given = load("example", "1kB", "default", [*options, *times,
                         f"goal.search.steady_s={steady_s}"])  # fmt: skip
            FixedLoadRun(given, FixedLoad(1_000, 1, duration_s=3_000.0))
        except ConfigError as error:
            refused.append(str(error))
    assert token not in str(refused)
    assert refused == snapshot


@pytest.mark.parametrize(
    ("given", "fetched"), [("100", 2), (100.0, 2), ("soon", 3), (True, 3), ("inf", 3), (-5, 3)]
)
def test_a_lifetime_may_be_a_text(server: TokenServer, given: object, fetched: int) -> None:
    now = [0.0]
    tokens = ClientCredentials(server.url, "us", SECRET, clock=lambda: now[0])
    server.answer = {"access_token": "token", "expires_in": given}
    for at_s in (0.0, 47.0, 49.0, 79.0, 81.0, 98.0):
        now[0] = at_s
        assert tokens.token() == "token"
    assert server.given == fetched


def test_a_secret_is_sent_without_url_encoding_where_the_server_expects_that(
    server: TokenServer,
) -> None:
    server.expected = f"us:{SECRET}"
    assert ClientCredentials(server.url, "us", SECRET, is_encoded=False).token() == "token-1"
    with pytest.raises(ConfigError, match="401"):
        ClientCredentials(server.url, "us", SECRET).token()


def test_extensions_go_to_executors_and_into_the_login_of_each_client(
    server: TokenServer,
) -> None:
    extensions = {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}
    tokens = ClientCredentials(server.url, "us", SECRET, extensions=extensions)
    sent = pickle.loads(pickle.dumps(tokens))
    login = SaslMechanismOAuth(sasl_oauth_token_provider=sent).auth_bytes()
    assert login == (
        b"n,,\x01auth=Bearer token-1\x01logicalCluster=lkc-1\x01identityPoolId=pool-1\x01\x01"
    )
    callback = connection_options({"sasl_oauth_token_provider": sent})["oauth_cb"]
    assert callable(callback)
    token, _, _, given = callback("")
    assert (token, given) == ("token-1", extensions)


def test_a_token_server_may_have_its_own_certificate_authority(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("TEST_ID", "us")
    monkeypatch.setenv("TEST_SECRET", SECRET)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    keys = {
        "protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "oauth_token_url": f"https://localhost:{server.server_port}/token",
        "oauth_client_id_from": "env:TEST_ID",
        "oauth_client_secret_from": "env:TEST_SECRET",
    }
    own = Security.model_validate({**keys, "oauth_cafile": str(tmp_path / "ca.pem")})
    assert own.client_kwargs()["sasl_oauth_token_provider"].token() == "token-1"
    with pytest.raises(ConfigError, match=r"certificate verify failed.*oauth_cafile"):
        Security.model_validate(keys).client_kwargs()
    other = Security.model_validate({**keys, "oauth_cafile": store(tmp_path, "trust.jks")})
    with pytest.raises(ConfigError, match="certificate verify failed"):
        other.client_kwargs()
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"oauth_cafile has no usable certificate"):
        own.client_kwargs()
