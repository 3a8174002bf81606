"""TLS and logins on a real broker: a load with right ones, and explanations of wrong ones."""

from __future__ import annotations

import os
import pickle
import ssl
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificates
from pyspark.sql import SparkSession

from jobs.cluster.connect import connect
from jobs.config import load_workload
from jobs.config.security import Security
from jobs.config.tokens import RenewedToken
from jobs.engine.network.options import OneToken
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.listeners import (
    MECHANISMS,
    USER,
    SecurityFiles,
    key_and_certificates,
    unsecured_token,
)
from metrics.common.errors import ConfigError
from metrics.sources.jmx import JmxAccess, open_jmx
from metrics.trial.client import ClientWindow, merge
from tests.support.engine_bench import bench_on
from tests.support.jmx_nodes import JmxNode
from tests.support.served_http import Answer, served
from tests.support.small_load import small_topic

pytestmark = pytest.mark.together

PASSWORD = "no-such-password"
WAYS = [
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "OAUTHBEARER"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SSL", ""),
]


SESSION_S = 8.0
"""Lifetime of a login at the listener SASL_PLAINTEXT [s]."""


@pytest.fixture(scope="module")
def secured() -> Iterator[Testbed]:
    # The disk of a busy machine would delay answers beyond the end of a session.
    own = {"security": "SASL_SSL,SSL,SASL_PLAINTEXT", "log.flush.interval.messages": 1_000_000}
    overrides = own | {
        f"listener.name.sasl_plaintext.{each.lower()}.connections.max.reauth.ms": int(
            1_000 * SESSION_S
        )
        for each in MECHANISMS
    }
    with start("secured", brokers=1, overrides=overrides, name="secured") as testbed:
        yield testbed


def address(testbed: Testbed, protocol: str) -> str:
    node = testbed.brokers[1]
    return f"127.0.0.1:{node.secured_ports.get(protocol, node.port)}"


def require_arrival(secured: Testbed, protocol: str, options: dict[str, Any], **load: Any) -> None:
    """Offer a load through a listener, and check that all of it arrives."""
    with bench_on(secured, options, [address(secured, protocol)]) as bench:
        client = bench.run(measure_s=0.5, acks="all", **load)
        assert client.counts.failed_total == 0
        assert client.counts.acked_total == sum(bench.end_offsets().values()) > 0


def refusal(where: str, options: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        connect([where], options)
    assert where in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_a_load_through_each_listener_is_acknowledged_and_arrives(
    secured: Testbed, protocol: str, mechanism: str
) -> None:
    options = secured.client_security(protocol, mechanism).client_kwargs()
    require_arrival(secured, protocol, options, rate_records_per_s=2_000.0)


LIBRARIES = ["kafka-python", "librdkafka"]
LASTING: list[tuple[str, str, dict[str, Any]]] = [
    ("wire", "PLAIN", {"acks": "all", "enable_idempotence": True}),
    ("wire", "SCRAM-SHA-256", {"acks": "1"}),
    ("wire", "SCRAM-SHA-512", {"acks": "0"}),
    ("wire", "OAUTHBEARER", {"acks": "all", "transaction_duration_ms": 200.0}),
    ("kafka-python", "PLAIN", {"acks": "all"}),
    ("librdkafka", "OAUTHBEARER", {"acks": "all"}),
]


@pytest.mark.long
def test_a_load_outlasts_the_sessions_of_its_logins(secured: Testbed) -> None:
    where = {1: ("127.0.0.1", int(address(secured, "SASL_PLAINTEXT").partition(":")[2]))}

    def run(client: str, mechanism: str, own: Mapping[str, Any]) -> ClientWindow:
        options = secured.client_security("SASL_PLAINTEXT", mechanism).client_kwargs()
        with bench_on(secured, options, [address(secured, "SASL_PLAINTEXT")]) as bench:
            return bench.run(
                consumers={"groups": 1, "client": client if client != "kafka-python" else "wire"},
                trial_id=f"{client}-{mechanism}".lower(),
                brokers=where,
                producers=1,
                rate_records_per_s=100.0,
                linger_ms=50.0,
                consumer_tasks=1,
                measure_s=2.5 * SESSION_S,
                client=client,
                **own,
            )

    with ThreadPoolExecutor(len(LASTING)) as pool:
        for each, future in [(each, pool.submit(run, *each)) for each in LASTING]:
            window = future.result()
            counts, (group,) = window.counts, window.groups
            assert counts.failed_total == counts.retried_records == 0, (each, counts.retry_errors)
            assert counts.duplicates_at_most == 0, each
            assert group.counts.errors == {}, each
            assert group.counts.unread_records == 0, each


TOKEN_S = 30.0
"""Lifetime of a token, of which a login just before the next token has a fifth [s]."""


class BriefTokens(RenewedToken):
    """Tokens of the testbed's user that end soon."""

    def _fetch(self) -> tuple[str, float]:
        return unsecured_token(USER, time.time(), TOKEN_S), TOKEN_S


@pytest.mark.long
@pytest.mark.parametrize("client", ["wire", *LIBRARIES])
def test_tasks_get_new_tokens_while_a_load_lasts(
    secured: Testbed, spark: SparkSession, client: str
) -> None:
    options = secured.client_security("SASL_PLAINTEXT", "OAUTHBEARER").client_kwargs()
    options["sasl_oauth_token_provider"] = BriefTokens(time.monotonic)
    workload = load_workload("demo", [f"workload.{key}={value}" for key, value in {
        "topic.replication_factor": 1, "topic.partitions_per_broker": 2,
        "producer.rate_bytes_per_s": 20_000, "producer.client": client,
        "consumers.groups": 1, "consumers.client": client,
        "trial.warmup_s": 1, "trial.measure_s": 1.5 * TOKEN_S,
    }.items()])  # fmt: skip
    pattern = workload.pattern(1_000, brokers=1, producers=2)
    where = {1: ("127.0.0.1", int(address(secured, "SASL_PLAINTEXT").partition(":")[2]))}
    with small_topic(secured, pattern, secured.client_security().client_kwargs()) as topic:
        topic.brokers = where
        window, grown = merge(topic.offer(spark, pattern, options=options)), topic.grown()
    counts, (group,) = window.counts, window.groups
    assert counts.failed_total == counts.retried_records == 0, counts.retry_errors
    assert counts.acked_total == grown == group.records_total > 0
    assert (group.counts.errors, group.counts.unread_records) == ({}, 0)


@pytest.mark.parametrize("client", LIBRARIES)
def test_libraries_log_in_by_a_token(secured: Testbed, client: str) -> None:
    options = secured.client_security("SASL_SSL", "OAUTHBEARER").client_kwargs()
    require_arrival(secured, "SASL_SSL", pickle.loads(pickle.dumps(options)), client=client)


def as_store(pem: Path, folder: Path) -> str:
    """A PKCS12 store with the key and the certificates of a PEM file."""
    own, *others = load_pem_x509_certificates(pem.read_bytes())
    key = load_pem_private_key(pem.read_bytes(), None)
    sealed = BestAvailableEncryption(PASSWORD.encode())
    path = folder / "client.p12"
    path.write_bytes(serialize_key_and_certificates(b"app", key, own, others, sealed))  # type: ignore[arg-type]
    return str(path)


@pytest.mark.parametrize("client", ["wire", *LIBRARIES])
def test_each_client_logs_in_by_a_store_that_only_the_driver_reads(
    secured: Testbed, tmp_path: Path, client: str
) -> None:
    plain = secured.client_security("SSL")
    assert plain.certfile is not None and plain.cafile is not None
    (tmp_path / "password").write_text(PASSWORD)
    store = as_store(Path(plain.certfile), tmp_path)
    security = Security.model_validate(
        {
            "protocol": "SSL",
            "ca_pem_from": f"file:{plain.cafile}",
            "certfile": store,
            "certfile_password_from": f"file:{tmp_path}/password",
        }
    )
    options = security.client_kwargs()
    Path(store).unlink()
    require_arrival(secured, "SSL", pickle.loads(pickle.dumps(options)), client=client)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_message_names_wrong_credentials(secured: Testbed, mechanism: str) -> None:
    options = secured.client_security(mechanism=mechanism).client_kwargs()
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = OneToken(PASSWORD)
    else:
        options["sasl_plain_password"] = PASSWORD
    message = refusal(address(secured, "SASL_SSL"), options)
    assert f"the broker refuses the login by {mechanism}" in message
    assert "token_from" in message if mechanism == "OAUTHBEARER" else "password_from" in message
    assert PASSWORD not in message


def test_a_producer_that_is_refused_names_the_broker_in_its_row(secured: Testbed) -> None:
    options = secured.client_security().client_kwargs()
    with bench_on(secured, options) as bench:
        bench.options = {**options, "sasl_plain_password": PASSWORD}
        with pytest.raises(AssertionError, match=r"broker 1 at .*refuses the login by SCRAM"):
            bench.run()


def test_missing_certificates_are_named(secured: Testbed) -> None:
    options = secured.client_security().client_kwargs()
    del options["ssl_cafile"]
    assert "its certificate is not trusted" in refusal(address(secured, "SASL_SSL"), options)
    options = secured.client_security("SSL").client_kwargs()
    del options["ssl_certfile"], options["ssl_keyfile"]
    assert "it requires a client's certificate" in refusal(address(secured, "SSL"), options)


@pytest.mark.parametrize(
    ("listener", "protocol", "part"),
    [
        ("PLAINTEXT", "SASL_SSL", "listener does not use TLS, which SASL_SSL needs"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "listener accepts no login"),
        (
            "SASL_PLAINTEXT",
            "PLAINTEXT",
            "listener requires a login, and the protocol PLAINTEXT has none",
        ),
        ("SASL_SSL", "SSL", "listener requires a login, and the protocol SSL has none"),
        ("SASL_SSL", "PLAINTEXT", "does not serve Kafka clients over PLAINTEXT"),
    ],
)
def test_another_kind_of_listener_is_recognized(
    secured: Testbed, listener: str, protocol: str, part: str
) -> None:
    options = secured.client_security(protocol).client_kwargs()
    assert part in refusal(address(secured, listener), options)


@pytest.fixture(scope="module")
def impostors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    """An authority, and wrong certificates signed by it."""
    folder = tmp_path_factory.mktemp("impostors")
    now, ca = datetime.now(timezone.utc), trustme.CA()
    leaves = {
        "expired": ca.issue_cert(
            "127.0.0.1", not_before=now - timedelta(days=10), not_after=now - timedelta(days=5)
        ),
        "elsewhere": ca.issue_cert("elsewhere.example"),
    }
    authority = folder / "ca.pem"
    ca.cert_pem.write_to_path(authority)
    files = {name: folder / f"{name}.pem" for name in leaves}
    for name, leaf in leaves.items():
        files[name].write_bytes(key_and_certificates(leaf))
    return authority, files


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("expired", "its certificate has expired"),
        ("elsewhere", "its certificate is for another host (IP address mismatch"),
    ],
)
def test_the_message_explains_a_wrong_certificate(
    impostors: tuple[Path, dict[str, Path]], name: str, part: str
) -> None:
    authority, files = impostors
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[name])
    with served(lambda _: Answer(""), context=context) as port:
        options = {"security_protocol": "SSL", "ssl_cafile": str(authority)}
        assert part in refusal(f"127.0.0.1:{port}", options)


def holders_of(password: bytes, folder: Path) -> Iterator[Path]:
    """The files that contain the password; brokers may delete topics meanwhile."""
    for directory, _, names in os.walk(folder):  # which skips deleted files
        for path in (Path(directory, name) for name in names):
            with suppress(FileNotFoundError):
                if password in path.read_bytes():
                    yield path


def test_no_password_is_in_a_log_or_on_a_command_line(secured: Testbed) -> None:
    files = SecurityFiles(secured.folder)
    password = files.password.read_text()
    holders = list(holders_of(password.encode(), secured.folder))
    assert files.password in holders
    assert [path for path in holders if path.stat().st_mode & 0o077] == [], "readable by others"
    assert [path for path in holders if path.suffix == ".log"] == []
    commands = [psutil.Process(pid).cmdline() for pid in secured.pids.values()]
    assert len(commands) == 2
    assert password not in str(commands)


def test_jmx_with_password_and_tls_is_read_by_the_drivers_jvm(
    secured: Testbed, spark: SparkSession
) -> None:
    access = secured.jmx_access
    assert access is not None and access.password is not None
    assert access.password not in repr(access)
    endpoints = secured.jmx_endpoints
    closed = [
        (None, "uses TLS in its registry; expected jmx.tls: true"),
        (JmxAccess("redline", PASSWORD, is_tls=True), "has a certificate that is not trusted"),
        (JmxAccess("redline", PASSWORD, True, access.cafile), "refuses the password"),
        (JmxAccess(is_tls=True, cafile=access.cafile), "requires a password"),
    ]
    for wrong, part in closed:
        with pytest.raises(ConfigError, match=part):
            open_jmx(endpoints, spark._jvm, 10.0, wrong)
    with closing(open_jmx(endpoints, spark._jvm, 10.0, access)) as source:
        (sample,) = source.sample_all()
    assert sample.error is None
    assert sample.values["leader_partitions"] >= 0


def test_jmxquery_uses_a_password_and_refuses_tls(secured: Testbed, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which JMX with TLS requires"):
        open_jmx(secured.jmx_endpoints, None, access=secured.jmx_access)
    passwords, rights = tmp_path / "jmxremote.password", tmp_path / "jmxremote.access"
    passwords.touch(mode=0o600)
    passwords.write_text("reader secret\n")
    rights.write_text("reader readonly\n")
    locked = (
        f"password.file={passwords}",
        f"access.file={rights}",
        "password.toHashes=false",
        "ssl=false",
    )
    with JmxNode(1, access=locked) as node:
        with closing(
            open_jmx({1: node.address}, None, 10.0, JmxAccess("reader", "secret"))
        ) as source:
            (sample,) = source.sample_all()
            assert sample.values["leader_partitions"] == 10
        with pytest.raises(ConfigError, match="refuses the password"):
            open_jmx({1: node.address}, None, 10.0, JmxAccess("reader", PASSWORD))
