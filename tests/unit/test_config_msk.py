"""AWS_MSK_IAM: tokens that AWS's own signer makes here, with credentials of AWS's own chain."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from kafka import errors as kafka_errors

from jobs.config import load, load_cluster
from jobs.config.security import Security
from jobs.config.tokens import MSK_TOKEN_S, MskTokens
from jobs.engine.clients.librdkafka import connection_options
from jobs.engine.network.refusals import explain_refusal
from jobs.setup.child_environment import secrets_withheld
from metrics.common.errors import ConfigError

KEY, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/token+"
REGION = "eu-west-1"
MSK = {"protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM", "aws_region": REGION}
PROVIDER = "sasl_oauth_token_provider"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the credentials of this machine, and send no request for any to the network."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="set-up is older than the extra msk")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)


def signed(token: str) -> tuple[str, dict[str, str]]:
    """Host and query of the URL in a token."""
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    parts = urlsplit(url)
    assert (parts.scheme, parts.path) == ("https", "/")
    return parts.netloc, {name: value for name, (value,) in parse_qs(parts.query).items()}


@pytest.mark.usefixtures("credentials")
def test_a_token_is_a_url_signed_for_the_region_with_its_expiry() -> None:
    before = int(time.time())
    options = Security.model_validate(MSK).client_kwargs()
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    host, query = signed(options[PROVIDER].token())
    assert host == f"kafka.{REGION}.amazonaws.com"
    at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    assert before <= at.timestamp() <= time.time()
    day = query["X-Amz-Date"][:8]
    assert query["X-Amz-Credential"] == f"{KEY}/{day}/{REGION}/kafka-cluster/aws4_request"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Expires"] == f"{MSK_TOKEN_S:g}"
    assert query["X-Amz-Security-Token"] == SESSION
    assert len(query["X-Amz-Signature"]) == 64


@pytest.mark.usefixtures("credentials")
def test_connections_share_a_token_for_most_of_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tokens = MskTokens(REGION, clock=lambda: now[0])
    made = iter(range(10))
    monkeypatch.setattr(tokens, "_fetch", lambda: (f"token-{next(made)}", MSK_TOKEN_S))
    seen = []
    for at_s in (0.0, 719.0, 721.0, 1440.0, 1442.0):
        now[0] = at_s
        seen.append(tokens.token())
    assert seen == ["token-0", "token-0", "token-1", "token-1", "token-2"]


@pytest.mark.usefixtures("credentials")
def test_an_executor_gets_a_token_and_no_credentials() -> None:
    tokens = MskTokens(REGION)
    plain = pickle.dumps(tokens)
    assert SECRET.encode() not in plain
    one = pickle.loads(plain)
    assert signed(one.token())[0] == f"kafka.{REGION}.amazonaws.com"
    assert one.good_until_s == pytest.approx(time.time() + MSK_TOKEN_S, abs=60.0)


@pytest.mark.usefixtures("credentials")
def test_librdkafka_gets_the_token_and_its_expiry() -> None:
    sent = pickle.loads(pickle.dumps(Security.model_validate(MSK).client_kwargs()))
    given = connection_options(sent)
    assert given["sasl.mechanism"] == "OAUTHBEARER"
    callback = given["oauth_cb"]
    assert callable(callback)
    assert callback("") == (sent[PROVIDER].token(), sent[PROVIDER].good_until_s)


@pytest.mark.usefixtures("credentials")
def test_credentials_stay_out_of_processes_that_are_started() -> None:
    provider = Security.model_validate(MSK).client_kwargs()[PROVIDER]
    show = [sys.executable, "-c", "import os; print(dict(os.environ))"]
    with secrets_withheld():
        shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        assert signed(pickle.loads(pickle.dumps(provider)).token()), "kept since the first call"
    assert SECRET not in shown and SESSION not in shown
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET


def test_a_profile_is_used_and_a_missing_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="set-up is older than the extra msk")
    (tmp_path / "credentials").write_text(
        f"[load]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "load")
    _, query = signed(MskTokens(REGION).token())
    assert query["X-Amz-Credential"].startswith("AKIDPROFILE/")
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(ConfigError, match=r"gives none: .*profile \(other\) could not be found"):
        MskTokens(REGION)


def test_missing_credentials_are_refused_before_any_connection() -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="set-up is older than the extra msk")
    with pytest.raises(
        ConfigError, match="gives none: there are none; expected credentials on the driver"
    ):
        Security.model_validate(MSK).client_kwargs()


def test_the_message_about_a_missing_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafka-redline\[msk\]'"):
        Security.model_validate(MSK).client_kwargs()


@pytest.mark.usefixtures("credentials")
def test_the_refusal_of_a_broker_names_the_policy_of_aws() -> None:
    options = Security.model_validate(MSK).client_kwargs()
    error = kafka_errors.SaslAuthenticationFailedError("Access denied")
    for each in (options, pickle.loads(pickle.dumps(options))):
        assert "allows kafka-cluster:Connect on the cluster" in explain_refusal(error, each)
        assert "token_from" not in explain_refusal(error, each)


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"aws_region": None}, "needs aws_region as well"),
        ({"aws_region": "Ireland"}, "a region, such as eu-west-1"),
        ({"protocol": "SASL_PLAINTEXT"}, "expected protocol SASL_SSL"),
        ({"username_from": "env:A"}, "username_from has no effect"),
        ({"token_from": "env:A"}, "token_from has no effect"),
        ({"sasl_mechanism": "OAUTHBEARER", "token_from": "env:A"}, "aws_region has no effect"),
    ],
)
def test_an_incomplete_configuration_is_refused(keys: dict[str, str | None], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Security.model_validate({**MSK, **keys})


CLUSTER = [f"cluster.security.{key}={value}" for key, value in MSK.items()]


def test_a_load_may_outlast_a_token() -> None:
    load("example", "1kB", "default", [*CLUSTER, "workload.trial.measure_s=5000"])


def test_the_region_of_clients_own_properties_is_that_of_the_brokers(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    text = (
        "bootstrap.servers=b-1.demo.abc123.c2.kafka.us-east-2.amazonaws.com:9098\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"
        "sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required{};\n"
        "sasl.client.callback.handler.class="
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler\n"
    )
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"client_properties: {file}\nmetrics: {{client_only: true}}\n")
    file.write_text(text.format(""))
    assert load_cluster(str(cluster)).security.aws_region == "us-east-2"
    file.write_text(text.format(' awsProfileName="load"'))
    with pytest.raises(ConfigError, match=r"with awsProfileName; expected .*AWS_PROFILE"):
        load_cluster(str(cluster))
    file.write_text(text.format("").replace("amazonaws.com", "example.com"))
    with pytest.raises(ConfigError, match="without a region in its names"):
        load_cluster(str(cluster))
