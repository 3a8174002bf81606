"""Connection options for executors. The options can contain secrets, which `repr` does not show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

NAME_PREFIX = "redline-"
"""Default of `cluster.name_prefix`: the prefix of client ids, group ids and topic names."""


class ClientOptions(dict[str, Any]):
    """Connection options of kafka-python with resolved secrets. The `repr` of a `ClientOptions`
    shows only the names of the options, and no secrets.

    The option `client_id` is a `ClientIds`, which gives each connection its client id.
    """

    def __repr__(self) -> str:
        return f"ClientOptions({', '.join(self)})"


@dataclass(frozen=True)
class ClientIds:
    """The client ids of the connections of a run.

    Attributes:
        given: client id for all connections; empty if each connection has its own name as client
            id.
        has_suffix: whether the name of the connection is appended to the given client id.
    """

    given: str = ""
    has_suffix: bool = False

    def of(self, name: str) -> str:
        """The client id of the connection with this name."""
        return (f"{self.given}-{name}" if self.has_suffix else self.given) or name

    def may_be(self, client_id: str, prefix: str) -> bool:
        """Whether this client id can be the id of a connection whose name begins with `prefix`."""
        if self.given and not self.has_suffix:
            return client_id == self.given
        return client_id.startswith(self.of(prefix))


def join_address(host: str, port: int) -> str:
    """The address `host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def client_id_of(name: str, options: Mapping[str, Any]) -> str:
    """The client id of the connection with this name, according to the connection options."""
    ids = options.get("client_id") or ClientIds()
    assert isinstance(ids, ClientIds), "the option client_id is not a ClientIds"
    return ids.of(name)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """A source of OAUTHBEARER tokens.

    Attributes:
        good_until_s: expiry of the last token [s since the epoch]; None if it is unknown.
        remedy: advice for users if brokers refuse the tokens.
    """

    good_until_s: float | None = None
    remedy = "check the values to which security.token_from or the oauth keys refer"

    def __reduce__(self) -> tuple[type[OneToken], tuple[object, ...]]:
        # An executor gets only a token, without the source and its credentials.
        token = self.token()
        return OneToken, (token, self.good_until_s, self.remedy, self.extensions())


class OneToken(TokenProvider):
    """Provider of a single OAUTHBEARER token, which the driver renews.

    Args:
        token: the first token.
        good_until_s, remedy: see `TokenProvider`.
        extensions: SASL extensions that the login sends with the token: name → value.
    """

    def __init__(
        self,
        token: str,
        good_until_s: float | None = None,
        remedy: str = TokenProvider.remedy,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self.renew(token, good_until_s)
        self._extensions = dict(extensions or {})
        self.remedy = remedy

    def renew(self, token: str, good_until_s: float | None) -> None:
        """Replace the token for all later logins."""
        self._token = token
        self.good_until_s = good_until_s

    def token(self) -> str:
        """The current token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """The SASL extensions that the login sends with the token: name → value."""
        return self._extensions
