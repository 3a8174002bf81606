"""Connection options on their way to executors: what they show, and what they carry."""

from __future__ import annotations

from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider


class ClientOptions(dict[str, Any]):
    """Connection options of kafka-python, secrets resolved; shows their names only."""

    def __repr__(self) -> str:
        return f"ClientOptions({', '.join(self)})"


class OneToken(AbstractTokenProvider):  # type: ignore[misc]
    """An OAUTHBEARER token as it is."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        """The token."""
        return self._token
