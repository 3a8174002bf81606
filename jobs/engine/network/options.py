"""Connection options on their way to executors: what they show, and what they carry."""

from __future__ import annotations

from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider


class ClientOptions(dict[str, Any]):
    """Connection options of kafka-python, secrets resolved; shows their names only."""

    def __repr__(self) -> str:
        return f"ClientOptions({', '.join(self)})"


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives OAUTHBEARER tokens.

    Attributes:
        remedy: what to check where brokers refuse its tokens.
    """

    remedy = "check what cluster security.token_from, or the oauth keys point at"


class OneToken(TokenProvider):
    """An OAUTHBEARER token as it is.

    Args:
        token: the token.
        good_until_s: its end [s since the epoch], where that is known.
        remedy: as of `TokenProvider`.
    """

    def __init__(
        self,
        token: str,
        good_until_s: float | None = None,
        remedy: str = TokenProvider.remedy,
    ) -> None:
        self._token = token
        self.good_until_s = good_until_s
        self.remedy = remedy

    def token(self) -> str:
        """The token."""
        return self._token
