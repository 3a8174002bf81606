"""The security of connections to brokers: login and TLS, with secrets by reference only."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from jobs.config.base import ConfigModel
from jobs.config.client_properties import REFERENCE as PROPERTIES
from jobs.config.client_properties import secret as secret_of_properties
from jobs.config.files import text_of
from jobs.config.tokens import ClientCredentials, MskTokens, ReferencedToken
from jobs.engine.network.options import ClientOptions, TokenProvider
from jobs.engine.network.refusals import NO_GSSAPI
from jobs.setup.child_environment import withhold
from metrics.common.bounds import Text, UnexpectedError
from metrics.common.errors import ConfigError

REFERENCE = "env:NAME or file:PATH (a file or an option must not contain the secret itself)"


SECRET_BYTES_MAX = 100_000
"""Largest size of a file with a password, a token or a key [B]."""


_AWS_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def _as_reference(value: Any) -> Any:
    if isinstance(value, str):
        kind, _, place = value.partition(":")
        if kind in ("env", "file", PROPERTIES) and place.strip():
            if kind == "env":
                withhold(place)
            return value
    raise UnexpectedError(REFERENCE)


SecretReference = Annotated[str, BeforeValidator(_as_reference)]
"""`env:NAME` or `file:PATH`: the place of a secret."""


def read_secret(reference: str, key: str, of: str = "cluster ") -> str:
    """Read the secret of a reference.

    Args:
        reference: `env:NAME`, or `file:PATH` without a trailing end of line, or
            `properties:PATH#NAME` for a secret in a cluster's `client_properties`.
        key: the configuration's key, for messages.
        of: the part of the configuration that has the key, for messages.

    Raises:
        ConfigError: the secret does not exist, or is empty.
    """
    kind, _, place = reference.partition(":")
    if kind not in ("env", "file", PROPERTIES) or not place.strip():
        raise ConfigError(  # the value may be the secret itself, so it is not quoted
            f"{of}{key} is neither env:NAME nor file:PATH; expected the place of the secret, not "
            f"the secret; put it into an environment variable or a file, and name that"
        )
    if kind == "env":
        withhold(place)
        secret = os.environ.get(place, "")
        found = f"the environment variable {place} is not set or empty"
        remedy = f"set {place} before the run"
    elif kind == PROPERTIES:
        secret = secret_of_properties(place)
        file, _, name = place.rpartition("#")
        found, remedy = f"the file {file} has no {name}", "write it there"
    else:
        path = Path(place).expanduser()
        found, remedy = f"the file {path} is empty", "write the secret into it"
        try:
            secret = text_of(path, SECRET_BYTES_MAX).rstrip("\r\n")
        except (OSError, ValueError) as error:
            secret = ""
            found = f"the file {path} cannot be read ({error.__class__.__name__})"
            remedy = "check the path and its permissions"
    if not secret:
        raise ConfigError(f"{of}{key} is {reference}, but {found}; {remedy}")
    return secret


def _secret_of(security: Security, key: str) -> str:
    return read_secret(getattr(security, key), f"security.{key}")


def token_provider(security: Security) -> TokenProvider:
    """The source of OAUTHBEARER tokens, after a first token was fetched.

    Raises:
        ConfigError: there is no token.
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
        )
    provider.token()  # so that a missing token is an error before the first connection
    return provider


def _require_gssapi() -> None:
    if importlib.util.find_spec("gssapi") is None:
        raise ConfigError(
            "cluster security.sasl_mechanism is GSSAPI, and "
            + NO_GSSAPI.format(host=socket.gethostname())
        )


Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

_PASSWORD_KEYS = ("username_from", "password_from")
_OAUTH_KEYS = ("oauth_token_url", "oauth_client_id_from", "oauth_client_secret_from")
_TOKEN_KEYS = ("token_from", *_OAUTH_KEYS, "oauth_scope")
_LOGIN_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_PASSWORD_KEYS, ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    **dict.fromkeys(_TOKEN_KEYS, ("OAUTHBEARER",)),
    "kerberos_service_name": ("GSSAPI",),
    "aws_region": ("AWS_MSK_IAM",),
}
"""Key → the mechanisms that use it."""
_TLS_KEYS = ("cafile", "certfile", "keyfile", "key_password_from")


class Security(ConfigModel):
    """Security of the connections to the brokers; file names must be valid on executors too.

    Attributes:
        protocol: Kafka's security.protocol.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM.
        username_from, password_from: places of the SASL user and password.
        token_from: place of an OAUTHBEARER token; read again for every trial.
        oauth_token_url: token endpoint of an OAuth server, instead of token_from.
        oauth_client_id_from, oauth_client_secret_from: places of the client's id and secret for
            that server.
        oauth_scope: scope of the requested token.
        kerberos_service_name: the first part of the brokers' principals, for GSSAPI; kafka when
            left out. Each host's own user supplies the tickets.
        aws_region: region of the cluster, for AWS_MSK_IAM; AWS's own chain supplies the
            credentials.
        cafile: PEM file of trusted certificates; those of the system when left out.
        certfile, keyfile: PEM files of the client's own certificate and key, for mutual TLS.
        key_password_from: place of the key's password.
        check_hostname: whether the broker's certificate must name its host.
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
    kerberos_service_name: (
        Annotated[str, Text(r"[^\s@/]+", "the first part of a principal, such as kafka")] | None
    ) = None
    aws_region: (
        Annotated[str, Text(r"[a-z]+(-[a-z]+)+-\d+", "a region, such as eu-west-1")] | None
    ) = None
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    key_password_from: SecretReference | None = None
    check_hostname: bool = True

    @model_validator(mode="after")
    def _complete(self) -> Security:
        if self.protocol.startswith("SASL_"):
            self._complete_login()
        else:
            keys = ("sasl_mechanism", *_LOGIN_KEYS)
            self._refuse(keys, f"protocol {self.protocol}", "protocol SASL_PLAINTEXT or SASL_SSL")
        if not self.protocol.endswith("SSL"):
            self._refuse(_TLS_KEYS, f"protocol {self.protocol}", "protocol SSL or SASL_SSL")
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile belong together; add the other one")
        return self

    def _complete_login(self) -> None:
        if self.sasl_mechanism is None:
            raise ValueError(f"protocol {self.protocol} needs sasl_mechanism as well; add it")
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
                    "expected protocol SASL_SSL, as MSK requires; change protocol"
                )
            needed = ("aws_region",)
        elif self.sasl_mechanism != "GSSAPI":
            needed = _PASSWORD_KEYS
        missing = [key for key in needed if getattr(self, key) is None]
        if missing:
            raise ValueError(f"{with_what} needs {missing[0]} as well; add it")

    def _refuse(self, keys: tuple[str, ...], given_with: str, expected: str) -> None:
        given = [key for key in keys if getattr(self, key) is not None]
        if given:
            raise ValueError(
                f"{given[0]} has no effect with {given_with}; expected {expected}; change "
                f"{given_with.split(maxsplit=1)[0]} or remove {given[0]}"
            )

    def client_kwargs(self) -> ClientOptions:
        """Connection options of kafka-python's clients.

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
                _require_gssapi()
                options["sasl_kerberos_service_name"] = self.kerberos_service_name or "kafka"
            else:
                options["sasl_plain_username"] = _secret_of(self, "username_from")
                options["sasl_plain_password"] = _secret_of(self, "password_from")
        if self.protocol.endswith("SSL"):
            options["ssl_check_hostname"] = self.check_hostname
            for key in ("cafile", "certfile", "keyfile"):
                if getattr(self, key) is not None:
                    options[f"ssl_{key}"] = self._file(key)
            if self.key_password_from is not None:
                options["ssl_password"] = _secret_of(self, "key_password_from")
        return options

    def _file(self, key: str) -> str:
        path = Path(getattr(self, key)).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"cluster security.{key} is {path}, which is not a file; expected a PEM file; "
                "correct the path"
            )
        return str(path)
