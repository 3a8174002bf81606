"""Where OAUTHBEARER tokens come from: a secret that somebody renews, or an OAuth server.

A provider stays on the driver. What goes to an executor is one token, fetched when the
trial's plan is sent, so executors need neither the client's secret nor a way to the server.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from jobs.engine.network.options import OneToken
from search.errors import ConfigError

FETCH_TIMEOUT_S = 10.0
RENEW_SHARE = 0.8
"""Share of a token's life after which it is not used for new connections."""


class ReferencedToken(AbstractTokenProvider):  # type: ignore[misc]
    """The token that a reference points at, read anew for every connection and every trial."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def token(self) -> str:
        """The token of now.

        Raises:
            ConfigError: there is none any more.
        """
        return self._read()

    def __reduce__(self) -> tuple[type[OneToken], tuple[str]]:
        return OneToken, (self.token(),)


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens of an OAuth server for a client of its own (RFC 6749, section 4.4).

    Args:
        url: the token endpoint.
        client_id, client_secret: who asks.
        scope: what for; the server's default when None.
        clock: monotonic [s].
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        scope: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._client = (client_id, client_secret)
        self._scope = scope
        self._clock = clock
        self._token = ""
        self._good_until_s = float("-inf")

    def token(self) -> str:
        """A token that lives on for a while; the last one while it is young enough.

        Raises:
            ConfigError: the server gives none.
        """
        if self._clock() >= self._good_until_s:
            asked_s = self._clock()
            answer = self._fetch()
            token = answer.get("access_token")
            if not isinstance(token, str) or not token:
                raise self._problem("its answer has no access_token")
            lives_s = answer.get("expires_in")
            share_s = RENEW_SHARE * lives_s if isinstance(lives_s, int | float) else 0.0
            self._token, self._good_until_s = token, asked_s + share_s
        return self._token

    def __reduce__(self) -> tuple[type[OneToken], tuple[str]]:
        return OneToken, (self.token(),)

    def _fetch(self) -> dict[str, Any]:
        form = {"grant_type": "client_credentials"}
        if self._scope:
            form["scope"] = self._scope
        quoted = ":".join(map(urllib.parse.quote_plus, self._client))
        request = urllib.request.Request(
            self._url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {b64encode(quoted.encode()).decode()}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=FETCH_TIMEOUT_S) as answer:
                parsed = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            error.close()
            raise self._problem(f"it answers {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise self._problem(getattr(error, "reason", None) or error) from error
        if not isinstance(parsed, dict):
            raise self._problem("its answer is no JSON object")
        return parsed

    def _problem(self, found: object) -> ConfigError:
        return ConfigError(
            f"the token server cluster security.oauth_token_url names, {self._url}, gives no "
            f"token: {found}; expected an access_token for the client; check the address, "
            "oauth_client_id_from, oauth_client_secret_from and oauth_scope"
        )
