"""The HTTP API of a Prometheus server, for queries and for the time of the server's clock.

Thanos, Mimir and VictoriaMetrics have the same API. Each error message describes the answer of the
server.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode, urlsplit

from metrics.sources.exposition import brief, kind_of
from metrics.sources.http_access import (
    ClosedError,
    HttpAccess,
    HttpAnswer,
    HttpClient,
    ScrapeError,
    parsed_json,
)

_HEADERS = {
    "Accept": "application/json",
    "Connection": "keep-alive",
    "Content-Type": "application/x-www-form-urlencoded",
}
_UNEXPECTED = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of Python that occur if an answer has an unexpected form."""
_TIME_MAX_S = 1e11
_TEXT_MAX = 300
"""A message contains at most this number of characters of the server's answer."""

_OTHER_JSON = "the page is JSON of another API; expected the query API of a Prometheus server"

Samples = Sequence[tuple[float, str]]
"""Pairs of a time [s since the epoch] and a number as text, oldest first."""


@dataclass(frozen=True)
class ServerSeries:
    """One series in an answer of a server.

    Attributes:
        labels: labels of the series. The label `__name__` is the name of the series.
        samples: samples of the series.
    """

    labels: Mapping[str, str]
    samples: Samples


class ServerApi:
    """Sends queries to one server over a persistent connection. An object of this class is not
    thread-safe.

    Args:
        url: base URL of the server, such as `https://prometheus.example.com/prefix`.
        access: login and certificates for the server.
        timeout_s: longest duration of an exchange [s].
        clock: wall clock [s since the epoch].

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    def __init__(
        self, url: str, access: HttpAccess, timeout_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        host = parts.hostname or ""
        port = parts.port or (443 if access.is_tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._access = access
        self._client = HttpClient(host, port, access.connector)
        self._timeout_s = timeout_s
        self._clock = clock
        self._method = "POST"

    def query(self, expression: str) -> list[ServerSeries]:
        """The series of an instant query at the server's current time.

        For a range selector such as `up[1m]`, each sample has the time of its scrape.

        Raises:
            ScrapeError: the server does not answer the query.
        """
        return self._series("query", {"query": expression})

    def query_range(
        self, expression: str, from_s: float, to_s: float, step_s: float
    ) -> list[ServerSeries]:
        """The series of a query that is evaluated at `from_s`, `from_s` + `step_s`, … up to `to_s`.

        Raises:
            ScrapeError: the server does not answer the query.
        """
        span = {"start": f"{from_s:.3f}", "end": f"{to_s:.3f}", "step": f"{step_s:g}"}
        return self._series("query_range", {"query": expression, **span})

    def names(self, path: str, selector: str, from_s: float) -> list[str]:
        """The names of all labels of the series, or the values of one label. A series counts only
        if it has a sample since `from_s`.

        Args:
            path: `labels` for the names of labels, or `label/NAME/values` for the values of the
                label NAME.
            selector: a selector in braces, or an empty text for all series.
            from_s: time since which a series must have a sample [s since the epoch].

        Raises:
            ScrapeError: the server does not answer.
        """
        given = {"start": f"{from_s:.3f}", **({"match[]": selector} if selector else {})}
        found = self._data(path, given, "GET")
        return [str(each) for each in found] if isinstance(found, list) else []

    def clock_offset(self) -> tuple[float, float]:
        """The offset of the server's clock from this process's clock, and its largest error [s].

        A positive offset means that the server's clock is ahead.

        Raises:
            ScrapeError: the server does not answer.
        """
        began_s = self._clock()
        found = self._data("query", {"query": "time()"})
        took_s = self._clock() - began_s
        try:
            server_s = _time_of(found["result"][1])
        except _UNEXPECTED:
            raise ScrapeError(_OTHER_JSON) from None
        return server_s - began_s - took_s / 2, took_s / 2

    def close(self) -> None:
        """Close the connection. Further calls have no effect."""
        self._client.close()

    def _series(self, path: str, given: Mapping[str, str]) -> list[ServerSeries]:
        found = self._data(path, given)
        try:
            return [_series_of(each) for each in found["result"]]
        except _UNEXPECTED:
            raise ScrapeError(_OTHER_JSON) from None

    def _data(self, path: str, given: Mapping[str, str], method: str = "") -> Any:
        """The field `data` of an answer.

        Raises:
            ScrapeError: there is no answer with this field. The next call connects again.
        """
        where, fields = f"{self._prefix}/api/v1/{path}", urlencode(given)
        answer = self._request(where, fields, method or self._method)
        if answer.status in {405, 501} and not method and self._method == "POST":
            self._method = "GET"  # a proxy may accept only GET requests
            answer = self._request(where, fields, "GET")
        status, found = answer.status, _parsed(answer.text)
        if status == http.client.OK and found is not None and found.get("status") == "success":
            return found.get("data")
        refusal = self._access.explain_status(status, answer.challenge, answer.text)
        if refusal is not None:
            raise ClosedError(refusal)
        if found is not None and isinstance(error := found.get("error"), str) and error:
            raise ScrapeError(f"the server refuses the query: {brief(error, _TEXT_MAX)}")
        if status != http.client.OK:
            raise ScrapeError(
                f"HTTP {status} {answer.reason} for {where}{answer.redirection}; expected the "
                "query API of a Prometheus server below this URL"
            )
        if found is not None:
            raise ScrapeError(_OTHER_JSON)
        raise ScrapeError(f"{kind_of(answer.text)}; expected the query API of a Prometheus server")

    def _request(self, where: str, fields: str, method: str) -> HttpAnswer:
        is_post = method == "POST"
        return self._access.request(
            self._client,
            where if is_post else f"{where}?{fields}",
            _HEADERS,
            self._timeout_s,
            fields if is_post else None,
        )


def _series_of(given: Any) -> ServerSeries:
    """A series in an answer. If the value has another form, one of the errors `_UNEXPECTED` is
    raised.
    """
    labels = {str(name): str(value) for name, value in given["metric"].items()}
    samples = [
        (_time_of(at_s), str(number)) for at_s, number in given.get("values") or [given["value"]]
    ]
    if any(later[0] <= earlier[0] for earlier, later in pairwise(samples)):
        raise ValueError("the times of its samples do not increase")
    return ServerSeries(labels, samples)


def _time_of(given: Any) -> float:
    """A time, rounded to milliseconds [s since the epoch]."""
    found = round(float(given), 3)
    if not 0.0 <= found < _TIME_MAX_S:
        raise ValueError(f"{given} is not a time")
    return found


def _parsed(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, or None for any other text."""
    try:
        found = parsed_json(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
