"""Logins by GSSAPI against a real key distribution center, with a service in place of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from jobs.config.security import Security
from jobs.engine.network.refusals import explain_refusal
from tests.support.kerberos import kdc, missing_programs

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=missing_programs() or "all here")

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def center() -> Iterator[Any]:
    with kdc() as running:
        yield running


@pytest.fixture
def realm(center: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The realm, on a host that has no ticket of it."""
    monkeypatch.setenv("KRB5_CONFIG", center.env["KRB5_CONFIG"])
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    return center


def options(service: str | None = None) -> dict[str, Any]:
    given = {"protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "kerberos_service_name": service}
    return Security.model_validate(given).client_kwargs()


def test_a_keytab_of_the_host_logs_in(realm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import gssapi

    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.client_keytab)
    monkeypatch.setenv("KRB5_KTNAME", realm.keytab)
    client = SaslMechanismGSSAPI(host=HOST, **options())
    brokers = gssapi.SecurityContext(creds=gssapi.Credentials(usage="accept"), usage="accept")
    client.receive(brokers.step(client.auth_bytes()) or b"")
    assert brokers.complete and str(brokers.initiator_name) == realm.user_princ
    assert client.auth_bytes() == b""
    offered = bytes([SaslMechanismGSSAPI.SASL_QOP_AUTH, 0, 1, 0])
    client.receive(brokers.wrap(offered, False).message)
    chosen = brokers.unwrap(client.auth_bytes()).message
    assert chosen == offered + f"kafka@{HOST}".encode()
    client.receive(b"")
    assert client.is_done() and client.is_authenticated()


def test_a_missing_ticket_and_an_unknown_service_are_explained(
    realm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(service: str | None = None) -> str:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of gssapi, which may be missing
            SaslMechanismGSSAPI(host=HOST, **options(service))
        return explain_refusal(caught.value, options(service))

    message = refusal()
    assert (
        "Kerberos gives no ticket for the broker's service kafka (No Kerberos credentials"
        in message
    )
    assert "KRB5CCNAME" in message and "KRB5_CLIENT_KTNAME" in message
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.client_keytab)
    message = refusal("kaffka")
    assert f"kaffka/{HOST}@{realm.realm} not found in Kerberos database" in message
    assert "correct cluster security.kerberos_service_name" in message
