"""HTTP requests whose answers have bounds: the time of the whole exchange, and the length.

Redirections are not followed, as the request may hold a login, and no compression is requested.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from metrics.sources.exposition import brief

BODY_BYTES_MAX = 32 * 2**20
"""Longest answer; the page of a broker with 3,000 partitions and all beans has about 5 MB [B]."""
_HEAD_BYTES_MAX = 256 * 1024
_READ_BYTES = 64 * 1024
_BRIEF = 100

HTTP_ERRORS = (OSError, http.client.HTTPException)
"""Errors of `HttpClient.request`."""


class UnusableAnswerError(http.client.HTTPException):
    """An answer that breaks a bound or the protocol, for the reason in the text."""


class _Stream(io.RawIOBase):
    """The bytes of one answer, until a deadline and up to a length."""

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
            raise UnusableAnswerError("its header or its framing is longer than any of HTTP")
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
        """The whole body.

        Raises:
            HTTPException: it is longer than `most` [B], cut off, or malformed.
        """
        if (self.length or 0) > most:
            raise UnusableAnswerError(
                f"the answer announces {self.length} bytes; expected at most {most}"
            )
        self._stream.left += 2 * most  # a body in chunks has their sizes, too
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
        status, reason: of its first line.
        challenge: header WWW-Authenticate.
        redirection: the target of a redirection as a clause, without a query, which may hold a
            secret; empty for another answer.
        text: the body as UTF-8, with a replacement for each malformed character.
    """

    status: int
    reason: str
    challenge: str | None
    redirection: str
    text: str


class HttpClient:
    """Requests to one server over a kept connection; only one thread at a time may use it.

    Args:
        host, port: of the server.
        connect: a factory of connections to a host and a port.
        most: longest body [B].
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

    def request(
        self,
        target: str,
        headers: Mapping[str, str],
        timeout_s: float,
        form: str | None = None,
    ) -> HttpAnswer:
        """Send a GET, or a POST of a form, and return the answer.

        Args:
            timeout_s: longest time to connect, and of the exchange after that [s].

        Raises:
            OSError, HTTPException: there is no usable answer; the next call connects again.
        """
        was_kept = self._connection is not None
        try:
            return self._exchange(target, headers, timeout_s, form)
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):
            # Servers close idle connections, so the error of a new connection counts.
            self.close()
            if not was_kept:
                raise
        except BaseException:
            self.close()
            raise
        try:
            return self._exchange(target, headers, timeout_s, form)
        except BaseException:
            self.close()
            raise

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
        except HTTP_ERRORS:
            raise
        except ValueError as error:  # the size of a chunk
            raise UnusableAnswerError("the answer is not HTTP: it has a malformed chunk") from error
        where = brief((answer.getheader("Location") or "").partition("?")[0], _BRIEF)
        redirection = f", which leads to {where}; redirections are not followed" if where else ""
        return HttpAnswer(
            answer.status,
            brief(answer.reason, _BRIEF),
            answer.getheader("WWW-Authenticate"),
            redirection,
            body.decode("utf-8", errors="replace"),
        )

    def close(self) -> None:
        """Close the connection; further calls are harmless."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def explain_http_error(error: Exception, timeout_s: float) -> str:
    """The reason of a failed exchange, as a clause."""
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
    """A factory of connections, through the proxy of the environment where it names one."""

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
    """The value of the header Authorization for `user:password` (RFC 7617)."""
    encoded = base64.b64encode(user_and_password.encode("utf-8", errors="surrogateescape"))
    return f"Basic {encoded.decode('ascii')}"


def parsed_json(text: str) -> Any:
    """The value of a text in JSON.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number that JSON does not have.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number of JSON")
