"""Connection options for executors, which carry secrets and never show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

NAME_PREFIX = "redline-"
"""The default of `cluster.name_prefix`, which begins the names of clients, groups and topics."""


class ClientOptions(dict[str, Any]):
    """Connection options of kafka-python with resolved secrets; `repr` shows only their names.

    `client_id` has the `ClientIds` of all connections.
    """

    def __repr__(self) -> str:
        return f"ClientOptions({', '.join(self)})"


@dataclass(frozen=True)
class ClientIds:
    """The client ids by which brokers know the connections of a run.

    Attributes:
        given: the id of all connections; empty where each has its own name.
        has_suffix: whether the connection's own name follows the given id.
    """

    given: str = ""
    has_suffix: bool = False

    def of(self, name: str) -> str:
        """The client id of the connection with this name."""
        return (f"{self.given}-{name}" if self.has_suffix else self.given) or name

    def may_be(self, client_id: str, prefix: str) -> bool:
        """Whether a connection whose name begins with `prefix` may have this client id."""
        if self.given and not self.has_suffix:
            return client_id == self.given
        return client_id.startswith(self.of(prefix))


def join_address(host: str, port: int) -> str:
    """`host:port`; an IPv6 host stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def client_id_of(name: str, options: Mapping[str, Any]) -> str:
    """The client id of the connection with this name, by the connection options."""
    ids = options.get("client_id") or ClientIds()
    assert isinstance(ids, ClientIds), "libraries get the id itself"
    return ids.of(name)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """A source of OAUTHBEARER tokens.

    Attributes:
        good_until_s: end of the last token [s since the epoch]; None where it is not known.
        remedy: what to check when brokers refuse its tokens.
    """

    good_until_s: float | None = None
    remedy = "check the values that cluster security.token_from or the oauth keys name"

    def __reduce__(self) -> tuple[type[OneToken], tuple[object, ...]]:
        # An executor gets the token alone, without the source and its credentials.
        token = self.token()
        return OneToken, (token, self.good_until_s, self.remedy, self.extensions())


class OneToken(TokenProvider):
    """A provider of the last OAUTHBEARER token that the driver has sent.

    Args:
        token: the token.
        good_until_s, remedy: see `TokenProvider`.
        extensions: names and values that the login sends with the token.
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
        """Use another token for all logins from now on."""
        self._token = token
        self.good_until_s = good_until_s

    def token(self) -> str:
        """The token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """The names and values that the login sends with the token."""
        return self._extensions
