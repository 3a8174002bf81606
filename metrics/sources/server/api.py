"""The HTTP API of a Prometheus server: queries, and the time of its clock.

Thanos, Mimir and VictoriaMetrics answer the same requests. Each error says what answered.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from metrics.common.errors import ConfigError
from metrics.sources.http_access import HttpAccess
from metrics.sources.page_kind import kind_of
from metrics.sources.scraper import ClosedError, ScrapeError

_HEADERS = {
    "Accept": "application/json",
    "Connection": "keep-alive",
    "Content-Type": "application/x-www-form-urlencoded",
}
_ERRORS = (OSError, http.client.HTTPException)
_TEXT_MAX = 300
"""Longest part of an answer in a message [characters]."""

Samples = Sequence[tuple[float, str]]
"""(time [s since the epoch], number as text), oldest first."""


@dataclass(frozen=True)
class ServerSeries:
    """One series of an answer.

    Attributes:
        labels: its labels, the name as `__name__`.
        samples: its samples.
    """

    labels: Mapping[str, str]
    samples: Samples


class ServerApi:
    """Queries one server over a kept connection; only one thread at a time may use it.

    Args:
        url: base URL of the server, such as `https://prometheus.example.com/prefix`.
        access: login and certificates for it.
        timeout_s: longest silence of the server [s].
        clock: wall clock [s since the epoch].

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    def __init__(
        self,
        url: str,
        access: HttpAccess,
        timeout_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if access.is_tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._access = access
        self._connect = access.connector
        self._timeout_s = timeout_s
        self._clock = clock
        self._connection: http.client.HTTPConnection | None = None
        self._has_answered = False
        self._method = "POST"

    def query(self, expression: str) -> list[ServerSeries]:
        """The series of an instant query at the server's own time.

        A range selector, such as `up[1m]`, returns the samples with their own times.

        Raises:
            ScrapeError: there is no such answer.
        """
        return self._series("query", {"query": expression})

    def query_range(
        self, expression: str, from_s: float, to_s: float, step_s: float
    ) -> list[ServerSeries]:
        """The series of a query that is evaluated at from, from + step, … up to `to_s`.

        Raises:
            ScrapeError: there is no such answer.
        """
        span = {"start": f"{from_s:.3f}", "end": f"{to_s:.3f}", "step": f"{step_s:g}"}
        return self._series("query_range", {"query": expression, **span})

    def label_values(self, label: str, selector: str, from_s: float) -> list[str]:
        """The values of a label of the series that match a selector since a time.

        Args:
            selector: a selector in braces; empty for all series.
            from_s: begin of the time [s since the epoch].

        Raises:
            ScrapeError: there is no such answer.
        """
        given = {"start": f"{from_s:.3f}", **({"match[]": selector} if selector else {})}
        found = self._data(f"label/{label}/values", given, "GET")
        return [str(each) for each in found] if isinstance(found, list) else []

    def labels(self, selector: str, from_s: float) -> list[str]:
        """The names of the labels of the series that match a selector since a time.

        Raises:
            ScrapeError: there is no such answer.
        """
        given = {"start": f"{from_s:.3f}", "match[]": selector}
        found = self._data("labels", given, "GET")
        return [str(each) for each in found] if isinstance(found, list) else []

    def clock_offset(self) -> tuple[float, float]:
        """The time by which the server's clock is ahead of this one, and its largest error [s].

        Raises:
            ScrapeError: there is no such answer.
        """
        began_s = self._clock()
        found = self._data("query", {"query": "time()"})
        took_s = self._clock() - began_s
        try:
            server_s = float(found["result"][1])
        except (LookupError, TypeError, ValueError):
            raise self._unexpected(json.dumps(found)) from None
        return server_s - began_s - took_s / 2, took_s / 2

    def close(self) -> None:
        """Close the connection; further calls are harmless."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _series(self, path: str, given: Mapping[str, str]) -> list[ServerSeries]:
        found = self._data(path, given)
        try:
            return [
                ServerSeries(
                    each["metric"],
                    [
                        (float(at_s), str(number))
                        for at_s, number in each.get("values") or [each["value"]]
                    ],
                )
                for each in found["result"]
            ]
        except (LookupError, TypeError, ValueError, AttributeError):
            raise self._unexpected(json.dumps(found)) from None

    def _data(self, path: str, given: Mapping[str, str], method: str = "") -> Any:
        """The field `data` of an answer.

        Raises:
            ScrapeError: there is no such answer; the next call connects again.
        """
        where, fields = f"{self._prefix}/api/v1/{path}", urlencode(given)
        try:
            status, reason, challenge, text = self._exchange(where, fields, method or self._method)
            if status in {405, 501} and not method and self._method == "POST":
                self._method = "GET"  # a proxy that only reads
                status, reason, challenge, text = self._exchange(where, fields, "GET")
        except ConfigError as error:  # a secret is missing, or was deleted
            raise ClosedError(str(error)) from error
        except _ERRORS as error:
            self.close()
            explained = self._access.explain_refusal(error, has_answered=self._has_answered)
            if explained is not None:
                raise ClosedError(explained) from error
            raise ScrapeError(f"{type(error).__name__}: {error}") from error
        answer = _parsed(text)
        if status == http.client.OK and answer is not None and answer.get("status") == "success":
            self._has_answered = True
            return answer.get("data")
        refusal = self._access.explain_status(status, challenge, text)
        if refusal is not None:
            raise ClosedError(refusal)
        if answer is not None and answer.get("error"):
            raise ScrapeError(f"the server refuses the query: {_brief(str(answer['error']))}")
        if status != http.client.OK:
            raise ScrapeError(
                f"HTTP {status} {reason} for {where}; expected the query API of a Prometheus "
                "server below that URL"
            )
        raise self._unexpected(text)

    @staticmethod
    def _unexpected(text: str) -> ScrapeError:
        what = "the page is JSON of another API" if _parsed(text) is not None else kind_of(text)
        return ScrapeError(f"{what}; expected the query API of a Prometheus server")

    def _exchange(self, where: str, fields: str, method: str) -> tuple[int, str, str | None, str]:
        was_kept = self._connection is not None
        try:
            return self._request(where, fields, method)
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):
            if not was_kept:  # servers close idle connections, so the error of a new one counts
                raise
            self.close()
            return self._request(where, fields, method)

    def _request(self, where: str, fields: str, method: str) -> tuple[int, str, str | None, str]:
        headers = _HEADERS | self._access.headers()
        if self._connection is None:
            self._connection = self._connect(self._host, self._port)
        self._connection.timeout = self._timeout_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._timeout_s)
        if method == "POST":
            self._connection.request("POST", where, body=fields, headers=headers)
        else:
            self._connection.request("GET", f"{where}?{fields}", headers=headers)
        answer = self._connection.getresponse()
        body = answer.read().decode("utf-8", errors="replace")
        challenge = answer.getheader("WWW-Authenticate")
        return answer.status, answer.reason, challenge, body


def _parsed(text: str) -> dict[str, Any] | None:
    """A JSON object; None for any other text."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _brief(text: str) -> str:
    return " ".join(text.split())[:_TEXT_MAX]
