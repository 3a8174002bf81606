"""The HTTP API of a Prometheus server: queries, and the time of its clock.

Thanos, Mimir and VictoriaMetrics answer the same requests. Each error says what answered.
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
"""Errors of reading an answer of another form."""
_TIME_MAX_S = 1e11
_TEXT_MAX = 300
"""Longest part of an answer in a message [characters]."""

_OTHER_JSON = "the page is JSON of another API; expected the query API of a Prometheus server"

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
        timeout_s: longest time of an exchange [s].
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

    def names(self, path: str, selector: str, from_s: float) -> list[str]:
        """The names of the labels of the series that match a selector since a time, or the values
        of one label.

        Args:
            path: `labels`, or `label/NAME/values`.
            selector: a selector in braces; empty for all series.
            from_s: begin of the time [s since the epoch].

        Raises:
            ScrapeError: there is no such answer.
        """
        given = {"start": f"{from_s:.3f}", **({"match[]": selector} if selector else {})}
        found = self._data(path, given, "GET")
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
            server_s = _time_of(found["result"][1])
        except _UNEXPECTED:
            raise ScrapeError(_OTHER_JSON) from None
        return server_s - began_s - took_s / 2, took_s / 2

    def close(self) -> None:
        """Close the connection; further calls are harmless."""
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
            ScrapeError: there is no such answer; the next call connects again.
        """
        where, fields = f"{self._prefix}/api/v1/{path}", urlencode(given)
        answer = self._request(where, fields, method or self._method)
        if answer.status in {405, 501} and not method and self._method == "POST":
            self._method = "GET"  # a proxy that only reads
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
                "query API of a Prometheus server below that URL"
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
    """A series of an answer; raises one of `_UNEXPECTED` for anything else."""
    labels = {str(name): str(value) for name, value in given["metric"].items()}
    samples = [
        (_time_of(at_s), str(number)) for at_s, number in given.get("values") or [given["value"]]
    ]
    if any(later[0] <= earlier[0] for earlier, later in pairwise(samples)):
        raise ValueError("the times of its samples do not grow")
    return ServerSeries(labels, samples)


def _time_of(given: Any) -> float:
    """A time in whole milliseconds [s since the epoch]."""
    found = round(float(given), 3)
    if not 0.0 <= found < _TIME_MAX_S:
        raise ValueError(f"{given} is not a time")
    return found


def _parsed(text: str) -> dict[str, Any] | None:
    """A JSON object; None for any other text."""
    try:
        found = parsed_json(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
