"""The sources of OAUTHBEARER tokens: a variable or file, an OAuth server, or AWS.

A token provider stays on the driver. An executor receives a token with the plan of a load. During
the load the executor receives each new token over the control channel before the previous token
expires. Executors therefore need neither the client's secret nor a connection to the token server.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import time
import urllib.parse
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from jobs.engine.network.options import TokenProvider
from metrics.common.errors import ConfigError
from metrics.sources.http_access import (
    HTTP_ERRORS,
    TOKEN,
    HttpClient,
    basic_login,
    explain_http_error,
    parsed_json,
    proxied,
)

FETCH_TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 2**20
RENEW_SHARE = 0.8
"""Share of a token's lifetime after which new connections use a new token."""
RETRY_S = 5.0
"""Time until the next attempt to fetch a token, if an attempt failed and the last token is valid
[s]."""
ASSUMED_S = 60.0
"""Assumed lifetime of a token if neither the source nor the token states when the token expires
[s].
"""


def end_of(token: str) -> float | None:
    """The expiration time of a JSON Web Token (RFC 7519) [s since the epoch]; None if the token
    states none.
    """
    claims = token.split(".")[1:2]
    try:
        found = parsed_json(base64.urlsafe_b64decode("".join(claims) + "===").decode())
    except ValueError:
        return None
    return _seconds(found.get("exp")) or None if isinstance(found, dict) else None


class ReferencedToken(TokenProvider):
    """A token in a variable or file; the token is read again for every login and during a load."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def token(self) -> str:
        """Read the current token.

        Raises:
            ConfigError: the environment variable or the file no longer exists.
        """
        token = self._read()
        self.good_until_s = end_of(token)
        return token


class RenewedToken(TokenProvider):
    """A source of tokens that fetches a new token once most of the last token's lifetime is over.

    Args:
        clock: monotonic time [s].
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._token = ""
        self._renew_s = self._end_s = float("-inf")

    @abstractmethod
    def _fetch(self) -> tuple[str, float]:
        """Fetch a token; return the token and its lifetime [s]; the lifetime is 0 if it is unknown.

        Raises:
            ConfigError: the source gives no token.
        """

    def token(self) -> str:
        """Return the last token, or a new token if most of the last token's lifetime is over.

        Raises:
            ConfigError: the source gives no token, and the last token has expired.
        """
        asked_s, asked_wall_s = self._clock(), time.time()
        if asked_s < self._renew_s:
            return self._token
        try:
            self._token, lifetime_s = self._fetch()
        except ConfigError:
            if asked_s >= self._end_s:
                raise
            self._renew_s = min(self._clock() + RETRY_S, self._end_s)
            return self._token
        lifetime_s = lifetime_s or (end_of(self._token) or 0.0) - asked_wall_s
        lifetime_s = lifetime_s if lifetime_s > 0 else ASSUMED_S
        self._renew_s, self._end_s = asked_s + RENEW_SHARE * lifetime_s, asked_s + lifetime_s
        self.good_until_s = asked_wall_s + lifetime_s
        return self._token


class ClientCredentials(RenewedToken):
    """Tokens of an OAuth server by the client credentials grant (RFC 6749, section 4.4).

    Args:
        url: the token endpoint.
        client_id, client_secret: the credentials of the client.
        scope: scope of the token; None for the server's default.
        clock: monotonic time [s].
        extensions: names and values that a login sends with the token.
        is_encoded: whether id and secret are URL-encoded in the header. RFC 6749 requires the
            encoding, but some servers do not decode the header.
        authority: the server's authorities as PEM; None for the system's authorities.

    Raises:
        ConfigError: the authority is not a certificate.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        scope: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        extensions: Mapping[str, str] | None = None,
        is_encoded: bool = True,
        authority: str | None = None,
    ) -> None:
        super().__init__(clock)
        self._url = url
        self._client = (client_id, client_secret)
        self._scope = scope
        self._extensions = dict(extensions or {})
        self._is_encoded = is_encoded
        self._tls = _trusting(authority) if authority is not None else None

    def extensions(self) -> dict[str, str]:
        """The names and values that a login sends with the token."""
        return self._extensions

    def _fetch(self) -> tuple[str, float]:
        answer = self._answer()
        token, lifetime_s = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str) or not token:
            raise self._problem("its answer has no access_token")
        if TOKEN.fullmatch(token) is None:
            raise self._problem("its access_token has spaces or non-ASCII characters")
        return token, _seconds(lifetime_s)

    def _answer(self) -> dict[str, Any]:
        form = {"grant_type": "client_credentials"}
        if self._scope:
            form["scope"] = self._scope
        names = map(urllib.parse.quote_plus, self._client) if self._is_encoded else self._client
        quoted = ":".join(names)
        server = urllib.parse.urlsplit(self._url)
        client = HttpClient(
            server.hostname or "",
            server.port or (80 if server.scheme == "http" else 443),
            proxied(self._tls, server.scheme),
            _ANSWER_BYTES_MAX,
        )
        headers = {
            "Authorization": basic_login(quoted),
            "Content-Type": "application/x-www-form-urlencoded",
            "Connection": "close",
        }
        target = urllib.parse.urlunsplit(("", "", server.path or "/", server.query, ""))
        try:
            answer = client.request(target, headers, FETCH_TIMEOUT_S, urllib.parse.urlencode(form))
            if answer.status != http.client.OK:
                raise self._problem(
                    f"it answers {answer.status} {answer.reason}{answer.redirection}"
                )
            parsed = parsed_json(answer.text)
        except HTTP_ERRORS as error:
            raise self._problem(explain_http_error(error, FETCH_TIMEOUT_S)) from error
        except ValueError as error:
            raise self._problem(error) from error
        finally:
            client.close()
        if not isinstance(parsed, dict):
            raise self._problem("its answer is not a JSON object")
        return parsed

    def _problem(self, found: object) -> ConfigError:
        return ConfigError(
            f"the token server {self._url} (cluster security.oauth_token_url) gives no token: "
            f"{found}; expected an access_token for the client; check the address, "
            "oauth_client_id_from, oauth_client_secret_from and oauth_scope, and oauth_cafile if "
            "the system does not trust the server's authority"
        )


def _trusting(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            "cluster security.oauth_cafile has no usable certificate "
            f"({getattr(error, 'reason', None) or error}); expected the authority of the token "
            "server; correct the path"
        ) from error


def _seconds(given: object) -> float:
    """A lifetime [s] from a number, or from a text that some servers send; 0 for other values."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return 0.0
    try:
        found = float(given)
    except (ValueError, OverflowError):
        return 0.0
    return found if 0.0 <= found < float("inf") else 0.0


MSK_TOKEN_S = 900.0
"""Fixed lifetime of a token from AWS's signer [s]."""


class MskTokens(RenewedToken):
    """Tokens of Amazon MSK's IAM, signed on the driver with AWS credentials.

    The credentials come from AWS's default credential chain, which may connect to AWS, for example
    for a role of the host. Signing requires no connection. The AWS credential chain is queried
    once; afterwards the credentials of the chain renew themselves.

    Args:
        region: region of the cluster.

    Raises:
        ConfigError: the signer is not installed, or the chain has no credentials.
    """

    remedy = (
        "check cluster security.aws_region; check that the policy of these AWS credentials allows "
        "kafka-cluster:Connect on the cluster"
    )

    def __init__(self, region: str) -> None:
        super().__init__(time.monotonic)
        self._region = region
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
            from botocore.credentials import CredentialProvider
            from botocore.exceptions import BotoCoreError
            from botocore.session import Session
        except ImportError:
            raise ConfigError(
                "cluster security.sasl_mechanism is AWS_MSK_IAM, and AWS's signer is not installed "
                "here; expected the extra msk on the driver; pip install 'kafka-redline[msk]'"
            ) from None
        self._signer, self._errors = MSKAuthTokenProvider, (BotoCoreError, ValueError)
        credentials = self._ask(Session().get_credentials)
        if credentials is None:
            raise self._problem("no credentials found")
        self._chain = type("Chain", (CredentialProvider,), {"load": lambda _self: credentials})()

    def _fetch(self) -> tuple[str, float]:
        token, _end_ms = self._ask(
            lambda: self._signer.generate_auth_token_from_credentials_provider(
                self._region, self._chain
            )
        )
        return token, MSK_TOKEN_S

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._errors as error:
            raise self._problem(" ".join(str(error).split())) from error

    @staticmethod
    def _problem(found: str) -> ConfigError:
        return ConfigError(
            "cluster security.sasl_mechanism is AWS_MSK_IAM, and AWS's default credential chain "
            f"fails: {found}; expected credentials on the driver; set AWS_PROFILE, set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the host a role"
        )
