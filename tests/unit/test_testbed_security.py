"""The security of a testbed: listeners, keys, and places without its passwords."""

from __future__ import annotations

import re
import ssl
from base64 import urlsafe_b64decode
from pathlib import Path

import javaproperties
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from jobs.testbed.listeners import USER, SecurityFiles, make_security


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SecurityFiles:
    """The files that a secured testbed makes at its start."""
    return make_security(tmp_path_factory.mktemp("testbed"))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Make a TLS handshake in memory, and return the server's end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = set(ends)
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                waiting.discard(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    return ends[1]


def contexts(made: SecurityFiles) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The context of a broker that requires a client's certificate, and that of a client."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.ca))
    server.load_cert_chain(made.broker)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(made.ca))
    client.load_cert_chain(made.client)
    return server, client


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_broker_and_client_accept_each_others_certificates(made: SecurityFiles, host: str) -> None:
    peer = handshake(*contexts(made), host).getpeercert()
    assert peer is not None
    assert (("commonName", USER),) in peer["subject"]


def test_a_broker_of_another_testbed_or_host_is_not_trusted(
    made: SecurityFiles, tmp_path: Path
) -> None:
    other = make_security(tmp_path)
    _, client = contexts(made)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(contexts(other)[0], client, "localhost")
    for name in ("password", "client", "jmx_store"):
        assert getattr(made, name).read_bytes() != getattr(other, name).read_bytes(), name
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(*contexts(made), "broker-1.example.com")


def test_keys_have_the_form_of_pem_that_kafka_reads(made: SecurityFiles) -> None:
    for path in (made.broker, made.client):
        labels = re.findall(r"-----BEGIN (.+)-----", path.read_text())
        assert labels == ["PRIVATE KEY", *["CERTIFICATE"] * (len(labels) - 1)]
        assert len(labels) > 1
    assert re.findall(r"-----BEGIN (.+)-----", made.ca.read_text()) == ["CERTIFICATE"]


def test_the_store_of_jmx_holds_the_brokers_key_and_certificate(made: SecurityFiles) -> None:
    options = javaproperties.loads(made.jmx_tls.read_text())
    assert options["javax.net.ssl.keyStore"] == str(made.jmx_store)
    password = options["javax.net.ssl.keyStorePassword"].encode()
    key, own, _ = pkcs12.load_key_and_certificates(made.jmx_store.read_bytes(), password)
    assert key is not None and own is not None
    plain = load_pem_private_key(made.broker.read_bytes(), None)
    assert key.private_numbers() == plain.private_numbers()  # type: ignore[union-attr]
    assert own == load_pem_x509_certificate(made.broker.read_bytes())
    with pytest.raises(ValueError, match="password"):
        pkcs12.load_key_and_certificates(made.jmx_store.read_bytes(), b"another")


def test_only_their_owner_can_read_secrets_and_the_only_user_of_jmx_may_read(
    made: SecurityFiles,
) -> None:
    assert made.folder.stat().st_mode & 0o077 == 0
    readable = {path for path in made.folder.iterdir() if path.stat().st_mode & 0o077}
    assert readable <= {made.ca}
    assert {path for path in vars(made).values() if path != made.folder} == {*made.folder.iterdir()}
    password = made.password.read_text()
    assert made.username.read_text() == USER
    assert made.jmx_password.read_text() == f"{USER} {password}\n"
    assert made.jmx_access.read_text() == f"{USER} readonly\n"
    assert USER.encode() in urlsafe_b64decode(made.token.read_text().split(".")[1] + "==")
