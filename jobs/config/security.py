"""How clients prove who they are and whom they trust; secrets by reference only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from jobs.config.base import ConfigModel, unexpected
from search.errors import ConfigError

REFERENCE = "env:NAME or file:PATH (a secret is never written into a file or an option itself)"


def _as_reference(value: Any) -> Any:
    if isinstance(value, str):
        kind, _, place = value.partition(":")
        if kind in ("env", "file") and place.strip():
            return value
    raise unexpected(REFERENCE)


SecretReference = Annotated[str, BeforeValidator(_as_reference)]
"""`env:NAME` or `file:PATH`: where a secret is, never the secret."""


def read_secret(reference: str, key: str) -> str:
    """The secret that `reference` points at.

    Args:
        reference: `env:NAME` or `file:PATH`; of a file, the end of line does not count.
        key: the configuration's key, for messages.

    Raises:
        ConfigError: when there is none, or when it is empty.
    """
    kind, _, place = reference.partition(":")
    if kind == "env":
        secret = os.environ.get(place, "")
        found = f"the environment variable {place} is not set or empty"
        remedy = f"set {place} before the run"
    else:
        path = Path(place).expanduser()
        found, remedy = f"the file {path} is empty", "write the secret into it"
        try:
            secret = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            secret = ""
            found = f"the file {path} cannot be read ({error.__class__.__name__})"
            remedy = "check the path and its permissions"
    if not secret:
        raise ConfigError(f"cluster {key} is {reference}, but {found}; {remedy}")
    return secret


class Security(ConfigModel):
    """Security of the connections to the brokers; file names must be valid on executors too.

    Attributes:
        protocol: as Kafka's security.protocol.
        sasl_mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        username_from, password_from: where the SASL user and password are.
        cafile: PEM file of the certificates to trust; the system's when left out.
        certfile, keyfile: PEM files of the client's own certificate and key, for mutual TLS.
        key_password_from: where the key's password is.
        check_hostname: whether the broker's certificate must name its host.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username_from: SecretReference | None = None
    password_from: SecretReference | None = None
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    key_password_from: SecretReference | None = None
    check_hostname: bool = True

    @model_validator(mode="after")
    def _complete(self) -> Security:
        sasl = ("sasl_mechanism", "username_from", "password_from")
        tls = ("cafile", "certfile", "keyfile", "key_password_from")
        if self.protocol.startswith("SASL_"):
            missing = [key for key in sasl if getattr(self, key) is None]
            if missing:
                raise ValueError(f"protocol {self.protocol} needs {missing[0]} as well; add it")
        else:
            self._refuse(sasl, "SASL_PLAINTEXT or SASL_SSL")
        if not self.protocol.endswith("SSL"):
            self._refuse(tls, "SSL or SASL_SSL")
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile belong together; add the other one")
        return self

    def _refuse(self, keys: tuple[str, ...], protocols: str) -> None:
        given = [key for key in keys if getattr(self, key) is not None]
        if given:
            raise ValueError(
                f"{given[0]} has no effect with protocol {self.protocol}; expected protocol "
                f"{protocols}; change protocol or remove {given[0]}"
            )

    def client_kwargs(self) -> dict[str, Any]:
        """Connection options of kafka-python's clients, secrets resolved: never log them.

        Raises:
            ConfigError: when a secret or a file is not there.
        """
        kwargs: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol.startswith("SASL_"):
            kwargs["sasl_mechanism"] = self.sasl_mechanism
            kwargs["sasl_plain_username"] = self._secret("username_from")
            kwargs["sasl_plain_password"] = self._secret("password_from")
        if self.protocol.endswith("SSL"):
            kwargs["ssl_check_hostname"] = self.check_hostname
            for key in ("cafile", "certfile", "keyfile"):
                if getattr(self, key) is not None:
                    kwargs[f"ssl_{key}"] = self._file(key)
            if self.key_password_from is not None:
                kwargs["ssl_password"] = self._secret("key_password_from")
        return kwargs

    def _secret(self, key: str) -> str:
        return read_secret(getattr(self, key), f"security.{key}")

    def _file(self, key: str) -> str:
        path = Path(getattr(self, key)).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"cluster security.{key} is {path}, which is no file; expected a PEM file; "
                "correct the path"
            )
        return str(path)
