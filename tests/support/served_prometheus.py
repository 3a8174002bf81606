"""A stand-in of a Prometheus server's query API, over real HTTP on loopback, in a test's own time.

It answers what the product asks: range selectors, `last_over_time` in range queries, `time()`,
and the names and values of labels. `tests/kafka/test_prometheus_server_on_brokers.py` asks a real
server the same.
"""

from __future__ import annotations

import json
import math
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from metrics.sources.exposition import parse_series, series_of
from tests.support.served_http import Answer, Asked, served

_SELECTOR = re.compile(r"\{(.*)\}\[(\d+)(ms|s)\]", re.DOTALL)
_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')


class Time:
    """The time of a test [s since the epoch]; waits let it pass."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


class RealTime(Time):
    def __call__(self) -> float:
        return time.time()


@dataclass
class Scraped:
    """A target that the server scrapes.

    Attributes:
        page: returns the page at a time [s].
        interval_s, phase_s: the scrapes are at phase + i·interval, i = 1, 2, ….
        from_s, until_s: times of the first and the last scrape [s since the epoch].
        fails_from_s: time from which scrapes fail [s since the epoch].
    """

    labels: Mapping[str, str]
    page: Callable[[float], str]
    interval_s: float = 2.0
    phase_s: float = 0.0
    from_s: float = 0.0
    until_s: float = float("inf")
    fails_from_s: float = float("inf")
    has_up: bool = True
    _texts: dict[float, str] = field(default_factory=dict)

    def _text(self, at_s: float) -> str:
        """The page of a scrape, which is made once; empty where it fails."""
        if at_s >= self.fails_from_s:
            return ""
        if at_s not in self._texts:
            self._texts[at_s] = self.page(at_s)
        return self._texts[at_s]

    def times_s(self, from_s: float, to_s: float) -> Iterator[float]:
        """The times of its scrapes in a span [s since the epoch]."""
        first = int((from_s - self.phase_s) // self.interval_s)
        at_s = first * self.interval_s + self.phase_s
        while at_s <= min(to_s, self.until_s) and from_s < self.until_s:
            if at_s > max(from_s, self.from_s):
                yield at_s
            at_s += self.interval_s

    def series(self, at_s: float, only: str = "") -> Iterator[tuple[dict[str, str], str]]:
        """The (labels, number) of each series of a scrape, or of the one with a name."""
        if self.has_up:
            yield {"__name__": "up", **self.labels}, str(int(at_s < self.fails_from_s))
        if only == "up":
            return
        for line in self._text(at_s).split("\n"):
            shown = series_of(line)
            parsed = parse_series(shown) if shown else None
            if parsed is not None:
                yield (
                    {"__name__": parsed[0], **parsed[1], **self.labels},
                    line[len(shown) :].strip(),
                )


@dataclass
class PrometheusStandIn:
    """The state and the answers of the server, which the test controls.

    Attributes:
        lag_s: time until queries show a scrape [s].
        ahead_s: time by which its clock is ahead [s].
        posts: whether it accepts POST.
        instead: status and body of every answer, in place of its own.
        methods: the methods of the requests for them.
    """

    time: Time
    targets: list[Scraped] = field(default_factory=list)
    lag_s: float = 0.05
    ahead_s: float = 0.0
    login: str | None = None
    posts: bool = True
    instead: tuple[int, str] | None = None
    queries: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, given: Mapping[str, list[str]]) -> tuple[int, str]:
        if self.instead is not None:
            return self.instead
        if method == "POST" and not self.posts:
            return 405, "Method Not Allowed"
        if not path.startswith("/api/v1/"):
            return 404, "404 page not found"
        try:
            data = self._data(path.removeprefix("/api/v1/"), given)
        except ValueError as error:
            return 400, json.dumps(
                {"status": "error", "errorType": "bad_data", "error": str(error)}
            )
        if path.endswith(("/query", "/query_range")):
            self.methods.append(method)
        return 200, json.dumps({"status": "success", "data": data})

    def _data(self, what: str, given: Mapping[str, list[str]]) -> Any:
        now_s = self.time() + self.ahead_s
        if what == "query":
            expression = given["query"][0]
            self.queries.append(expression)
            if expression == "time()":
                return {"resultType": "scalar", "result": [now_s, f"{now_s}"]}
            return {"resultType": "matrix", "result": self._range(expression, now_s)}
        if what == "query_range":
            return {"resultType": "matrix", "result": self._steps(given)}
        matchers = given.get("match[]", ["{}"])[0]
        shown = self._range(f"{matchers}[300s]", now_s, scrapes=2.0)
        if what == "labels":
            return sorted({name for each in shown for name in each["metric"]})
        label = what.split("/")[1]
        return sorted({each["metric"][label] for each in shown if label in each["metric"]})

    def _range(
        self, expression: str, now_s: float, scrapes: float = math.inf
    ) -> list[dict[str, Any]]:
        """The series of a range selector, from the last `scrapes` scrapes."""
        found = _SELECTOR.fullmatch(expression.strip())
        if found is None:
            raise ValueError(f"parse error: {expression!r} is no range selector")
        matchers = _matchers(found[1])
        span_s = int(found[2]) / (1000 if found[3] == "ms" else 1)
        series: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
        only = "up" if '__name__=~"up"' in expression else ""
        for target in self.targets:
            shown_s = now_s - self.lag_s
            back_s = min(span_s, scrapes * target.interval_s)
            for at_s in target.times_s(now_s - back_s, shown_s):
                for labels, number in target.series(at_s, only):
                    if all(test(labels.get(name, "")) for name, test in matchers):
                        key = tuple(sorted(labels.items()))
                        series.setdefault(key, []).append([at_s, number])
        return [{"metric": dict(key), "values": values} for key, values in series.items()]

    def _steps(self, given: Mapping[str, list[str]]) -> list[dict[str, Any]]:
        expression = given["query"][0]
        self.queries.append(expression)
        inner = re.fullmatch(r"last_over_time\((.*)\)", expression, re.DOTALL)
        if inner is None:
            raise ValueError(f"parse error: {expression!r}")
        start_s, end_s, step_s = (float(given[each][0]) for each in ("start", "end", "step"))
        series: dict[str, dict[str, Any]] = {}
        at_s = start_s
        while at_s <= end_s:
            for each in self._range(inner[1], at_s + self.lag_s):
                kept = series.setdefault(str(each["metric"]), {**each, "values": []})
                kept["values"].append([at_s, each["values"][-1][1]])
            at_s += step_s
        return list(series.values())


def _matchers(text: str) -> list[tuple[str, Callable[[str], bool]]]:
    found: list[tuple[str, Callable[[str], bool]]] = []
    rest = text
    while rest.strip():
        match = _MATCHER.match(rest)
        if match is None:
            raise ValueError(f"parse error: unexpected {rest!r}")
        name, sign, value = match[1], match[2], re.sub(r"\\(.)", r"\1", match[3])
        if sign == "=~":
            found.append((name, re.compile(value).fullmatch))  # type: ignore[arg-type]
        elif sign == "=":
            found.append((name, value.__eq__))
        else:
            found.append((name, value.__ne__))
        rest = rest[match.end() :]
    return found


@contextmanager
def serving_prometheus(
    server: PrometheusStandIn, context: ssl.SSLContext | None = None
) -> Iterator[PrometheusStandIn]:
    """Serve it, over HTTPS if there is a context."""

    def answer(asked: Asked) -> Answer:
        if server.login not in (None, asked.login):
            return Answer("Unauthorized", 401)
        parts = urlsplit(asked.path)
        fields = parts.query if asked.method == "GET" else asked.body.decode()
        status, text = server.answer(asked.method, parts.path, parse_qs(fields))
        return Answer(text, status)

    with served(answer, context=context) as server.port:
        yield server
