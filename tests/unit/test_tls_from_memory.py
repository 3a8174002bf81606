"""Certificates and keys that executors get as PEM texts, which never reach a disk."""

from __future__ import annotations

import pickle
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from jobs.config.key_stores import pem_blocks
from jobs.config.security import Security
from jobs.engine.clients.librdkafka import connection_options
from jobs.engine.network.links import library_options, tls_context
from metrics.common.errors import ConfigError
from tests.support.java_stores import store

PASSWORD = "changeit"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def shaken(authority: trustme.CA, context: ssl.SSLContext) -> str:
    """The name in the client's certificate, as a server that requires one reads it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    server.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
    server.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    server.verify_mode = ssl.CERT_REQUIRED
    near, far = socket.socketpair()
    found: list[Any] = []

    def serve() -> None:
        with server.wrap_socket(far, server_side=True) as link:
            found.append(link.getpeercert())
            link.sendall(b"x")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context.wrap_socket(near, server_hostname="localhost") as link:
            link.recv(1)
    finally:
        thread.join()
    return str(found[0]["subjectAltName"][0][1])


def sent(security: Security) -> dict[str, Any]:
    """The options after their way to an executor."""
    options: dict[str, Any] = pickle.loads(pickle.dumps(security.client_kwargs()))
    return options


def files_of(authority: trustme.CA, folder: Path, password: str | None = None) -> dict[str, str]:
    """References to PEM files of an authority and a client, each in one line as Kafka takes it."""
    leaf = authority.issue_cert("app.example.com")
    key = leaf.private_key_pem.bytes()
    if password is not None:
        plain = load_pem_private_key(key, None)
        sealed = BestAvailableEncryption(password.encode())
        key = plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed)
    chain = b"".join(each.bytes() for each in leaf.cert_chain_pems)
    texts = {"ca": authority.cert_pem.bytes(), "certificate": chain, "key": key}
    for name, text in texts.items():
        (folder / f"{name}.pem").write_bytes(text.replace(b"\n", b" "))
    return {f"{name}_pem_from": f"file:{folder}/{name}.pem" for name in texts}


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_texts_log_in_and_no_key_reaches_a_disk(
    authority: trustme.CA, tmp_path: Path, password: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    references = files_of(authority, tmp_path, password)
    if password is not None:
        monkeypatch.setenv("TEST_KEY_PASSWORD", password)
        references["key_password_from"] = "env:TEST_KEY_PASSWORD"
    options = sent(Security.model_validate({"protocol": "SSL", **references}))
    assert "BEGIN" not in repr(options)
    read: list[str] = []
    real = ssl.SSLContext.load_cert_chain

    def noted(self: ssl.SSLContext, certfile: str, *rest: Any, **more: Any) -> None:
        read.append(certfile)
        real(self, certfile, *rest, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noted)
    context = tls_context(options)
    assert context is not None
    assert [Path(each).parent for each in read] == [Path("/proc/self/fd")]
    assert shaken(authority, context) == "app.example.com"
    names = {"client_id", "security_protocol", "ssl_check_hostname", "ssl_context"}
    assert library_options(options, "x").keys() == names
    assert {"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"} <= connection_options(
        options
    ).keys()


def test_a_store_is_read_on_the_driver_and_arrives_as_text(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "key").write_text("keypass")
    reference = f"file:{tmp_path}/password"
    security = Security(
        protocol="SSL",
        cafile=store(tmp_path, "trust.jks"),
        certfile=store(tmp_path, "client.jks"),
        certfile_password_from=reference,
        key_password_from=f"file:{tmp_path}/key",
    )
    options = sent(security)
    assert security.shared_files == ()
    for file in tmp_path.iterdir():
        file.unlink()
    context = tls_context(options)
    assert context is not None
    assert context.cert_store_stats()["x509"] == 1
    assert "ssl_password" not in options


def test_a_trusted_certificate_need_not_be_an_authority_as_with_java(
    authority: trustme.CA, tmp_path: Path
) -> None:
    below = authority.create_child_ca()
    (tmp_path / "ca.pem").write_bytes(below.cert_pem.bytes())
    security = {"protocol": "SSL", "ca_pem_from": f"file:{tmp_path}/ca.pem"}
    context = tls_context(Security.model_validate(security).client_kwargs())
    assert context is not None
    below.issue_cert("app.example.com").configure_cert(context)
    assert shaken(below, context) == "app.example.com"


def test_a_store_goes_with_each_form_of_authorities(authority: trustme.CA, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    own = {
        "protocol": "SSL",
        "certfile": store(tmp_path, "client.p12"),
        "certfile_password_from": f"file:{tmp_path}/password",
    }
    pem, trust = f"{tmp_path}/ca.pem", store(tmp_path, "trust.jks")
    identity = {"ssl_certificate_pem", "ssl_key_pem"}
    for keys, name in (
        ({"cafile": pem}, "ssl_cafile"),
        ({"cafile": trust}, "ssl_ca_pem"),
        ({"ca_pem_from": f"file:{pem}"}, "ssl_ca_pem"),
    ):
        options = sent(Security.model_validate({**own, **keys}))
        assert set(options) - {"security_protocol", "ssl_check_hostname"} == {*identity, name}
        context = tls_context(options)
        assert context is not None and context.cert_store_stats()["x509"] == 1


def test_a_file_without_certificate_or_key_is_refused(
    authority: trustme.CA, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "nothing").write_text("nothing")
    trust, password = store(tmp_path, "trust.jks"), f"file:{tmp_path}/password"
    for keys, part in (
        ({"ca_pem_from": f"file:{tmp_path}/nothing"}, "security.*cannot be used"),
        ({"certfile": trust, "certfile_password_from": password}, "without a private key"),
        # OpenSSL would prompt for the password of an encrypted key.
        (files_of(authority, tmp_path, PASSWORD), "key_password_from if the key is encrypted"),
    ):
        with pytest.raises(ConfigError, match=part):
            tls_context(sent(Security.model_validate({"protocol": "SSL", **keys})))


def test_incomplete_keys_are_refused() -> None:
    for keys, part in (
        ({"certfile": "a"}, "only one of certfile and keyfile is set"),
        ({"key_pem_from": "env:A"}, "only one of certificate_pem_from and key_pem_from is set"),
        ({"cafile": "a", "ca_pem_from": "env:A"}, "cafile and ca_pem_from are both given"),
        ({"cafile_password_from": "env:A"}, "cafile_password_from is given without cafile"),
    ):
        with pytest.raises(ValueError, match=part):
            Security.model_validate({"protocol": "SSL", **keys})


def test_blocks_of_pem_have_the_line_ends_that_openssl_requires() -> None:
    one = f"x -----BEGIN CERTIFICATE----- {'A' * 70} {'B' * 10} -----END CERTIFICATE----- y"
    lines = pem_blocks(one).splitlines()
    assert lines[0] == "-----BEGIN CERTIFICATE-----"
    assert all(len(line) <= 70 for line in lines) and "".join(lines[1:-1]) == "A" * 70 + "B" * 10
