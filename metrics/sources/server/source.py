"""Broker metrics from a Prometheus server: a sample is one scrape that the server made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from metrics.common.errors import ConfigError
from metrics.sources.bean_series import may_be_reading
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.exposition import Poll
from metrics.sources.http_access import HttpAccess, ScrapeError
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import BROKER_HANDLER_IDLE_NS, RuleSet
from metrics.sources.sample import BrokerSample
from metrics.sources.scraper import Scrape, Scraper
from metrics.sources.series_choice import AUTO
from metrics.sources.server.api import ServerApi
from metrics.sources.server.broker_label import BrokerLabel
from metrics.sources.server.feed import Delivery, FeedSpec, FeedTarget, ServerFeed, pages_of
from metrics.sources.source import Endpoint, NodeInfo

_OWN = {HANDLER_IDLE_NS: BROKER_HANDLER_IDLE_NS}
"""Reading → the series of a release that shows the broker's own part of it."""
_AGENT = ("jvm_", "process_")
"""Begin of the names of the JVM's series, which the exporter adds."""


class _ServedExporter(Scraper):
    """A scraper whose pages are those that a server scraped.

    Attributes:
        rules: the readings of the exporter's series.
    """

    def __init__(self, target: FeedTarget, label: BrokerLabel, url: str) -> None:
        self.rules = RuleSet(AUTO, {})
        endpoint = Endpoint(target.brokers[0], target.value, 0)
        super().__init__(endpoint, HttpAccess(label.section), self.rules)
        self.url = f"{url} ({label.name}={target.value!r})"
        self._target = target
        # A second poll shows whether numbers grow; with one scrape it is the same page again.
        self._polls = iter((*target.pages, *target.pages[-1:]))

    def poll(self, timeout_s: float) -> Poll:
        """The page of each scrape that was read at the opening, the earliest first."""
        page = next(self._polls, None)
        if page is None:
            raise ScrapeError(
                f"its {len(self._target.pages)} last scrapes do not show what the numbers of the "
                "series mean; wait for more scrapes"
            )
        return page.poll

    def use(self, rules: RuleSet) -> None:
        """Read the readings of these rules from now on."""
        self.rules = rules

    def scrape_known_series(self, timeout_s: float) -> Scrape:
        """The last scrape that was read at the opening."""
        last = self._target.pages[-1]
        return Scrape(last.at_s, last.values(self.rules))


class PrometheusServerSource(PrometheusSource):
    """Reads the exporters of all brokers from one Prometheus server.

    Args:
        api: the server.
        spec: which of its series belong to which broker.
        rules: the readings of the exporters' series; None to find them.
        version: Kafka's version as far as the protocol shows it, such as `4.1`.
        clock: wall clock [s since the epoch].
        pause: waits for some seconds.
    """

    name = "prometheus-server"
    remedy: ClassVar[str] = (
        ". Have the server scrape the broker's JMX exporter, or correct metrics.prometheus of the "
        "cluster's file"
    )
    correction: ClassVar[str] = "correct metrics.prometheus.broker_pattern or broker_values"

    def __init__(
        self,
        api: ServerApi,
        spec: FeedSpec,
        rules: RuleSet | None,
        version: str = "unknown",
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        endpoints = [Endpoint(broker, host, 0) for broker, host in sorted(spec.hosts.items())]
        super().__init__(endpoints, rules, 0.0, version, clock, pause=lambda _: None)
        self._api = api
        self._own_clock = clock
        self._feed = ServerFeed(api, spec, clock, pause)
        self._exporters: list[_ServedExporter] = []

    def open(self) -> None:
        """See `MetricsSource.open`."""
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        feed, rules = self._feed, self._rules
        feed.open(_may_be_read if rules is None else lambda name: is_named(rules, name))
        found = {}
        for target in feed.targets:
            exporter = _ServedExporter(target, feed.spec.label, self._api.url)
            if rules is not None:
                exporter.use(rules)
            self._exporters.append(exporter)
            broker, node = self._probe(exporter)
            found[broker] = replace(node, interval_s=target.interval_s)
            target.pages = []
        self.nodes: Mapping[int, NodeInfo] = found
        feed.read_names(
            sorted({each for one in self._exporters for each in name_patterns(one.rules)})
        )

    def sample_all(self) -> list[BrokerSample]:
        """The scrapes of each broker since the last call; see `ServerFeed.deliver`.

        It waits for a scrape of each broker, up to a scrape interval, and longer where one is
        missing.
        """
        delivered = self._feed.deliver()
        return [
            sample
            for exporter, each in zip(self._exporters, delivered, strict=True)
            for sample in self._samples(exporter, each)
        ]

    def _samples(self, exporter: _ServedExporter, delivered: Delivery) -> Iterator[BrokerSample]:
        broker = exporter.endpoint.node_id
        for page in delivered.pages:
            yield self._sample(broker, Scrape(page.at_s, page.values(exporter.rules)))
        if delivered.error is not None:
            yield BrokerSample(broker, self._own_clock(), error=delivered.error)

    def history(
        self, reading: str, from_s: float, to_s: float, step_s: float
    ) -> dict[int, list[tuple[float, float]]]:
        """Broker id → (time [s since the epoch], value) of a reading in the past, oldest first.

        A counter has its values, not its rate. A step without a scrape has no value. A reading with
        parts, such as one for each collector, is the sum of them.

        Args:
            reading: name in `metrics.sources.beans`.
            from_s, to_s: first and last time [s since the epoch].
            step_s: time between two values [s]; not less than the scrape interval.

        Raises:
            ScrapeError: the server does not answer.
            ConfigError: no series of the brokers has the reading.
        """
        found: dict[int, list[tuple[float, float]]] = {}
        for exporter, target in zip(self._exporters, self._feed.targets, strict=True):
            rules = exporter.rules
            own_name = _OWN.get(reading, reading)
            name = own_name if own_name in rules.selectors else reading
            selectors = {name: rules.selectors.get(name, ())}
            if not selectors[name]:
                raise ConfigError(
                    f"the history of {reading} is unknown: broker {exporter.endpoint.node_id} "
                    f"shows no series of it; expected one of {', '.join(sorted(rules.selectors))}"
                )
            own = RuleSet(rules.name, selectors)
            answer = self._feed.past(target, name_patterns(own), (from_s, to_s, step_s))
            pages = pages_of(answer, target.added)
            values = ((page.at_s, page.values(own)) for page in pages)
            found[exporter.endpoint.node_id] = [
                (at_s, sum(each.values())) for at_s, each in values if each
            ]
        return found

    def past_samples(self, from_s: float, to_s: float, step_s: float) -> list[BrokerSample]:
        """A sample of each broker for each step of a time in the past, oldest first.

        A step without a scrape has no sample. Counts that follow from one-minute rates need each
        scrape, so that brokers with such counts have no samples.

        Args:
            from_s: first time [s since the epoch].
            to_s: last time [s since the epoch].
            step_s: time between two samples [s]; not less than the scrape interval.

        Raises:
            ScrapeError: the server does not answer.
        """
        found: list[BrokerSample] = []
        for exporter, target in zip(self._exporters, self._feed.targets, strict=True):
            broker = exporter.endpoint.node_id
            if self.nodes[broker].rates:
                continue
            names = name_patterns(exporter.rules)
            answer = self._feed.past(target, names, (from_s, to_s, step_s))
            found += [
                self._sample(broker, Scrape(page.at_s, page.values(exporter.rules)))
                for page in pages_of(answer, target.added)
                if page.lines
            ]
        return sorted(found, key=lambda each: each.at_s)

    def close(self) -> None:
        """See `MetricsSource.close`."""
        self._feed.close()


def name_patterns(rules: RuleSet) -> Sequence[str]:
    """Regular expressions for the names of all series of a rule set."""
    found: dict[str, None] = {}
    for selectors in rules.selectors.values():
        for each in selectors:
            pattern = each.name.replace("*", ".+")
            ends = ("",) if each.is_exact else ("", "_total")
            found.update(dict.fromkeys(f"{pattern}{end}" for end in ends))
    return tuple(found)


def _may_be_read(name: str) -> bool:
    return may_be_reading(name) or name.startswith(_AGENT)


def is_named(rules: RuleSet, name: str) -> bool:
    """Whether a rule set has a selector for series of this name."""
    return any(
        each.matches_name(name) for selectors in rules.selectors.values() for each in selectors
    )
