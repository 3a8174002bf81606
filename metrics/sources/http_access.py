"""Access to exporters over HTTP: certificates, a login, and explanations of refusals."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from metrics.common.errors import ConfigError
from metrics.sources.certificates import CertifiedServer, error_text, is_plaintext_error
from metrics.sources.exposition import brief
from metrics.sources.http_client import (
    HTTP_ERRORS,
    HttpAnswer,
    HttpClient,
    basic_login,
    explain_http_error,
)

TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)
_CUT = (BrokenPipeError, ConnectionResetError, http.client.BadStatusLine, ssl.SSLEOFError)
"""Errors of a connection that the server closed: at a write, at a read, or within TLS."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ScrapeError(Exception):
    """A server did not answer with metrics, for the reason in the text."""


class ClosedError(ScrapeError):
    """A server refuses access; the text has the reason and the remedy."""


@dataclass(frozen=True)
class HttpAccess:
    """The login and the TLS settings for all exporters of one kind.

    Attributes:
        section: section of the cluster's file that configures them, for messages.
        is_tls: whether they speak HTTPS.
        cafile: PEM file of the certificates to trust; the system's authorities when None.
        certfile, keyfile: PEM files of the client's certificate and its key, for mutual TLS.
        check_hostname: whether a certificate must name the host of its address.
        login: returns the value of the header Authorization; called for each scrape, as tokens
            are renewed. None for exporters without a login. It may raise `ConfigError`.
    """

    section: str
    is_tls: bool = False
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    check_hostname: bool = True
    login: Callable[[], str] | None = field(default=None, repr=False)

    @property
    def scheme(self) -> str:
        """The scheme of the exporters' URLs."""
        return "https" if self.is_tls else "http"

    @cached_property
    def connector(self) -> Callable[[str, int], http.client.HTTPConnection]:
        """A factory of connections to a host and a port, which share one TLS context.

        Raises:
            ConfigError: a file has no usable certificate or key.
        """
        if not self.is_tls:
            return http.client.HTTPConnection
        return partial(http.client.HTTPSConnection, context=self._context())

    def _context(self) -> ssl.SSLContext:
        try:
            made = ssl.create_default_context(cafile=_expanded(self.cafile))
            made.check_hostname = self.check_hostname
        except (ssl.SSLError, OSError) as error:
            raise self._unusable("cafile", "of certificates", error) from error
        if self.certfile is not None:
            own, key = _expanded(self.certfile), _expanded(self.keyfile)
            try:
                # Without a password function OpenSSL would read the password from the terminal.
                made.load_cert_chain(str(own), key, password=str)
            except (ssl.SSLError, OSError) as error:
                wanted = "of a certificate, and in keyfile its key without a password"
                raise self._unusable("certfile", wanted, error) from error
        return made

    def request(
        self,
        client: HttpClient,
        target: str,
        headers: Mapping[str, str],
        timeout_s: float,
        form: str | None = None,
        *,
        has_answered: bool,
    ) -> HttpAnswer:
        """Send a request with the login; see `HttpClient.request`.

        Args:
            has_answered: whether the server has answered this client before.

        Raises:
            ScrapeError: there is no usable answer.
        """
        try:
            login = {} if self.login is None else {"Authorization": self.login()}
            return client.request(target, {**headers, **login}, timeout_s, form)
        except ConfigError as error:  # a secret is missing, or was deleted
            raise ClosedError(str(error)) from error
        except HTTP_ERRORS as error:
            explanation = self.explain_refusal(error, has_answered=has_answered)
            if explanation is not None:
                raise ClosedError(explanation) from error
            raise ScrapeError(explain_http_error(error, timeout_s)) from error

    def explain_refusal(self, error: Exception, *, has_answered: bool) -> str | None:
        """The reason and the remedy when an exporter refuses access; None for any other error.

        Args:
            has_answered: whether it has answered this client before.
        """
        is_cut = isinstance(error, _CUT)
        if is_cut and has_answered:
            return None  # the exporter ended or restarts
        if isinstance(error, ssl.SSLError):
            return self._why_no_tls(error)
        if not is_cut:
            return None
        if self.is_tls:  # a refusal may be lost when the server closes the connection at once
            return f"it ends the connection after TLS began ({_brief(error)}); {self._own}"
        return (
            f"it accepts connections and does not answer plain HTTP ({_brief(error)}); expected an "
            f"exporter; check the port, and set {self.section}.tls: true if it speaks HTTPS"
        )

    def _why_no_tls(self, error: ssl.SSLError) -> str:
        server = CertifiedServer("exporter", self.section, f"{self.section}.endpoints")
        if isinstance(error, ssl.SSLCertVerificationError):
            return server.explain_server_certificate(error)
        if is_plaintext_error(error):
            return (
                "the server there speaks no TLS; expected HTTPS; let the exporter speak it, or "
                f"correct the port or {self.section}.tls"
            )
        explanation = server.explain_client_certificate(error, is_given=self.certfile is not None)
        return explanation or f"TLS fails ({error_text(error)}); {self._own}"

    @property
    def _own(self) -> str:
        if self.certfile is not None:
            return (
                "expected an exporter that accepts the client's certificate; check "
                f"{self.section}.certfile and keyfile"
            )
        return (
            "expected an exporter that accepts this client; if it requires a client's "
            f"certificate, name one in {self.section}.certfile and keyfile"
        )

    def explain_status(self, status: int, challenge: str | None, body: str) -> str | None:
        """The reason and the remedy when an HTTP status refuses access; None for any other.

        Args:
            challenge: header WWW-Authenticate of the answer.
            body: text of the answer.
        """
        keys = f"{self.section}.username_from and password_from, or token_from"
        if status == http.client.UNAUTHORIZED and self.login is None:
            scheme = (challenge or "").partition(" ")[0][:40]
            how = f" ({scheme})" if scheme.isalnum() else ""
            return (
                f"it requires a login{how}, HTTP 401; expected {keys}; add them to the cluster's "
                "file"
            )
        if status == http.client.UNAUTHORIZED:
            return (
                "it refuses the login, HTTP 401; expected one that is known to it and valid now; "
                f"check the values that {keys} point at"
            )
        if status == http.client.FORBIDDEN:
            who = "clients without a login" if self.login is None else "this login"
            return (
                f"it does not show its metrics to {who}, HTTP 403; expected a login that may read "
                f"them; grant that right at the exporter, or change the values that {keys} point at"
            )
        if status == http.client.BAD_REQUEST and not self.is_tls and "HTTPS" in body:
            return (  # the answer of servers in Go, such as node_exporter
                f"it speaks HTTPS and the request was plain HTTP; set {self.section}.tls: true"
            )
        return None

    def _unusable(self, key: str, wanted: str, error: OSError) -> ConfigError:
        why = getattr(error, "reason", None) or error.strerror or error
        return ConfigError(
            f"cluster {self.section}.{key} is {getattr(self, key)}, which cannot be used: {why}; "
            f"expected a PEM file {wanted}; correct the path"
        )


def basic(username: str, password: str, section: str) -> str:
    """The value of the header Authorization for a user and a password (RFC 7617).

    Raises:
        ConfigError: the header cannot contain them.
    """
    if ":" in username or _CONTROL.search(username + password):
        raise ConfigError(
            f"the values of cluster {section}.username_from and password_from cannot be sent by "
            "HTTP; expected a user without a colon, and both without control characters and line "
            "ends; correct them"
        )
    return basic_login(f"{username}:{password}")


def bearer(token: str, section: str) -> str:
    """The value of the header Authorization for a token (RFC 6750).

    Raises:
        ConfigError: the header cannot contain it.
    """
    if TOKEN.fullmatch(token) is None:
        raise ConfigError(
            f"the value of cluster {section}.token_from is not a token; expected one word of ASCII "
            "characters; correct it"
        )
    return f"Bearer {token}"


def _expanded(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser())


def _brief(error: Exception) -> str:
    return brief(str(error), 100) or type(error).__name__
