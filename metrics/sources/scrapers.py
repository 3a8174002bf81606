"""The scrapers of all exporters of a cluster, which work in parallel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TypeVar

from metrics.sources.http_access import ScrapeError
from metrics.sources.scraper import Scrape, Scraper

SCRAPES_IN_PARALLEL = 32
"""Exporters that are scraped at the same time while all answer; more are no faster, as Python
parses one answer after another."""
OPEN_DEADLINE_S = 15.0
"""Deadline of the first answer of an exporter on a busy machine [s]."""

Probed = TypeVar("Probed")


class Scrapers:
    """Scrapes many exporters; only one thread at a time may use it.

    The next exporter is scraped as soon as one has answered. Exporters that hang delay all others
    by at most half of the deadline in total.

    Args:
        scrapers: one scraper for each exporter.
        deadline_s: time after which an answer counts as missed [s].
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
        """The result of `probe` for each scraper, in order; raises the first error of `probe`."""
        threads = ThreadPoolExecutor(len(self._scrapers), self._name)
        self._threads = threads
        try:
            asked = [
                threads.submit(_then, free.release, partial(probe, scraper))
                for scraper, free in self._in_turn(OPEN_DEADLINE_S)
            ]
            return [each.result() for each in asked]
        except BaseException:
            self.close()
            raise

    def scrape_all(self) -> list[Scrape]:
        """A scrape of each exporter, in order; a failed one has its error."""
        if self._threads is None:
            raise RuntimeError("the source is not open")
        ends_s = time.monotonic() + self._deadline_s
        for scraper, free in self._in_turn(self._deadline_s):
            if scraper in self._running:  # it hangs, so there is no second request meanwhile
                free.release()
                continue
            scrape = partial(scraper.scrape, self._deadline_s)
            running = self._threads.submit(_then, free.release, scrape)
            self._running[scraper] = (self._clock(), running)
        return [self._finish(scraper, ends_s) for scraper in self._scrapers]

    def reconnect(self) -> None:
        """Close the connections of exporters that do not hang; the next scrape opens new ones."""
        for scraper in self._scrapers:
            if scraper not in self._running:
                scraper.close()

    def _in_turn(self, deadline_s: float) -> Iterator[tuple[Scraper, threading.Semaphore]]:
        """Each scraper as soon as it can begin, with the semaphore to release at its end."""
        step_s = deadline_s / 2 / max(1, len(self._scrapers))
        free = threading.Semaphore(SCRAPES_IN_PARALLEL)
        for scraper in self._scrapers:
            free.acquire(timeout=step_s)
            yield scraper, free

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
        """Close the connections; further calls are harmless."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
            for scraper in self._scrapers:
                scraper.close()


def _then(last: Callable[[], None], work: Callable[[], Probed]) -> Probed:
    try:
        return work()
    finally:
        last()
