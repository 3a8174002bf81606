"""HTTP requests to exporters, with certificates and a login. The module also explains why a server
refuses a request.

The duration of an exchange and the length of an answer are limited. Redirections are not followed,
because a request may contain a login. No compression is requested.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from metrics.common.errors import ConfigError
from metrics.sources.exposition import brief

# Codes from OpenSSL's x509_vfy.h. Python's ssl has no names for them.
_NOT_YET_VALID, _EXPIRED = 9, 10
_WRONG_HOST, _WRONG_ADDRESS = 62, 64
_UNTRUSTED = (2, 18, 19, 20, 21)

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


@dataclass(frozen=True)
class CertifiedServer:
    """A kind of server, and the place of its TLS settings in the cluster's file.

    Attributes:
        noun: word for this kind of server, such as `broker`.
        section: name of the section that contains the TLS settings in the cluster's file, such as
            `security`.
        addresses: name of the setting with the server's address, such as `advertised.listeners`.
    """

    noun: str
    section: str
    addresses: str

    def explain_server_certificate(self, error: ssl.SSLCertVerificationError) -> str:
        """A clause with the reason why this client refuses the server's certificate, and with the
        remedy.
        """
        code = error.verify_code
        if code in (_WRONG_HOST, _WRONG_ADDRESS):
            return (
                f"its certificate is for another host ({error.verify_message.rstrip('.')}); "
                f"expected a certificate for the host of its address; correct {self.addresses} or "
                f"the certificate (cluster {self.section}.check_hostname=false accepts any host)"
            )
        if code == _EXPIRED:
            return (
                "its certificate has expired; expected a valid certificate; renew the "
                f"{self.noun}'s certificate"
            )
        if code == _NOT_YET_VALID:
            return (
                f"its certificate is not valid yet; check the clocks of the {self.noun} and of "
                "this host"
            )
        if code in _UNTRUSTED:
            return (
                f"its certificate is not trusted ({error.verify_message}); expected a certificate "
                f"signed by an authority in cluster {self.section}.cafile, or without this key by "
                "an authority that the system trusts; set cafile to the authority's PEM file"
            )
        return f"its certificate is refused ({error.verify_message}); check the certificate"

    def explain_client_certificate(self, error: ssl.SSLError, *, is_given: bool) -> str | None:
        """A clause with the remedy if the server refuses or requires a client's certificate, or
        None for any other error.

        Args:
            error: the error of the connection.
            is_given: whether the client has a certificate.
        """
        reason = error.reason or ""
        if "CERTIFICATE" not in reason and "UNKNOWN_CA" not in reason:
            return None
        what = "refuses the client's certificate" if is_given else "requires a client's certificate"
        return (
            f"it {what} ({error_text(error)}); expected a certificate that the server trusts; "
            f"check cluster {self.section}.certfile and {self.section}.keyfile"
        )


def unusable_file(key: str, path: str, why: str, wanted: str) -> ConfigError:
    """The error for an unusable file whose path is in the cluster's TLS settings.

    Args:
        key: key of the setting.
        path: path of the file.
        why: clause with the reason.
        wanted: phrase that follows `PEM file` in the message, such as `of certificates`.
    """
    return ConfigError(
        f"cluster {key} is {path}, which cannot be used: {why}; expected a PEM file {wanted}; "
        "correct the path"
    )


def is_plaintext_error(error: ssl.SSLError) -> bool:
    """Whether the error of a connection shows that the server does not use TLS."""
    return error.reason in _NO_TLS


def error_text(error: ssl.SSLError) -> str:
    """The reason of an OpenSSL error, in lower case."""
    return (error.reason or str(error)).lower().replace("_", " ")


BODY_BYTES_MAX = 32 * 2**20
"""Longest accepted answer [B]. The page of a broker with 3,000 partitions and all beans has about
5 MB."""
_HEAD_BYTES_MAX = 256 * 1024
_READ_BYTES = 64 * 1024
_BRIEF = 100

HTTP_ERRORS = (OSError, http.client.HTTPException)
"""Errors that `HttpClient.request` raises."""


_CLOSED = (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError)
"""Errors of an idle connection that the server may have closed."""


class UnusableAnswerError(http.client.HTTPException):
    """An answer that is too long, or that violates the protocol. The text has the reason."""


class _Stream(io.RawIOBase):
    """The bytes of one answer. The stream has a deadline and a maximum length."""

    def __init__(self, sock: Any, raw: io.RawIOBase, until_s: float) -> None:
        self._sock, self._raw, self._until_s = sock, raw, until_s
        self.left = _HEAD_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        count = self._raw.readinto(buffer)
        self.left -= count or 0
        if self.left < 0:
            raise UnusableAnswerError("its header or framing is longer than HTTP allows")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *args: Any, until_s: float, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._stream = _Stream(sock, self.fp.detach(), until_s)
        self.fp = io.BufferedReader(self._stream, _READ_BYTES)

    def body(self, most: int) -> bytearray:
        """The whole body of the answer.

        Raises:
            HTTPException: the body is longer than `most` [B], cut off, or malformed.
        """
        if (self.length or 0) > most:
            raise UnusableAnswerError(
                f"the answer announces {self.length} bytes; expected at most {most}"
            )
        self._stream.left += 2 * most  # a body in chunks also contains the sizes of the chunks
        found = bytearray()
        while chunk := self.read(_READ_BYTES):
            found += chunk
            if len(found) > most:
                raise UnusableAnswerError(f"the answer is longer than {most} bytes")
        if self.length:
            raise http.client.IncompleteRead(b"", self.length)
        return found


@dataclass(frozen=True)
class HttpAnswer:
    """An answer of a server.

    Attributes:
        status, reason: status code and reason in the first line.
        challenge: header WWW-Authenticate, or None.
        redirection: clause with the target of a redirection, or an empty text if the answer is no
            redirection. The target has no query, because a query may contain a secret.
        text: body, decoded as UTF-8. Each malformed character is replaced.
    """

    status: int
    reason: str
    challenge: str | None
    redirection: str
    text: str


class HttpClient:
    """Sends requests to one server over a persistent connection. A client is not thread-safe.

    Args:
        host, port: host and port of the server.
        connect: returns a connection to a host and a port.
        most: longest accepted body [B].
    """

    def __init__(
        self,
        host: str,
        port: int,
        connect: Callable[[str, int], http.client.HTTPConnection],
        most: int = BODY_BYTES_MAX,
    ) -> None:
        self._make = partial(connect, host.strip("[]"), port)
        self._most = most
        self._connection: http.client.HTTPConnection | None = None
        self.has_answered = False

    def request(
        self, target: str, headers: Mapping[str, str], timeout_s: float, form: str | None = None
    ) -> HttpAnswer:
        """Send a GET request, or a POST request with a form, and return the answer.

        Args:
            target: path and query.
            headers: headers of the request.
            timeout_s: longest duration of the exchange [s]. If the client must connect first, the
                exchange includes the time to connect.
            form: form of a POST request, or None for a GET request.

        Raises:
            OSError, HTTPException: there is no usable answer. The next call connects again.
        """
        was_kept = self._connection is not None
        try:
            return self._exchange(target, headers, timeout_s, form)
        except BaseException as error:
            self.close()
            # Servers close idle connections, so only the error of a new connection counts.
            if not was_kept or not isinstance(error, _CLOSED):
                raise
        return self.request(target, headers, timeout_s, form)

    def _exchange(
        self, target: str, headers: Mapping[str, str], timeout_s: float, form: str | None
    ) -> HttpAnswer:
        if self._connection is None:
            self._connection = self._make()
        connection: Any = self._connection
        until_s = time.monotonic() + timeout_s
        connection.response_class = partial(_Response, until_s=until_s)
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        try:
            connection.request("GET" if form is None else "POST", target, form, dict(headers))
            answer = connection.getresponse()
            body = answer.body(self._most)
            self.has_answered = True
        except HTTP_ERRORS:
            raise
        except ValueError as error:  # a chunk has a malformed size
            raise UnusableAnswerError("the answer is not HTTP: it has a malformed chunk") from error
        where = brief((answer.getheader("Location") or "").partition("?")[0], _BRIEF)
        redirection = (
            f", which redirects to {where}; redirections are not followed" if where else ""
        )
        return HttpAnswer(
            answer.status,
            brief(answer.reason, _BRIEF),
            answer.getheader("WWW-Authenticate"),
            redirection,
            body.decode("utf-8", errors="replace"),
        )

    def close(self) -> None:
        """Close the connection. Further calls have no effect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def explain_http_error(error: Exception, timeout_s: float) -> str:
    """A clause with the reason of a failed exchange."""
    if isinstance(error, http.client.IncompleteRead):
        return "the page is cut off: the answer ended before its announced end"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens on that port (connection refused)"
    if isinstance(error, UnusableAnswerError):
        return str(error)
    return brief(f"{type(error).__name__}: {error}", 3 * _BRIEF)


def proxied(
    context: ssl.SSLContext | None, scheme: str
) -> Callable[[str, int], http.client.HTTPConnection]:
    """A function that returns a connection to a host and a port.

    If the environment sets a proxy for HTTPS, HTTPS connections use this proxy.
    """

    def connect(host: str, port: int) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(host, port)
        proxy = urlsplit(getproxies().get("https", ""))
        if not proxy.hostname or proxy_bypass(host):
            return http.client.HTTPSConnection(host, port, context=context)
        made = http.client.HTTPSConnection(proxy.hostname, proxy.port or 80, context=context)
        login = unquote(proxy.netloc.rpartition("@")[0])
        made.set_tunnel(host, port, {"Proxy-Authorization": basic_login(login)} if login else {})
        return made

    return connect


def basic_login(user_and_password: str) -> str:
    """The value of the header Authorization for a text `user:password` (RFC 7617)."""
    encoded = base64.b64encode(user_and_password.encode("utf-8", errors="surrogateescape"))
    return f"Basic {encoded.decode('ascii')}"


def parsed_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, or contains NaN or an infinity.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number of JSON")


TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)
_CUT = (BrokenPipeError, ConnectionResetError, http.client.BadStatusLine, ssl.SSLEOFError)
"""Errors that occur if the server closed the connection during a write, during a read or during
TLS."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ScrapeError(Exception):
    """A server did not answer with metrics. The text has the reason."""


class ClosedError(ScrapeError):
    """A server refuses access. The text has the reason and the remedy."""


@dataclass(frozen=True)
class HttpAccess:
    """The login and the TLS settings for all exporters of one kind.

    Attributes:
        section: name of the section that contains these settings in the cluster's file, for
            messages.
        is_tls: whether the exporters use HTTPS.
        cafile: PEM file of the certificates to trust, or None for the system's authorities.
        certfile, keyfile: PEM files of the client's certificate and of its key, for mutual TLS.
        check_hostname: whether the host of the exporter's address must be in the certificate.
        login: returns the value of the header Authorization, or raises `ConfigError`; None for
            exporters without a login. Each scrape calls `login`, because tokens are renewed.
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
        """A function that returns a connection to a host and a port. All of its connections use one
        TLS context.

        Raises:
            ConfigError: a file contains no usable certificate or key.
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
                # Without this argument, OpenSSL would read the password from the terminal.
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
    ) -> HttpAnswer:
        """Send a request with the login. See `HttpClient.request`.

        Raises:
            ScrapeError: there is no usable answer.
        """
        try:
            login = {} if self.login is None else {"Authorization": self.login()}
            return client.request(target, {**headers, **login}, timeout_s, form)
        except ConfigError as error:  # a secret is missing, or was deleted
            raise ClosedError(str(error)) from error
        except HTTP_ERRORS as error:
            explanation = self.explain_refusal(error, has_answered=client.has_answered)
            if explanation is not None:
                raise ClosedError(explanation) from error
            raise ScrapeError(explain_http_error(error, timeout_s)) from error

    def explain_refusal(self, error: Exception, *, has_answered: bool) -> str | None:
        """The reason and the remedy if an error shows that an exporter refuses access, or None for
        any other error.

        Args:
            error: the error of a request.
            has_answered: whether the exporter has answered an earlier request of this client.
        """
        is_cut = isinstance(error, _CUT)
        if is_cut and has_answered:
            return None  # the exporter ended, or it restarts
        if isinstance(error, ssl.SSLError):
            return self._why_no_tls(error)
        if not is_cut:
            return None
        if self.is_tls:  # a refusal may be lost if the server closes the connection at once
            return f"it closes the connection during TLS ({_brief(error)}); {self._own}"
        return (
            f"it accepts connections, but does not answer plain HTTP ({_brief(error)}); expected "
            f"an exporter; check the port, and set {self.section}.tls: true if it uses HTTPS"
        )

    def _why_no_tls(self, error: ssl.SSLError) -> str:
        server = CertifiedServer("exporter", self.section, f"{self.section}.endpoints")
        if isinstance(error, ssl.SSLCertVerificationError):
            return server.explain_server_certificate(error)
        if is_plaintext_error(error):
            return (
                "the server does not use TLS; expected HTTPS; configure HTTPS in the exporter, or "
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
            f"certificate, set {self.section}.certfile and keyfile"
        )

    def explain_status(self, status: int, challenge: str | None, body: str) -> str | None:
        """The reason and the remedy if an HTTP status means that access is refused, or None for any
        other status.

        Args:
            status: status code of the answer.
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
                "it refuses the login, HTTP 401; expected a login that is known and valid; "
                f"check the secrets that {keys} refer to"
            )
        if status == http.client.FORBIDDEN:
            who = "clients without a login" if self.login is None else "this login"
            return (
                f"it does not show its metrics to {who}, HTTP 403; expected a login that may read "
                f"the metrics; grant this right in the exporter, or change the secrets of {keys}"
            )
        if status == http.client.BAD_REQUEST and not self.is_tls and "HTTPS" in body:
            return (  # servers in Go answer so, for example node_exporter
                f"it uses HTTPS, but the request was plain HTTP; set {self.section}.tls: true"
            )
        return None

    def _unusable(self, key: str, wanted: str, error: OSError) -> ConfigError:
        why = getattr(error, "reason", None) or error.strerror or error
        return unusable_file(f"{self.section}.{key}", getattr(self, key), f"{why}", wanted)


def basic(username: str, password: str, section: str) -> str:
    """The value of the header Authorization for a user and a password (RFC 7617).

    Raises:
        ConfigError: the header cannot contain this user or this password.
    """
    if ":" in username or _CONTROL.search(username + password):
        raise ConfigError(
            f"the values of cluster {section}.username_from and password_from cannot be sent by "
            "HTTP; expected a user without a colon, and no control characters or line ends in "
            "either value; correct the values"
        )
    return basic_login(f"{username}:{password}")


def bearer(token: str, section: str) -> str:
    """The value of the header Authorization for a token (RFC 6750).

    Raises:
        ConfigError: the header cannot contain this token.
    """
    if TOKEN.fullmatch(token) is None:
        raise ConfigError(
            f"the value of cluster {section}.token_from is not a token; expected one word of ASCII "
            "characters; correct the value"
        )
    return f"Bearer {token}"


def _expanded(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser())


def _brief(error: Exception) -> str:
    return brief(str(error), 100) or type(error).__name__
