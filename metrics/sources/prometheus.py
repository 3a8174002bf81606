"""Broker metrics from Prometheus exporters in the brokers: a sample is one HTTP scrape of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from metrics.common.broker_costs import scrape_interval_s
from metrics.common.errors import ConfigError
from metrics.sources.beans import CONTROLLER_EPOCH, FROM_FIRST_USE, HANDLER_IDLE_NS, Role
from metrics.sources.http_access import ClosedError, HttpAccess, ScrapeError
from metrics.sources.one_minute_rates import IDLE_MOST, SHARED_IDLE_MOST, RateCounts
from metrics.sources.page_kind import kind_of
from metrics.sources.rate_choice import choose_rates
from metrics.sources.rules import (
    BROKER_HANDLER_IDLE_NS,
    JAVA,
    NODE_ID,
    ONE_MINUTE_RATE,
    RuleSet,
    missing_readings,
    roles_of,
    with_handlers,
)
from metrics.sources.sample import BrokerSample
from metrics.sources.scraper import Scrape, Scraper, names_with
from metrics.sources.scrapers import OPEN_DEADLINE_S, Scrapers
from metrics.sources.series_choice import AUTO, SECOND_POLL_S, Choices, choose
from metrics.sources.shared_handlers import controller_share
from metrics.sources.source import Endpoint, NodeInfo

_COMBINED = frozenset({Role.BROKER, Role.CONTROLLER})
_OPEN = HttpAccess("metrics.prometheus")

JAVA_FACTS = ("jvm.name", "jvm.vendor", "jvm.version")
"""Facts in the labels of the JVM's series, in the order of the rule sets."""

_REMEDY = (
    ". Start it with the Prometheus JMX exporter on that port, open the port to this machine, or "
    "correct metrics.prometheus of the cluster's file"
)


class PrometheusSource:
    """Scrapes the exporters of all brokers.

    Args:
        endpoints: addresses of the nodes' exporters.
        rules: the readings of their series; None to find them on each page.
        deadline_s: time after which a node's sample counts as missed [s].
        version: Kafka's version as far as the protocol shows it, such as `4.1`.
        clock: wall clock [s since the epoch].
        access: login and certificates for the exporters.
        pause: waits between two polls of a page [s].

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    name = "prometheus"
    remedy: ClassVar[str] = _REMEDY
    correction: ClassVar[str] = "correct metrics.prometheus.endpoints"

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        rules: RuleSet | None,
        deadline_s: float,
        version: str = "unknown",
        clock: Callable[[], float] = time.time,
        access: HttpAccess = _OPEN,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ids = [endpoint.node_id for endpoint in endpoints]
        known = rules or RuleSet(AUTO, {})
        scrapers = [Scraper(endpoint, access, known, clock) for endpoint in endpoints]
        self._scrapers = Scrapers(scrapers, deadline_s, "redline-prometheus", clock)
        self._rules = rules
        self._version = version
        self._pause = pause
        self._counts = {endpoint.node_id: RateCounts() for endpoint in endpoints}
        self.nodes: Mapping[int, NodeInfo] = {}

    def open(self) -> None:
        """See `MetricsSource.open`."""
        self.nodes = dict(self._scrapers.open(self._probe))

    def _probe(self, scraper: Scraper) -> tuple[int, NodeInfo]:
        endpoint = scraper.endpoint
        try:
            found = self._find_rules(scraper) if self._rules is None else None
            scrape = scraper.scrape_known_series(OPEN_DEADLINE_S)
        except ScrapeError as error:
            remedy = "" if isinstance(error, ClosedError) else self.remedy
            raise ConfigError(
                f"broker {endpoint.node_id} shows no metrics at {scraper.url}: {error}{remedy}"
            ) from error
        return endpoint.node_id, self._node(scraper, scrape, found or Choices())

    def _find_rules(self, scraper: Scraper) -> Choices:
        """Find the series of the readings on a page, and read them from now on.

        Raises:
            ConfigError: the page is not that of a broker.
        """
        polls = [scraper.poll(OPEN_DEADLINE_S)]
        found = choose(polls)
        if found.needs_poll:
            self._pause(SECOND_POLL_S)
            polls.append(scraper.poll(OPEN_DEADLINE_S))
            found = choose(polls)
        found = choose_rates(polls, found)
        while found.needs_poll:
            self._pause(SECOND_POLL_S)
            polls.append(scraper.poll(OPEN_DEADLINE_S))
            found = choose_rates(polls, choose(polls[:2]))
        if not found.has_beans and not found.refused:
            raise ConfigError(
                f"broker {scraper.endpoint.node_id} shows no metrics at {scraper.url}: "
                f"{kind_of(polls[-1].text)}{self.remedy}"
            )
        scraper.use(found.rules)
        return found

    def _node(self, scraper: Scraper, scrape: Scrape, found: Choices) -> NodeInfo:
        endpoint = scraper.endpoint
        values = self._counts[endpoint.node_id].counted(scrape.values, scrape.at_s)
        ids = names_with(values, NODE_ID)
        if ids and str(endpoint.node_id) not in ids:
            raise ConfigError(
                f"{scraper.url} answers as node {', '.join(sorted(ids))}, "
                f"expected node {endpoint.node_id}; {self.correction}"
            )
        java = names_with(values, JAVA)
        roles = roles_of(values)
        if Role.BROKER in roles:
            self._require_handlers(scraper, values, found)
        has_quorum = CONTROLLER_EPOCH in values
        sampled = with_handlers(values, scrape.at_s, is_shared=roles >= _COMBINED)
        rates = tuple(sorted({*names_with(scrape.values, ONE_MINUTE_RATE)} - {*scrape.values}))
        later = (self._rules or found.rules).selectors.keys() & {*FROM_FIRST_USE}
        return NodeInfo(
            endpoint.node_id,
            self._version,
            roles,
            dict(zip(JAVA_FACTS, java[0].split("/"), strict=False)) if java else {},
            missing_readings({*sampled, *later}, roles, has_quorum=has_quorum),
            scrape.took_s,
            has_quorum,
            controller_share(sampled),
            found.texts,
            found.preferred,
            found.refusals,
            rates=rates,
            # One-minute rates need samples that are as frequent as their ticks.
            spared_s=0.0 if rates else scrape_interval_s(scrape.took_s, scrape.lines),
        )

    def _require_handlers(
        self, scraper: Scraper, values: Mapping[str, float], found: Choices
    ) -> None:
        """Check that the idle time of the broker's own request handlers is known."""
        refused = {each.reading: each for each in found.refused}
        doubtful = refused.get(BROKER_HANDLER_IDLE_NS)
        if BROKER_HANDLER_IDLE_NS not in values and HANDLER_IDLE_NS not in values:
            doubtful = doubtful or refused.get(HANDLER_IDLE_NS)
        elif doubtful is None:
            return
        if self._rules is not None:
            found_out = f" under a name that {self._rules.name} maps to {HANDLER_IDLE_NS}"
            reason = ""
        else:
            found_out, reason = "", f": {doubtful.text}" if doubtful else ""
        raise ConfigError(
            f"broker {scraper.endpoint.node_id} at {scraper.url} does not show the count of "
            f"RequestHandlerAvgIdlePercent{found_out}, which is required to recognize an "
            f"overload{reason}; have the exporter's rules export that bean's Count, or its "
            f"OneMinuteRate under a name that ends so, name the rules that fit in "
            f"metrics.prometheus.rules, or set metrics.client_only: true"
        )

    def sample_all(self) -> list[BrokerSample]:
        """See `MetricsSource.sample_all`."""
        scrapes = self._scrapers.scrape_all()
        return [self._sample(*each) for each in zip(self._ids, scrapes, strict=True)]

    def _sample(self, node_id: int, scrape: Scrape) -> BrokerSample:
        ids = names_with(scrape.values, NODE_ID)
        if ids and str(node_id) not in ids:
            other = f"node {', '.join(sorted(ids))} answers at the address of node {node_id}"
            return BrokerSample(node_id, scrape.at_s, error=other)
        node, values = self.nodes.get(node_id), scrape.values
        is_shared = node is not None and node.roles >= _COMBINED
        if node is not None and node.rates:
            most = SHARED_IDLE_MOST if is_shared else IDLE_MOST
            values = self._counts[node_id].counted(values, scrape.at_s, most)
        values = with_handlers(values, scrape.at_s, is_shared=is_shared)
        return BrokerSample(node_id, scrape.at_s, values, scrape.error)

    def reconnect(self) -> None:
        """Close the connections; the next sample opens new ones."""
        self._scrapers.reconnect()

    def close(self) -> None:
        """See `MetricsSource.close`."""
        self._scrapers.close()
