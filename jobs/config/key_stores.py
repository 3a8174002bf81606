"""Stores of certificates and keys (PEM, PKCS12 and Java's JKS), converted to PEM in memory.

This module reads JKS without a library; the reasons are in docs/decisions/libraries.md. The class
sun.security.provider.JavaKeyStore defines the format: a header, entries, and a digest of both.

The module also reads Java's properties files, configuration providers and JAAS entries.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from jobs.config.files import bytes_of
from jobs.setup.places import withhold
from metrics.common.errors import ConfigError


def read_properties(path: str) -> dict[str, str]:
    """Read a properties file as Java does: as ISO 8859-1, with the last value of a repeated key.

    Raises:
        OSError, ValueError: the file cannot be read, or is not a properties file.
    """
    data = bytes_of(path).removeprefix(b"\xef\xbb\xbf")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(
            "it is UTF-16; expected ISO 8859-1 or UTF-8, as Java can read it; save it as UTF-8"
        )
    return dict(javaproperties.loads(data))


# --- configuration providers ----------------------------------------------------

_PLACE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
_KINDS = {
    "EnvVarConfigProvider": "env",
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
}
"""Class name of a provider of Kafka → type of the provider."""
_USUAL = {"env": "env", "file": "file", "dir": "dir", "directory": "dir"}
"""Provider that requires no declaration in `config.providers` → type of the provider."""


def resolved(text: str, given: Mapping[str, str]) -> str:
    """The text, after each reference to a configuration provider is replaced by the provider's
    value.

    Args:
        given: all properties of the file; `config.providers` declares providers.

    Raises:
        ValueError: a provider is unknown, or does not have the value.
    """
    return _PLACE.sub(lambda found: _looked_up(found, given), text)


def _looked_up(found: re.Match[str], given: Mapping[str, str]) -> str:
    name, path, key = found[1], found[2] or "", found[3]
    kind = _kind_of(name, given)
    if kind is None:  # Kafka does not replace such a text
        return found[0]
    if kind == "env":
        withhold(key)
        value = os.environ.get(key)
        if value is None or not _matches(name, key, given):
            raise ValueError(
                f"{found[0]}, and the environment variable {key} is not set (or does not match "
                f"allowlist.pattern); set {key} before the run"
            )
        return value
    if not path:
        raise ValueError(f"{found[0]}, which has no path; expected ${{{name}:/PATH:KEY}}")
    if not _is_allowed(name, path, given):
        raise ValueError(
            f"{found[0]}, whose path is not below config.providers.{name}.param.allowed.paths; "
            "correct the path, or allowed.paths"
        )
    return _from_files(found[0], kind, path, key)


def files_in(text: str, given: Mapping[str, str]) -> list[str]:
    """The files that configuration providers read for a text; see `resolved`."""
    found = [(_kind_of(each[1], given), each[2], each[3]) for each in _PLACE.finditer(text)]
    return [
        path if kind == "file" else str(Path(path) / key)
        for kind, path, key in found
        if kind in ("file", "dir") and path
    ]


def _from_files(place: str, kind: str, path: str, key: str) -> str:
    try:
        if kind == "dir":
            return bytes_of(Path(path) / key).decode("utf-8")
        value = read_properties(path).get(key)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{place}, which cannot be read ({why}); correct the path") from None
    if value is None:
        raise ValueError(
            f"{place}, and {path} has no {key}; add {key} to the file, or correct the reference"
        )
    return value


def _kind_of(name: str, given: Mapping[str, str]) -> str | None:
    """The type of a provider; None if the name is not the name of a provider.

    Raises:
        ValueError: the provider's class is not a class of Kafka.
    """
    declared = [each.strip() for each in given.get("config.providers", "").split(",")]
    if name not in declared:
        return _USUAL.get(name)
    made_by = given.get(f"config.providers.{name}.class", "").strip()
    kind = _KINDS.get(made_by.rpartition(".")[2]) or ("" if made_by else _USUAL.get(name))
    if not kind:
        raise ValueError(
            f"the configuration provider {name} of class {made_by or '(none)'}; expected one of "
            f"{', '.join(_KINDS)}; write the value into a file or an environment variable"
        )
    return kind


def _matches(name: str, key: str, given: Mapping[str, str]) -> bool:
    pattern = given.get(f"config.providers.{name}.param.allowlist.pattern", "").strip()
    try:
        return not pattern or re.fullmatch(pattern, key) is not None
    except re.error:
        return True  # a pattern that is valid only in Java


def _is_allowed(name: str, path: str, given: Mapping[str, str]) -> bool:
    allowed = given.get(f"config.providers.{name}.param.allowed.paths", "").strip()
    places = [Path(os.path.normpath(each.strip())) for each in allowed.split(",") if each.strip()]
    wanted = Path(os.path.normpath(path))
    return not places or any(wanted.is_relative_to(each) for each in places)


# --- JAAS -----------------------------------------------------------------------

_OPTION = re.compile(r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_COMMENT = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def jaas_options(entry: str) -> dict[str, str]:
    """The options of a JAAS entry, with the escapes in their values resolved."""
    found = {}
    for match in _OPTION.finditer(_COMMENT.sub(lambda each: each[1] or " ", entry)):
        quoted = match[2] if match[2] is not None else match[3]
        found[match[1]] = match[4] if quoted is None else _ESCAPE.sub(_unescaped, quoted)
    return found


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPED.get(text, text)


def jaas_module(entry: str) -> str:
    """The class of a JAAS entry's login module without its package, such as `PlainLoginModule`."""
    words = _COMMENT.sub(lambda each: each[1] or " ", entry).split()
    return words[0].rpartition(".")[2] if words else ""


_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_JKS_SALT = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")
"""DER of the object identifier of Sun's key protection, 1.3.6.1.4.1.42.2.17.1.1."""


@dataclass(frozen=True)
class Stored:
    """The content of a store, as PEM.

    Attributes:
        trusted: certificates without a key.
        chain: the certificate chain of the first key, the client's certificate first; empty without
            a key.
        key: the first private key, unencrypted; empty without a key.
    """

    trusted: str = ""
    chain: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return "Stored(…)"

    @property
    def authorities(self) -> str:
        """The trusted certificates; if there are none, the certificate chain of the key, as in
        Java.
        """
        return self.trusted or self.chain


def is_store(path: str) -> bool:
    """Whether a file is a Java key store instead of PEM; False for a file that cannot be read."""
    try:
        data = bytes_of(path)
    except (OSError, ValueError):
        return False
    return data.startswith((_JKS, _JCEKS, b"\x30")) or b"\0" in data[:100]


def read_store(
    path: str, key: str, password: str | None = None, key_password: str | None = None
) -> Stored:
    """Read a JKS or PKCS12 store.

    Args:
        key: the configuration's key whose value is the path of the file, for messages.
        password: the password of the store; not needed for the certificates of a JKS store.
        key_password: the password of the private key; None for the store's password.

    Raises:
        ConfigError: the file cannot be read, is another type of store, or the password is wrong.
    """
    try:
        data = bytes_of(path)
        if data.startswith(_JKS):
            return _read_jks(data, password, key_password)
        if data.startswith(b"\x30"):
            return _read_pkcs12(data, password)
        kind = "a JCEKS store" if data.startswith(_JCEKS) else "another type of store"
        raise ValueError(f"it is {kind}")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cluster security.{key} is {path}, which cannot be used ({why}); expected a store of "
            f"type JKS or PKCS12 that security.{key}_password_from opens, or a PEM file; check "
            "the password, or convert the file (keytool -importkeystore -deststoretype PKCS12)"
        ) from None


def _read_pkcs12(data: bytes, password: str | None) -> Stored:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    found = load_pkcs12(data, password.encode() if password else None)
    others = [each.certificate for each in found.additional_certs]
    texts = [each.public_bytes(Encoding.PEM).decode() for each in others]
    if found.key is None or found.cert is None:
        return Stored(trusted="".join(texts))
    own = found.cert.certificate.public_bytes(Encoding.PEM).decode()
    plain = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Stored("".join(texts), own + "".join(texts), plain)


class _Bytes(io.BytesIO):
    """A reader of the values that Java's DataOutputStream wrote."""

    def take(self, length: int) -> bytes:
        piece = self.read(length)
        if len(piece) < length:
            raise ValueError("it ends in the middle of an entry")
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
            raise ValueError("the password is wrong, or the file is damaged")
    entries = list(_entries(_Bytes(body)))
    trusted = "".join(pem for is_key, _, pem in entries if not is_key)
    for is_key, sealed, chain in entries:
        if is_key:
            if (opens := key_password or password) is None:
                raise ValueError("it has a private key, and no password is given")
            return Stored(trusted, chain, _pem("PRIVATE KEY", _opened(sealed, opens)))
    return Stored(trusted)


def _entries(data: _Bytes) -> Iterator[tuple[bool, bytes, str]]:
    """Yield three values for each entry of a JKS store: whether the entry has a key, the protected
    key, and the certificates as PEM.
    """
    data.take(4)
    version, count = data.number(), data.number()
    if version not in (1, 2):
        raise ValueError(f"it is JKS of version {version}")

    def certificate() -> str:
        if version == 2:
            data.block(2)  # the certificate's type, X.509
        return _pem("CERTIFICATE", data.block())

    for _ in range(count):
        tag = data.number()
        data.block(2)  # the alias
        data.take(8)  # the creation time
        if tag == 1:
            sealed = data.block()
            yield True, sealed, "".join([certificate() for _ in range(data.number())])
        elif tag == 2:
            yield False, b"", certificate()
        else:
            raise ValueError(f"it has an entry of unknown type {tag}")


def _opened(sealed: bytes, password: str) -> bytes:
    """Decrypt a key that Sun's key protection (SHA-1 key stream) encrypted; return PKCS #8."""
    at = sealed.find(_KEY_PROTECTOR)
    if at < 0:
        raise ValueError("the private key is not protected by JKS's algorithm")
    # The algorithm's parameters are null or missing; the content's tag and length follow.
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
        raise ValueError("the password of the private key is wrong")
    return key


def _pem(kind: str, data: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def pem_blocks(text: str) -> str:
    """PEM text with the line ends that OpenSSL requires; Kafka's files may have PEM in one line."""

    def wrapped(found: re.Match[str]) -> str:
        body = found[2] if ":" in found[2] else "\n".join(textwrap.wrap("".join(found[2].split())))
        return f"-----BEGIN {found[1]}-----\n{body.strip()}\n-----END {found[1]}-----"

    return "\n".join(wrapped(found) for found in _BLOCK.finditer(text)) + "\n"
