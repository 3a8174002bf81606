"""How exporters are opened where they are closed: certificates to trust, a login."""

from __future__ import annotations

import base64
import http.client
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from metrics.common.errors import ConfigError
from metrics.sources.certificates import CertifiedServer, error_text, is_plaintext_error

_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)
_CUT = (BrokenPipeError, ConnectionResetError, http.client.BadStatusLine, ssl.SSLEOFError)
"""How we hear that the other end hung up: as we write, as we read, or between TLS's messages."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class HttpAccess:
    """What all exporters of one kind ask for.

    Attributes:
        section: of the cluster's file that says so, for messages.
        is_tls: whether they speak HTTPS.
        cafile: PEM file of the certificates to trust; those that the system trusts when None.
        certfile, keyfile: PEM files of our own certificate and its key, where they want one.
        check_hostname: whether a certificate must name the host that it is reached by.
        login: value of the header Authorization, asked for anew for each scrape, as tokens are
            renewed; None where they want none. It may raise `ConfigError`.
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
        """Of their addresses."""
        return "https" if self.is_tls else "http"

    @cached_property
    def connector(self) -> Callable[[str, int], http.client.HTTPConnection]:
        """What makes a connection, not open yet, to a host and a port; all share its context.

        Raises:
            ConfigError: a file holds no certificate or key that can be used.
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
                # OpenSSL would ask the terminal for the password of a key that has one.
                made.load_cert_chain(str(own), key, password=str)
            except (ssl.SSLError, OSError) as error:
                wanted = "of a certificate, and in keyfile its key without a password"
                raise self._unusable("certfile", wanted, error) from error
        return made

    def headers(self) -> dict[str, str]:
        """What a request needs to be let in.

        Raises:
            ConfigError: a secret is not there.
        """
        return {} if self.login is None else {"Authorization": self.login()}

    def explain_refusal(self, error: Exception, *, has_answered: bool) -> str | None:
        """What to do where an exporter is there and closed to us; None of any other error.

        Args:
            has_answered: whether it has let us in before.
        """
        is_cut = isinstance(error, _CUT)
        if is_cut and has_answered:
            return None  # it ended, or starts again
        if isinstance(error, ssl.SSLError):
            return self._why_no_tls(error)
        if not is_cut:
            return None
        if self.is_tls:  # it may refuse us and hang up before that is heard
            return f"it ends the connection after TLS began ({_brief(error)}); {self._own}"
        return (
            f"it takes connections and does not answer plain HTTP ({_brief(error)}); expected an "
            f"exporter; check the port, and set {self.section}.tls: true where it speaks HTTPS"
        )

    def _why_no_tls(self, error: ssl.SSLError) -> str:
        server = CertifiedServer("exporter", self.section, f"{self.section}.endpoints")
        if isinstance(error, ssl.SSLCertVerificationError):
            return server.explain_server_certificate(error)
        if is_plaintext_error(error):
            return (
                "what answers there speaks no TLS; expected HTTPS; let the exporter speak it, or "
                f"correct the port or {self.section}.tls"
            )
        told = server.explain_client_certificate(error, is_given=self.certfile is not None)
        return told or f"TLS fails ({error_text(error)}); {self._own}"

    @property
    def _own(self) -> str:
        if self.certfile is not None:
            return (
                "expected an exporter that takes our certificate; check "
                f"{self.section}.certfile and keyfile"
            )
        return (
            "expected an exporter that lets us in; where it wants a certificate of ours, name it "
            f"in {self.section}.certfile and keyfile"
        )

    def explain_status(self, status: int, wanted: str | None, body: str) -> str | None:
        """The same of the status of an answer.

        Args:
            wanted: its header WWW-Authenticate.
            body: its text.
        """
        keys = f"{self.section}.username_from and password_from, or token_from"
        if status == http.client.UNAUTHORIZED and self.login is None:
            scheme = (wanted or "").partition(" ")[0][:40]
            how = f" ({scheme})" if scheme.isalnum() else ""
            return (
                f"it wants a login{how}, HTTP 401; expected {keys}; add them to the cluster's file"
            )
        if status == http.client.UNAUTHORIZED:
            return (
                "it refuses the login, HTTP 401; expected one that it knows and that is valid "
                f"now; check what {keys} point at"
            )
        if status == http.client.FORBIDDEN:
            who = "whoever has no login" if self.login is None else "this login"
            return (
                f"it does not show its metrics to {who}, HTTP 403; expected one that may read "
                f"them; give it that right at the exporter, or change what {keys} point at"
            )
        if status == http.client.BAD_REQUEST and not self.is_tls and "HTTPS" in body:
            return (  # as every server in Go says it, node_exporter among them
                f"it speaks HTTPS and was asked by plain HTTP; set {self.section}.tls: true"
            )
        return None

    def _unusable(self, key: str, wanted: str, error: OSError) -> ConfigError:
        why = getattr(error, "reason", None) or error.strerror or error
        return ConfigError(
            f"cluster {self.section}.{key} is {getattr(self, key)}, which cannot be used: {why}; "
            f"expected a PEM file {wanted}; correct the path"
        )


def basic(username: str, password: str, section: str) -> str:
    """The header of a user and a password (RFC 7617).

    Raises:
        ConfigError: there is no such header for them.
    """
    if ":" in username or _CONTROL.search(username + password):
        raise ConfigError(
            f"what cluster {section}.username_from and password_from point at cannot be sent by "
            "HTTP; expected a user without a colon, and both without control characters and line "
            "ends; correct them"
        )
    told = base64.b64encode(f"{username}:{password}".encode("utf-8", errors="surrogateescape"))
    return f"Basic {told.decode('ascii')}"


def bearer(token: str, section: str) -> str:
    """The header of a token (RFC 6750).

    Raises:
        ConfigError: there is no such header for it.
    """
    if _TOKEN.fullmatch(token) is None:
        raise ConfigError(
            f"what cluster {section}.token_from points at is no token; expected one word of "
            "ASCII characters; correct it"
        )
    return f"Bearer {token}"


def _expanded(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser())


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
