"""HTTP scrapes of exporters. Each exporter has one scraper, and all scrapers run in parallel."""

from __future__ import annotations

import http.client
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar
from urllib.parse import urlencode

from metrics.sources.beans import FROM_FIRST_USE
from metrics.sources.exposition import Poll, is_cut_off, number_of, series_of
from metrics.sources.http_access import ClosedError, HttpAccess, HttpClient, ScrapeError
from metrics.sources.one_minute_rates import rounding_of
from metrics.sources.rules import ONE_MINUTE_RATE, RANKS_EACH, ROUNDING, Match, RuleSet
from metrics.sources.source import OPEN_DEADLINE_S, Endpoint

PATH = "/metrics"
_HEADERS = {"Accept": "text/plain; version=0.0.4", "Connection": "keep-alive"}
_LOOKS_AT_ALL = 20
"""Number of scrapes after which a scrape parses all lines again, not only the known lines."""
_LINES_MAX = 500_000
"""Highest accepted number of lines of a page. The page of a broker with 3,000 partitions and all
beans has about 40,000 lines."""


@dataclass(frozen=True)
class Scrape:
    """The readings of one answer of an exporter.

    Attributes:
        at_s: time of the middle of the exchange [s since the epoch].
        took_s: duration of the exchange [s].
        lines: number of lines of the exporter's whole page, or 0 if it is unknown.
        error: reason why there are no readings, or None.
    """

    at_s: float
    values: Mapping[str, float] = field(default_factory=dict)
    took_s: float = 0.0
    lines: int = 0
    error: str | None = None


@dataclass(frozen=True)
class _Layout:
    """The positions of the lines with readings on a page. Successive pages of an exporter usually
    have the same lines.

    Attributes:
        lines: number of lines of the page.
        places: for each reading, the index of the reading's line, the text before the number, and
            the `Match` of the line's series.
    """

    lines: int
    places: tuple[tuple[int, str, Match], ...]

    @classmethod
    def of(cls, lines: list[str], rules: RuleSet) -> _Layout:
        """The layout of a page."""
        places = []
        for number, line in enumerate(lines):
            series = series_of(line)
            match = rules.match(series) if series else None
            if match is not None:
                begin = series if series.endswith("}") else f"{series} "
                places.append((number, sys.intern(begin), match))
        return cls(len(lines), tuple(places))

    def numbers(self, lines: list[str]) -> Iterator[tuple[Match, str]]:
        """For each reading on a page with this layout, the `Match` of the reading's series and the
        text of the reading's number.

        Raises:
            LookupError: the lines of the page are not the lines of this layout.
        """
        if len(lines) != self.lines:
            raise LookupError
        for number, begin, match in self.places:
            line = lines[number]
            if not line.startswith(begin):
                raise LookupError
            yield match, line[len(begin) :]


class Exporter(Protocol):
    """An exporter, which is scraped over HTTP or by a Prometheus server.

    Attributes:
        node_id: id of the exporter's node.
        url: address of the exporter, for messages.
    """

    node_id: int
    url: str

    def poll(self, timeout_s: float) -> Poll:
        """The exporter's whole page."""

    def use(self, rules: RuleSet) -> None:
        """Set the rules for all later scrapes."""

    def scrape_known_series(self, timeout_s: float) -> Scrape:
        """Scrape the series that the rules assign to readings. Later scrapes may request only the
        series that this scrape found.
        """


class Scraper:
    """A scraper of one exporter, with a persistent connection. A scraper is not thread-safe.

    Args:
        endpoint: address of the exporter.
        access: login and certificates for the exporter.
        rules: rule set that assigns the exporter's series to readings.
        clock: wall clock [s since the epoch].

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        access: HttpAccess,
        rules: RuleSet,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = endpoint
        self.node_id = endpoint.node_id
        self.url = f"{access.scheme}://{endpoint.address}{PATH}"
        self._access = access
        self._client = HttpClient(endpoint.host, endpoint.port, access.connector)
        self._rules = rules
        self._clock = clock
        self._layout = _Layout(0, ())
        self._scrapes = 0
        self._path = PATH

    def scrape(self, timeout_s: float) -> Scrape:
        """Scrape the exporter once.

        Args:
            timeout_s: longest duration of the exchange [s].

        Raises:
            ScrapeError: there is no answer with metrics. The next call connects again.
        """
        page = self.poll(timeout_s)
        values = self._readings(page)
        return Scrape(page.at_s, values, page.took_s, self._layout.lines)

    def use(self, rules: RuleSet) -> None:
        """Set the rules for all later scrapes."""
        self._rules = rules
        self._layout = _Layout(0, ())

    def poll(self, timeout_s: float) -> Poll:
        """The exporter's page. `scrape` describes the arguments and the errors."""
        began_s = self._clock()
        answer = self._access.request(self._client, self._path, _HEADERS, timeout_s)
        took_s = self._clock() - began_s
        text = answer.text
        if answer.status != http.client.OK:
            self.close()
            explanation = self._access.explain_status(answer.status, answer.challenge, text)
            if explanation is not None:
                raise ClosedError(explanation)
            raise ScrapeError(
                f"HTTP {answer.status} {answer.reason} from {self.endpoint.address}{PATH}"
                f"{answer.redirection}"
            )
        if is_cut_off(text):
            raise ScrapeError("the page is cut off within a line")
        if text.count("\n") > _LINES_MAX:
            raise ScrapeError(f"the page has more than {_LINES_MAX:,} lines")
        return Poll(began_s + took_s / 2, text, took_s)

    def scrape_known_series(self, timeout_s: float) -> Scrape:
        """Scrape once, and set the parameter `name[]` of later scrapes to the series with a
        reading.

        Some beans are registered by Kafka only at their first use. The request also contains the
        names of these beans' series. Some exporters do not support the parameter `name[]`, or give
        it another meaning. If the answer to a request with `name[]` lacks a reading, later scrapes
        request all series.
        """
        whole = self.scrape(timeout_s)
        names = {begin.partition("{")[0].strip() for _, begin, _ in self._layout.places}
        if not names:
            return whole
        for reading in FROM_FIRST_USE:
            names |= self._rules.series_names(reading)
        self._path = f"{PATH}?{urlencode([('name[]', name) for name in sorted(names)])}"
        try:
            part = self.scrape(timeout_s)
        except ScrapeError:
            part = Scrape(whole.at_s, {})
        if part.values.keys() != whole.values.keys():
            self._path = PATH
            return whole
        return replace(part, lines=whole.lines)

    def close(self) -> None:
        """Close the connection. Further calls have no effect."""
        self._client.close()

    def _readings(self, page: Poll) -> dict[str, float]:
        lines = page.text.split("\n")
        self._scrapes += 1
        if self._scrapes % _LOOKS_AT_ALL:
            try:
                return read_numbers(self._layout.numbers(lines), page.at_s)
            except LookupError:
                pass  # topics were created or deleted, so the page has other series
        self._layout = _Layout.of(lines, self._rules)
        return read_numbers(self._layout.numbers(lines), page.at_s)


def read_numbers(numbers: Iterable[tuple[Match, str]], at_s: float) -> dict[str, float]:
    """Reading → its value. If the series of several selectors have a number, the preferred selector
    is used.

    The result lacks a reading that the page shows twice with different numbers. Some readings
    consist of several series, such as one series for each garbage collector. All series of such a
    reading come from one selector, because two selectors may match series that show one garbage
    collector under different names.
    """
    found: dict[str, float] = {}
    ranks: dict[str, int] = {}
    ranks_of_rates: dict[str, int] = {}
    for match, text in numbers:
        reading, known, selector = match.reading, ranks, match.selector
        if selector.is_rate:
            reading, known = f"{ONE_MINUTE_RATE}:{match.reading}", ranks_of_rates
        rank = known.get(reading)
        if rank is not None and rank < match.rank:
            continue
        value = number_of(text)
        if math.isfinite(value):
            known[reading] = match.rank
            read = (at_s - value) * 1000.0 if selector.is_start_time else value * selector.factor
            if selector.is_rate:
                found[f"{ROUNDING}:{match.reading}"] = rounding_of(text) * selector.factor
            is_doubled = rank == match.rank and found.get(reading) != read
            found[reading] = math.nan if is_doubled else read
    repeated = _repeated(ranks)
    return {
        reading: value
        for reading, value in found.items()
        if math.isfinite(value) and reading not in repeated
    }


def _repeated(ranks: Mapping[str, int]) -> frozenset[str]:
    """The full names of the readings to ignore. For example, `gc_ms:G1` is ignored if a preferred
    selector matches other series of `gc_ms` on the page.

    Args:
        ranks: full name of a reading, such as `gc_ms:G1` → rank of its match. The text after the
            colon is the text that `*` matched.
    """
    lesser = [each for each, rank in ranks.items() if rank >= RANKS_EACH and ":" in each]
    if not lesser:
        return frozenset()
    best: dict[str, int] = {}
    for reading, rank in ranks.items():
        base, own = reading.partition(":")[0], rank // RANKS_EACH
        best[base] = min(best.get(base, own), own)
    return frozenset(
        each for each in lesser if ranks[each] // RANKS_EACH > best[each.partition(":")[0]]
    )


SCRAPES_IN_PARALLEL = 32
"""Highest number of exporters that are scraped at the same time. More parallel scrapes would not
save time, because Python parses one answer after the other."""

Probed = TypeVar("Probed")


class Scrapers:
    """Several scrapers, which scrape their exporters in parallel. An object of this class is not
    thread-safe.

    When an exporter has answered, the next exporter is scraped. If some exporters do not answer,
    the scrapes of all other exporters still begin within half of the deadline.

    Args:
        scrapers: one scraper for each exporter.
        deadline_s: time after which an answer counts as missing [s].
        name: prefix of the threads' names.
        clock: wall clock [s since the epoch].
    """

    def __init__(
        self,
        scrapers: Sequence[Scraper],
        deadline_s: float,
        name: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._scrapers = scrapers
        self._deadline_s = deadline_s
        self._name = name
        self._clock = clock
        self._running: dict[Scraper, tuple[float, Future[Scrape]]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def open(self, probe: Callable[[Scraper], Probed]) -> list[Probed]:
        """The result of `probe` for each scraper, in order, or the first error of `probe`."""
        self._threads = ThreadPoolExecutor(len(self._scrapers), self._name)
        try:
            begun = list(self._begin(probe, self._scrapers, OPEN_DEADLINE_S))
            return [running.result() for _, running in begun]
        except BaseException:
            self.close()
            raise

    def scrape_all(self) -> list[Scrape]:
        """One scrape of each exporter, in order. A failed scrape has an error."""
        ends_s = time.monotonic() + self._deadline_s
        idle = [each for each in self._scrapers if each not in self._running]
        for scraper, running in self._begin(self._scrape, idle, self._deadline_s):
            self._running[scraper] = (self._clock(), running)
        return [self._finish(scraper, ends_s) for scraper in self._scrapers]

    def reconnect(self) -> None:
        """Close the connections to all exporters that have answered their last request.

        The next scrape opens new connections.
        """
        for scraper in self._scrapers:
            if scraper not in self._running:
                scraper.close()

    def _begin(
        self, work: Callable[[Scraper], Probed], scrapers: Iterable[Scraper], deadline_s: float
    ) -> Iterator[tuple[Scraper, Future[Probed]]]:
        """Begin the work of each scraper, and yield each scraper with the future of its work.

        If `SCRAPES_IN_PARALLEL` scrapers are at work, the next scraper waits until one of them has
        ended its work. The longest wait is half of the deadline, divided by the number of scrapers.
        """
        if self._threads is None:
            raise RuntimeError("the source is not open")
        step_s = deadline_s / 2 / len(self._scrapers)
        free = threading.Semaphore(SCRAPES_IN_PARALLEL)
        for scraper in scrapers:
            free.acquire(timeout=step_s)
            running = self._threads.submit(work, scraper)
            running.add_done_callback(lambda _: free.release())
            yield scraper, running

    def _scrape(self, scraper: Scraper) -> Scrape:
        return scraper.scrape(self._deadline_s)

    def _finish(self, scraper: Scraper, ends_s: float) -> Scrape:
        begun_s, running = self._running[scraper]
        try:
            found = running.result(max(0.001, ends_s - time.monotonic()))
        except FutureTimeoutError:
            now_s = self._clock()
            waited = f"no answer from {scraper.url} for {now_s - begun_s:.1f} s"
            return Scrape(now_s, error=waited)
        except ScrapeError as error:
            found = Scrape(self._clock(), error=str(error))
        del self._running[scraper]
        return found

    def close(self) -> None:
        """Close the connections. Further calls have no effect."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
            for scraper in self._scrapers:
                scraper.close()
