"""Connection options for executors, which carry secrets and never show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

NAME_PREFIX = "redline-"
"""The default of `cluster.name_prefix`, which begins the names of clients, groups and topics."""


class ClientOptions(dict[str, Any]):
    """Connection options of kafka-python with resolved secrets; `repr` shows only their names."""

    def __repr__(self) -> str:
        return f"ClientOptions({', '.join(self)})"


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """A source of OAUTHBEARER tokens.

    Attributes:
        remedy: what to check when brokers refuse its tokens.
    """

    remedy = "check the values that cluster security.token_from or the oauth keys name"


class OneToken(TokenProvider):
    """A provider of one fixed OAUTHBEARER token.

    Args:
        token: the token.
        good_until_s: when it expires [s since the epoch]; None when unknown.
        remedy: see `TokenProvider`.
        extensions: names and values that the login sends with the token.
    """

    def __init__(
        self,
        token: str,
        good_until_s: float | None = None,
        remedy: str = TokenProvider.remedy,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._token = token
        self._extensions = dict(extensions or {})
        self.good_until_s = good_until_s
        self.remedy = remedy

    def token(self) -> str:
        """The token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """The names and values that the login sends with the token."""
        return self._extensions
