"""Java keystores of type JKS: what keytool writes, read without a cryptography library.

The type's own cipher needs no more than SHA-1, and its layout is that of
`sun.security.provider.JavaKeyStore` and `KeyProtector`. It serves for a testbed's keys,
which live as long as it does, because keytool hands a private key over in no other way.
"""

from __future__ import annotations

import hashlib
import struct
from base64 import b64encode
from dataclasses import dataclass, field

_MAGIC = 0xFEEDFEED
_VERSION = 2
_KEY, _TRUSTED = 1, 2
_HASHED_WITH = b"Mighty Aphrodite"
_SHA1_BYTES = 20


@dataclass(frozen=True)
class Entry:
    """A key with its certificates, or a certificate that is trusted.

    Attributes:
        alias: its name in the store.
        created_ms: when it was made [ms since the epoch].
        key: the private key as the store encrypts it, or None.
        chain: certificates in DER, the key's own first.
    """

    alias: str
    created_ms: int
    key: bytes | None = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)


def parse(store: bytes) -> dict[str, Entry]:
    """The entries of a keystore by alias.

    Raises:
        ValueError: it is no JKS keystore.
    """
    cursor = _Cursor(store)
    if (cursor.number(">I"), cursor.number(">I")) != (_MAGIC, _VERSION):
        raise ValueError("no Java keystore of type JKS, version 2")
    entries = {}
    for _ in range(cursor.number(">I")):
        kind, alias, created_ms = cursor.number(">I"), cursor.text(), cursor.number(">Q")
        key = cursor.block() if kind == _KEY else None
        count = cursor.number(">I") if kind == _KEY else 1
        entries[alias] = Entry(alias, created_ms, key, tuple(map(cursor.cert, range(count))))
    return entries


def build(entries: list[Entry], password: str) -> bytes:
    """A keystore of these entries, under the password that their keys have."""
    parts = [struct.pack(">III", _MAGIC, _VERSION, len(entries))]
    for entry in entries:
        kind = _TRUSTED if entry.key is None else _KEY
        parts += [struct.pack(">I", kind), _text(entry.alias), struct.pack(">Q", entry.created_ms)]
        if entry.key is not None:
            parts += [_block(entry.key), struct.pack(">I", len(entry.chain))]
        for certificate in entry.chain:
            parts += [_text("X.509"), _block(certificate)]
    body = b"".join(parts)
    return body + hashlib.sha1(_wide(password) + _HASHED_WITH + body).digest()


def private_key(entry: Entry, password: str) -> bytes:
    """The entry's private key: PKCS #8 in DER.

    Raises:
        ValueError: the entry has none, or under another password.
    """
    if entry.key is None:
        raise ValueError(f"{entry.alias} has no private key")
    # EncryptedPrivateKeyInfo: the algorithm, whose name says nothing new, and the octets.
    protected = _last_value(entry.key)
    salt, sealed, check = (
        protected[:_SHA1_BYTES],
        protected[_SHA1_BYTES:-_SHA1_BYTES],
        protected[-_SHA1_BYTES:],
    )
    digest, stream = salt, b""
    while len(stream) < len(sealed):
        digest = hashlib.sha1(_wide(password) + digest).digest()
        stream += digest
    plain = bytes(a ^ b for a, b in zip(sealed, stream, strict=False))
    if hashlib.sha1(_wide(password) + plain).digest() != check:
        raise ValueError(f"the password does not open the key of {entry.alias}")
    return plain


def pem(label: str, der: bytes) -> str:
    """DER as PEM under the label, such as `CERTIFICATE` or `PRIVATE KEY`."""
    text = b64encode(der).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise ValueError("the keystore is cut off")
        self._at += size
        return taken

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def block(self) -> bytes:
        return self.take(self.number(">I"))

    def text(self) -> str:
        return self.take(self.number(">H")).decode()

    def cert(self, _index: int) -> bytes:
        self.text()  # X.509, the only type that there is
        return self.block()


def _last_value(der: bytes) -> bytes:
    """The content of the last element of a DER sequence."""
    content, _ = _element(der)
    last = b""
    while content:
        last, content = _element(content)
    return last


def _element(der: bytes) -> tuple[bytes, bytes]:
    """Content of the first DER element, and what follows it."""
    length, head = der[1], 2
    if length & 0x80:
        head += length & 0x7F
        length = int.from_bytes(der[2:head], "big")
    return der[head : head + length], der[head + length :]


def _wide(password: str) -> bytes:
    return password.encode("utf-16-be")


def _block(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
