"""Stores of certificates and keys: PEM, PKCS12, and Java's own JKS, as PEM in memory.

JKS is read here and not by a library, see docs/decisions/libraries.md. Its form is that of the
class sun.security.provider.JavaKeyStore: a header, entries, and a digest of both.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.config.java_properties import read_bytes
from metrics.common.errors import ConfigError

_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_JKS_SALT = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")
"""DER of the object identifier of Sun's protection of keys, 1.3.6.1.4.1.42.2.17.1.1."""


@dataclass(frozen=True)
class Stored:
    """The content of a store, as PEM.

    Attributes:
        trusted: certificates without a key.
        chain: the certificates of the first key, the client's own first; empty without a key.
        key: the first key, unencrypted; empty without one.
    """

    trusted: str = ""
    chain: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return "Stored(…)"

    @property
    def authorities(self) -> str:
        """The certificates that a trust store trusts; Java takes those beside keys, too."""
        return self.trusted or self.chain


def is_store(path: str) -> bool:
    """Whether a file is a store of Java's and not PEM; False for a file that cannot be read."""
    try:
        data = read_bytes(path)
    except (OSError, ValueError):
        return False
    return data.startswith((_JKS, _JCEKS, b"\x30")) or b"\0" in data[:100]


def read_store(
    path: str, key: str, password: str | None = None, key_password: str | None = None
) -> Stored:
    """Read a JKS or PKCS12 store.

    Args:
        key: the configuration's key that names the file, for messages.
        password: the password of the store; certificates of JKS can be read without it.
        key_password: the password of its key; that of the store when None.

    Raises:
        ConfigError: the file cannot be read, is another kind of store, or has another password.
    """
    try:
        data = read_bytes(path)
        if data.startswith(_JKS):
            return _read_jks(data, password, key_password)
        if data.startswith(b"\x30"):
            return _read_pkcs12(data, password)
        kind = "JCEKS" if data.startswith(_JCEKS) else "another kind of store"
        raise ValueError(f"it is {kind}")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cluster security.{key} is {path}, which cannot be used ({why}); expected a store of "
            f"type JKS or PKCS12 that security.{key}_password_from opens, or a PEM file; check "
            "the password, or convert it by keytool -importkeystore -deststoretype PKCS12"
        ) from None


def _read_pkcs12(data: bytes, password: str | None) -> Stored:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    found = load_pkcs12(data, password.encode() if password else None)
    others = [each.certificate for each in found.additional_certs]
    texts = [each.public_bytes(Encoding.PEM).decode() for each in others]
    if found.key is None or found.cert is None:
        return Stored(trusted="".join(texts))
    own = found.cert.certificate.public_bytes(Encoding.PEM).decode()
    plain = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Stored("".join(texts), own + "".join(texts), plain)


class _Bytes:
    """Numbers and texts of Java's DataOutputStream, in their order."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, length: int) -> bytes:
        piece = self._data[self._at : self._at + length]
        if len(piece) < length:
            raise ValueError("it ends in the middle of an entry")
        self._at += length
        return piece

    def number(self, length: int = 4) -> int:
        return int.from_bytes(self.take(length), "big")

    def block(self, length: int = 4) -> bytes:
        return self.take(self.number(length))


def _read_jks(data: bytes, password: str | None, key_password: str | None) -> Stored:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        made = hashlib.sha1(password.encode("utf-16-be") + _JKS_SALT + body).digest()
        if not hmac.compare_digest(made, digest):
            raise ValueError("its password is another one, or the file is damaged")
    entries = list(_entries(_Bytes(body)))
    trusted = "".join(pem for is_key, _, pem in entries if not is_key)
    for is_key, sealed, chain in entries:
        if is_key:
            if (opens := key_password or password) is None:
                raise ValueError("it has a key, and no password is given")
            return Stored(trusted, chain, _pem("PRIVATE KEY", _opened(sealed, opens)))
    return Stored(trusted)


def _entries(data: _Bytes) -> Iterator[tuple[bool, bytes, str]]:
    """Whether each entry has a key, the protected key, and the certificates as PEM."""
    data.take(4)
    version, count = data.number(), data.number()
    if version not in (1, 2):
        raise ValueError(f"it is JKS of version {version}")

    def certificate() -> str:
        if version == 2:
            data.block(2)  # its type, X.509
        return _pem("CERTIFICATE", data.block())

    for _ in range(count):
        tag = data.number()
        data.block(2)  # the alias
        data.take(8)  # the time of its making
        if tag == 1:
            sealed = data.block()
            yield True, sealed, "".join([certificate() for _ in range(data.number())])
        elif tag == 2:
            yield False, b"", certificate()
        else:
            raise ValueError(f"it has an entry of kind {tag}")


def _opened(sealed: bytes, password: str) -> bytes:
    """The key, as PKCS #8, from Sun's protection: a key stream of SHA-1, and a digest."""
    at = sealed.find(_KEY_PROTECTOR)
    if at < 0:
        raise ValueError("its key has another protection than that of JKS")
    # The algorithm's parameters are null, or left out; then follow tag and length of the content.
    data = _Bytes(sealed[at + len(_KEY_PROTECTOR) :].removeprefix(b"\x05\x00"))
    data.take(1)
    length = data.number(1)
    if length & 0x80:
        length = data.number(length & 0x7F)
    content, secret = data.take(length), password.encode("utf-16-be")
    block, hidden, digest = content[:20], content[20:-20], content[-20:]
    stream = b""
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), digest):
        raise ValueError("the password of its key is another one")
    return key


def _pem(kind: str, data: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def pem_blocks(text: str) -> str:
    """PEM with the ends of lines that OpenSSL needs; Kafka takes it in one line, too."""

    def wrapped(found: re.Match[str]) -> str:
        body = found[2] if ":" in found[2] else "\n".join(textwrap.wrap("".join(found[2].split())))
        return f"-----BEGIN {found[1]}-----\n{body.strip()}\n-----END {found[1]}-----"

    return "\n".join(wrapped(found) for found in _BLOCK.finditer(text)) + "\n"
