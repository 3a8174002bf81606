"""Logins by GSSAPI with a real key distribution centre and a real broker."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.cluster.connect import connect
from jobs.config.security import Security
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.common.errors import ConfigError
from tests.support.engine_bench import bench_on
from tests.support.kerberos import SERVICE, kdc, missing_programs

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(missing_programs()), reason=missing_programs() or "all here"),
]

LISTENER = "listener.name.sasl_plaintext"
BROKER = 1


@pytest.fixture(scope="module")
def realm() -> Iterator[Any]:
    with kdc() as running:
        yield running


@pytest.fixture(scope="module")
def broker(realm: Any) -> Iterator[Testbed]:
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{realm.keytab}" principal="{SERVICE}@{realm.realm}";'
    )
    overrides = {
        "security": "SASL_PLAINTEXT",
        f"{LISTENER}.sasl.enabled.mechanisms": "GSSAPI",
        f"{LISTENER}.gssapi.sasl.jaas.config": login,
        "sasl.kerberos.service.name": "kafka",
    }
    java = {BROKER: [f"-Djava.security.krb5.conf={realm.env['KRB5_CONFIG']}"]}
    options: dict[str, Any] = {"overrides": overrides, "node_jvm_options": java}
    with start("secured", brokers=1, name="kerberos", **options) as testbed:
        yield testbed


@pytest.fixture
def host(realm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host of the realm without a ticket; the path for its ticket."""
    monkeypatch.setenv("KRB5_CONFIG", realm.env["KRB5_CONFIG"])
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    return tmp_path / "tickets"


def options(service: str | None = None) -> dict[str, Any]:
    given = {"protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    if service is not None:
        given["kerberos_service_name"] = service
    return Security.model_validate(given).client_kwargs()


def kinit(realm: Any, *arguments: str) -> None:
    command = ["kinit", *arguments, "-k", "-t", realm.client_keytab, realm.user_princ]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


@pytest.mark.parametrize("client", ["wire", "kafka-python"])
@pytest.mark.parametrize("way", ["ticket", "keytab"])
def test_a_load_is_acknowledged_by_ticket_and_by_keytab(
    realm: Any, broker: Testbed, host: Path, monkeypatch: pytest.MonkeyPatch, way: str, client: str
) -> None:
    if way == "ticket":
        kinit(realm)
    else:
        monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.client_keytab)
    with bench_on(broker, options()) as bench:
        window = bench.run(measure_s=0.5, acks="all", client=client)
        assert window.counts.failed_total == 0
        assert window.counts.acked_total == sum(bench.end_offsets().values()) > 0
    assert realm.user_princ in subprocess.run(
        ["klist", str(host)], check=True, capture_output=True, text=True, timeout=30
    ).stdout  # fmt: skip


def refusal(broker: Testbed, service: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        connect(broker.bootstrap_servers, options(service))
    return str(caught.value)


@pytest.mark.usefixtures("host")
def test_a_missing_ticket_an_unknown_service_and_another_mechanism_are_reported(
    broker: Testbed, realm: Any
) -> None:
    message = refusal(broker)
    assert (
        "Kerberos gives no ticket for the broker's service kafka (No Kerberos credentials"
        in message
    )
    assert "kinit, KRB5CCNAME" in message and "KRB5_CLIENT_KTNAME" in message

    kinit(realm)
    message = refusal(broker, "kaffka")
    assert f"kaffka/127.0.0.1@{realm.realm} not found in Kerberos database" in message
    assert "correct cluster security.kerberos_service_name" in message

    plain = broker.client_security(mechanism="PLAIN").client_kwargs()
    with pytest.raises(ConfigError, match="does not support the SASL mechanism PLAIN"):
        connect(broker.bootstrap_servers, plain)


@pytest.mark.usefixtures("host")
def test_a_producer_without_a_ticket_names_the_broker_in_its_row(
    realm: Any, broker: Testbed
) -> None:
    kinit(realm)
    with bench_on(broker, options()) as bench:
        os.environ["KRB5CCNAME"] += "-of-another-host"
        with pytest.raises(AssertionError, match=r"broker 1 at .*Kerberos gives no ticket"):
            bench.run()
