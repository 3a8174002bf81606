"""The security of connections to brokers: login and TLS; secrets are given only by references."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from jobs.config.base import ConfigModel
from jobs.config.client_properties import REFERENCE as PROPERTIES
from jobs.config.client_properties import secret as secret_of_properties
from jobs.config.files import text_of
from jobs.config.key_stores import is_store, pem_blocks, read_store
from jobs.config.tokens import ClientCredentials, MskTokens, ReferencedToken
from jobs.engine.network.options import ClientOptions, TokenProvider
from jobs.engine.network.refusals import NO_GSSAPI
from jobs.setup.places import withhold
from metrics.common.bounds import Text, UnexpectedError
from metrics.common.errors import ConfigError

REFERENCE = "env:NAME or file:PATH (a file or an option must not contain the secret)"


SECRET_BYTES_MAX = 100_000
"""Largest size of a file with a password, a token or a key [B]."""

AUTHORITIES_BYTES_MAX = 10_000_000
"""Largest size of a file of trusted certificates [B]."""


_AWS_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def is_reference(value: Any) -> bool:
    """Whether a value is a reference to a secret, such as `env:NAME`."""
    kind, _, place = value.partition(":") if isinstance(value, str) else ("", "", "")
    return kind in ("env", "file", PROPERTIES) and bool(place.strip())


def as_reference(value: Any) -> Any:
    """Check that a value is a reference, and hide its environment variable from child processes.

    Raises:
        UnexpectedError: the value is not a reference.
    """
    if not is_reference(value):
        raise UnexpectedError(REFERENCE)
    kind, _, place = value.partition(":")
    if kind == "env":
        withhold(place)
    return value


SecretReference = Annotated[str, BeforeValidator(as_reference)]
"""`env:NAME` or `file:PATH`: a reference to a secret."""


def read_secret(reference: str, key: str, of: str = "cluster ") -> str:
    """Read the secret to which a reference points.

    Args:
        reference: `env:NAME`; or `file:PATH`, from which a trailing newline is removed; or
            `properties:PATH#NAME` for a secret in a cluster's `client_properties`.
        key: path of the configuration's key whose value is `reference`, for messages.
        of: text that messages show before `key`, such as `cluster `; empty for an option of a
            command.

    Raises:
        ConfigError: the secret does not exist, or is empty.
    """
    kind, _, place = reference.partition(":")
    if kind not in ("env", "file", PROPERTIES) or not place.strip():
        raise ConfigError(  # the value may be a secret, so it is not quoted
            f"{of}{key} is neither env:NAME nor file:PATH; expected a reference to the secret; "
            "write the secret into an environment variable or a file, and name the variable or file"
        )
    if kind == "env":
        withhold(place)
        secret = os.environ.get(place, "")
        found = f"the environment variable {place} is not set or empty"
        remedy = f"set {place} before the run"
    elif kind == PROPERTIES:
        secret = secret_of_properties(place)
        file, _, name = place.rpartition("#")
        found, remedy = f"the file {file} has no {name}", f"add {name} to the file"
    else:
        path = Path(place).expanduser()
        found, remedy = f"the file {path} is empty", "write the secret into the file"
        try:
            secret = text_of(path, SECRET_BYTES_MAX).rstrip("\r\n")
        except (OSError, ValueError) as error:
            secret = ""
            found = f"the file {path} cannot be read ({error.__class__.__name__})"
            remedy = "check the path and the file's permissions"
    if not secret:
        raise ConfigError(f"{of}{key} is {reference}, but {found}; {remedy}")
    return secret


def _secret_of(security: Security, key: str) -> str:
    return read_secret(getattr(security, key), f"security.{key}")


def token_provider(security: Security) -> TokenProvider:
    """The source of OAUTHBEARER tokens; a first token was fetched from the source.

    Raises:
        ConfigError: the source has no token.
    """
    read = partial(_secret_of, security)
    if security.aws_region is not None:
        for variable in _AWS_VARIABLES:
            withhold(variable)
        provider: TokenProvider = MskTokens(security.aws_region)
    elif security.oauth_token_url is None:
        provider = ReferencedToken(partial(read, "token_from"))
    else:
        provider = ClientCredentials(
            security.oauth_token_url,
            read("oauth_client_id_from"),
            read("oauth_client_secret_from"),
            security.oauth_scope,
            extensions=security.oauth_extensions,
            is_encoded=security.oauth_urlencode,
            authority=_token_authority(security),
        )
    provider.token()  # a missing token is an error before the first connection
    return provider


def _token_authority(security: Security) -> str | None:
    """The authorities of the token server as PEM; None for the system's authorities."""
    if security.oauth_cafile is None:
        return None
    path = _existing("oauth_cafile", security.oauth_cafile)
    if is_store(path):
        password = _optional_secret(security, "oauth_cafile_password_from")
        return read_store(path, "oauth_cafile", password).authorities
    try:
        return text_of(Path(path), AUTHORITIES_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cluster security.oauth_cafile is {path}, which cannot be read ({error}); expected a "
            "PEM file; correct the path"
        ) from None


def _existing(key: str, given: str) -> str:
    path = Path(given).expanduser()
    if not path.is_file():
        trust = " or remove the key to trust the system's authorities" if "ca" in key else ""
        raise ConfigError(
            f"cluster security.{key} is {path}, which is not a file; expected a PEM file or a "
            f"store of type JKS or PKCS12; correct the path{trust and f',{trust}'}"
        )
    return str(path)


def _optional_secret(security: Security, key: str) -> str | None:
    return None if getattr(security, key) is None else _secret_of(security, key)


Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

_PASSWORD_KEYS = ("username_from", "password_from")
_OAUTH_KEYS = ("oauth_token_url", "oauth_client_id_from", "oauth_client_secret_from")
_OAUTH_DETAILS = ("oauth_scope", "oauth_extensions", "oauth_cafile", "oauth_cafile_password_from")
_TOKEN_KEYS = ("token_from", *_OAUTH_KEYS, *_OAUTH_DETAILS)
_LOGIN_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_PASSWORD_KEYS, ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    **dict.fromkeys(_TOKEN_KEYS, ("OAUTHBEARER",)),
    "kerberos_service_name": ("GSSAPI",),
    "aws_region": ("AWS_MSK_IAM",),
}
"""Key → the mechanisms that use it."""
_PEM_KEYS = {"ca_pem_from": "ssl_ca_pem", "certificate_pem_from": "ssl_certificate_pem",
             "key_pem_from": "ssl_key_pem"}  # fmt: skip
"""Key → the connection option with its PEM text."""
_TLS_KEYS = (
    "cafile",
    "cafile_password_from",
    "certfile",
    "certfile_password_from",
    "keyfile",
    "key_password_from",
    *_PEM_KEYS,
)
_PASSWORDS = {
    "cafile_password_from": ("cafile",),
    "certfile_password_from": ("certfile",),
    "key_password_from": ("certfile", "key_pem_from"),
    "oauth_cafile_password_from": ("oauth_cafile",),
}
"""Key of a password → keys of the files that the password may open."""


class Security(ConfigModel):
    """Security of the connections to the brokers; file names must also be valid on executors.

    Attributes:
        protocol: Kafka's security.protocol.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM.
        username_from: reference to the SASL user name.
        password_from: reference to the SASL password.
        token_from: reference to an OAUTHBEARER token; the token is read again for every login, and
            during a load.
        oauth_token_url: token endpoint of an OAuth server, instead of `token_from`.
        oauth_client_id_from: reference to the client id for the OAuth server.
        oauth_client_secret_from: reference to the client secret for the OAuth server.
        oauth_scope: scope of the requested token.
        oauth_extensions: names and values that the login sends with the token, such as
            `{logicalCluster: lkc-00000}`.
        oauth_urlencode: whether the client id and the client secret are URL-encoded in the request,
            as RFC 6749 requires; false for servers that do not decode them.
        oauth_cafile: PEM, JKS or PKCS12 file with the authorities of the OAuth server; the system's
            authorities if not given.
        oauth_cafile_password_from: reference to the password of the store in `oauth_cafile`.
        kerberos_service_name: the first part of the brokers' principals, for GSSAPI; `kafka` if not
            given. The Kerberos tickets come from the operating system's user on each host.
        aws_region: AWS region of the cluster, for AWS_MSK_IAM. The credentials come from AWS's
            default credential chain.
        cafile: PEM, JKS or PKCS12 file of trusted certificates; the system's authorities if not
            given.
        cafile_password_from: reference to the password of the store in `cafile`; not needed for JKS
            stores or for stores without a password.
        certfile: the client's certificate, for mutual TLS: a PEM file, or a JKS or PKCS12 store
            that includes the private key.
        keyfile: PEM file of the private key of the certificate in `certfile`.
        certfile_password_from: reference to the password of the store in `certfile`.
        key_password_from: reference to the password of the private key.
        ca_pem_from: reference to a PEM text with the trusted certificates, instead of `cafile`.
        certificate_pem_from: reference to a PEM text with the client's certificate, instead of
            `certfile`; requires `key_pem_from`.
        key_pem_from: reference to a PEM text with the private key of the certificate in
            `certificate_pem_from`.
        check_hostname: whether the broker's certificate must name the broker's host.
    """

    protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"]
        | None
    ) = None
    username_from: SecretReference | None = None
    password_from: SecretReference | None = None
    token_from: SecretReference | None = None
    oauth_token_url: (
        Annotated[
            str,
            Text(
                r"https://[^\s@/?#]+([/?#]\S*)?|http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/\S*)?",
                "an https address without user and password, such as "
                "https://idp.example.com/oauth2/token",
            ),
        ]
        | None
    ) = None
    oauth_client_id_from: SecretReference | None = None
    oauth_client_secret_from: SecretReference | None = None
    oauth_scope: str | None = None
    oauth_extensions: dict[str, str] | None = None
    oauth_urlencode: bool = True
    oauth_cafile: str | None = None
    oauth_cafile_password_from: SecretReference | None = None
    kerberos_service_name: (
        Annotated[str, Text(r"[^\s@/]+", "the first part of a principal, such as kafka")] | None
    ) = None
    aws_region: (
        Annotated[str, Text(r"[a-z]+(-[a-z]+)+-\d+", "a region, such as eu-west-1")] | None
    ) = None
    cafile: str | None = None
    cafile_password_from: SecretReference | None = None
    ca_pem_from: SecretReference | None = None
    certfile: str | None = None
    certfile_password_from: SecretReference | None = None
    certificate_pem_from: SecretReference | None = None
    keyfile: str | None = None
    key_pem_from: SecretReference | None = None
    key_password_from: SecretReference | None = None
    check_hostname: bool = True

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        if self.protocol.startswith("SASL_"):
            self._complete_login()
        else:
            keys = ("sasl_mechanism", *_LOGIN_KEYS)
            self._refuse(keys, f"protocol {self.protocol}", "protocol SASL_PLAINTEXT or SASL_SSL")
        if not self.protocol.endswith("SSL"):
            self._refuse(_TLS_KEYS, f"protocol {self.protocol}", "protocol SSL or SASL_SSL")
        self._complete_files()

    def _complete_files(self) -> None:
        if self.certfile_password_from is None or self.keyfile is not None:
            self._require_pair("certfile", "keyfile")
        self._require_pair("certificate_pem_from", "key_pem_from")
        for one, other in (("cafile", "ca_pem_from"), ("certfile", "certificate_pem_from")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"{one} and {other} are both given; expected one; remove {other}")
        for key, opened in _PASSWORDS.items():
            if getattr(self, key) is not None and not any(getattr(self, each) for each in opened):
                raise ValueError(
                    f"{key} is given without {opened[0]}; add {opened[0]}, or remove {key}"
                )

    def _complete_login(self) -> None:
        if self.sasl_mechanism is None:
            raise ValueError(f"protocol {self.protocol} requires sasl_mechanism; add it")
        with_what = f"sasl_mechanism {self.sasl_mechanism}"
        for key, mechanisms in _LOGIN_KEYS.items():
            if self.sasl_mechanism not in mechanisms:
                self._refuse((key,), with_what, f"sasl_mechanism {' or '.join(mechanisms)}")
        needed: tuple[str, ...] = ()
        if self.sasl_mechanism == "OAUTHBEARER":
            by_server = [key for key in _OAUTH_KEYS if getattr(self, key) is not None]
            if (self.token_from is None) == (not by_server):
                raise ValueError(
                    f"{with_what} needs exactly one of token_from and oauth_token_url (with "
                    "oauth_client_id_from and oauth_client_secret_from); set one of them"
                )
            needed = _OAUTH_KEYS if by_server else ()
        elif self.sasl_mechanism == "AWS_MSK_IAM":
            if self.protocol != "SASL_SSL":
                raise ValueError(
                    f"{with_what} with protocol {self.protocol} would send a token unencrypted; "
                    "expected protocol SASL_SSL, which MSK requires; change protocol"
                )
            needed = ("aws_region",)
        elif self.sasl_mechanism != "GSSAPI":
            needed = _PASSWORD_KEYS
        missing = [key for key in needed if getattr(self, key) is None]
        if missing:
            raise ValueError(f"{with_what} requires {missing[0]}; add {missing[0]}")

    def _refuse(self, keys: tuple[str, ...], given_with: str, expected: str) -> None:
        given = [key for key in keys if getattr(self, key) is not None]
        if given:
            raise ValueError(
                f"{given[0]} has no effect with {given_with}; expected {expected}; change "
                f"{given_with.split(maxsplit=1)[0]} or remove {given[0]}"
            )

    def client_kwargs(self) -> ClientOptions:
        """The connection options for kafka-python's clients.

        Raises:
            ConfigError: a secret, a file or a token is missing.
        """
        options = ClientOptions(security_protocol=self.protocol)
        if self.protocol.startswith("SASL_"):
            options["sasl_mechanism"] = self.sasl_mechanism
            if self.sasl_mechanism in ("OAUTHBEARER", "AWS_MSK_IAM"):
                # MSK accepts IAM tokens by OAUTHBEARER, which all client libraries support.
                options["sasl_mechanism"] = "OAUTHBEARER"
                options["sasl_oauth_token_provider"] = token_provider(self)
            elif self.sasl_mechanism == "GSSAPI":
                if importlib.util.find_spec("gssapi") is None:
                    raise ConfigError(
                        "cluster security.sasl_mechanism is GSSAPI, and "
                        + NO_GSSAPI.format(host=socket.gethostname())
                    )
                options["sasl_kerberos_service_name"] = self.kerberos_service_name or "kafka"
            else:
                options["sasl_plain_username"] = _secret_of(self, "username_from")
                options["sasl_plain_password"] = _secret_of(self, "password_from")
        if self.protocol.endswith("SSL"):
            options["ssl_check_hostname"] = self.check_hostname
            options |= self._tls_files()
        return options

    @property
    def shared_files(self) -> tuple[str, ...]:
        """The PEM files that executors read; the driver reads stores, and sends their content."""
        given = (self.cafile, self.certfile, self.keyfile)
        return tuple(path for path in given if path and not is_store(path))

    def _tls_files(self) -> dict[str, str]:
        """The options for the certificates and the key. PEM files are given by their paths;
        certificates and keys from other sources are given as PEM text.
        """
        options: dict[str, str] = {}
        secret = partial(_optional_secret, self)
        if self.cafile is not None:
            path = _existing("cafile", self.cafile)
            if is_store(path):
                stored = read_store(path, "cafile", secret("cafile_password_from"))
                options["ssl_ca_pem"] = stored.authorities
            else:
                options["ssl_cafile"] = path
        if self.certfile is not None:
            path = _existing("certfile", self.certfile)
            if is_store(path):
                options |= self._identity_of(path)
            else:
                options["ssl_certfile"] = path
                options["ssl_keyfile"] = _existing("keyfile", self.keyfile or path)
        for key, option in _PEM_KEYS.items():
            if (text := secret(key)) is not None:
                options[option] = pem_blocks(text)
        is_sealed = "ssl_certfile" in options or self.key_pem_from is not None
        if is_sealed and (password := secret("key_password_from")) is not None:
            options["ssl_password"] = password
        return options

    def _identity_of(self, path: str) -> dict[str, str]:
        """The options with the client's certificate and decrypted key from a store."""
        password = _optional_secret(self, "certfile_password_from")
        key_password = _optional_secret(self, "key_password_from")
        stored = read_store(path, "certfile", password, key_password)
        if not stored.key:
            raise ConfigError(
                f"cluster security.certfile is {path}, a store without a private key; expected the "
                "client's certificate and its private key; name the store with both"
            )
        return {"ssl_certificate_pem": stored.chain, "ssl_key_pem": stored.key}
