"""Logins by GSSAPI against a real key distribution centre, with a service of ours for a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from jobs.config.security import Security
from jobs.engine.network.refusals import explain_refusal
from tests.support.kerberos import kdc, lacking

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking() or "all here")

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def centre() -> Iterator[Any]:
    with kdc() as running:
        yield running


@pytest.fixture
def realm(centre: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The realm, on a host that has no ticket of it yet."""
    monkeypatch.setenv("KRB5_CONFIG", centre.env["KRB5_CONFIG"])
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    return centre


def options(service: str | None = None) -> dict[str, Any]:
    given = {"protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "kerberos_service_name": service}
    return Security.model_validate(given).client_kwargs()


def test_a_keytab_of_the_host_logs_in(realm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import gssapi

    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.client_keytab)
    monkeypatch.setenv("KRB5_KTNAME", realm.keytab)
    ours = SaslMechanismGSSAPI(host=HOST, **options())
    brokers = gssapi.SecurityContext(creds=gssapi.Credentials(usage="accept"), usage="accept")
    ours.receive(brokers.step(ours.auth_bytes()) or b"")
    assert brokers.complete and str(brokers.initiator_name) == realm.user_princ
    assert ours.auth_bytes() == b""
    offered = bytes([SaslMechanismGSSAPI.SASL_QOP_AUTH, 0, 1, 0])
    ours.receive(brokers.wrap(offered, False).message)
    chosen = brokers.unwrap(ours.auth_bytes()).message
    assert chosen == offered + f"kafka@{HOST}".encode()
    ours.receive(b"")
    assert ours.is_done() and ours.is_authenticated()


def refusal(service: str | None = None) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of gssapi, which may be missing
        SaslMechanismGSSAPI(host=HOST, **options(service))
    return explain_refusal(caught.value, options(service))


@pytest.mark.usefixtures("realm")
def test_no_ticket_is_told() -> None:
    said = refusal()
    assert "Kerberos gives no ticket for its service kafka (No Kerberos credentials" in said
    assert "KRB5CCNAME" in said and "KRB5_CLIENT_KTNAME" in said


def test_a_service_that_the_realm_does_not_know_is_told(
    realm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.client_keytab)
    said = refusal("kaffka")
    assert f"kaffka/{HOST}@{realm.realm} not found in Kerberos database" in said
    assert "correct cluster security.kerberos_service_name" in said
