"""Broker metrics from Prometheus exporters in the brokers. A sample is one HTTP scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from metrics.common.errors import ConfigError
from metrics.sources.beans import (
    CONTROLLER_EPOCH,
    FROM_FIRST_USE,
    HANDLER_IDLE_NS,
    Role,
    controller_share,
)
from metrics.sources.exposition import kind_of
from metrics.sources.http_access import ClosedError, HttpAccess, ScrapeError
from metrics.sources.one_minute_rates import IDLE_MOST, SHARED_IDLE_MOST, RateCounts
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
from metrics.sources.sample import BrokerSample, parts_of
from metrics.sources.scraper import Exporter, Scrape, Scraper, Scrapers
from metrics.sources.series_choice import AUTO, SECOND_POLL_S, Choices, choose
from metrics.sources.source import OPEN_DEADLINE_S, Endpoint, NodeInfo, scrape_interval_s

_COMBINED = frozenset({Role.BROKER, Role.CONTROLLER})
_OPEN = HttpAccess("metrics.prometheus")

JAVA_FACTS = ("jvm.name", "jvm.vendor", "jvm.version")
"""Names of the facts about a node's JVM. The labels of the reading `java` in the rule sets have the
same order."""


class PrometheusSource:
    """A `MetricsSource` that scrapes the exporters of all brokers.

    Args:
        endpoints: addresses of the nodes' exporters.
        rules: rule set for the exporters' series, or None to choose the series from each page.
        deadline_s: time after which a node's sample counts as missing [s].
        version: the part of Kafka's version that the protocol shows, such as `4.1`.
        clock: wall clock [s since the epoch].
        access: login and certificates for the exporters.
        pause: function that waits for a number of seconds between two polls of a page.

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    name = "prometheus"
    remedy: ClassVar[str] = (
        ". Start the broker with the Prometheus JMX exporter on this port, open the port to this "
        "machine, or correct metrics.prometheus of the cluster's file"
    )
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
        """Connect to the nodes, as `MetricsSource.open` describes."""
        self.nodes = dict(self._scrapers.open(self._probe))

    def _probe(self, exporter: Exporter) -> tuple[int, NodeInfo]:
        try:
            found = self._find_rules(exporter) if self._rules is None else None
            scrape = exporter.scrape_known_series(OPEN_DEADLINE_S)
        except ScrapeError as error:
            remedy = "" if isinstance(error, ClosedError) else self.remedy
            raise ConfigError(
                f"broker {exporter.node_id} shows no metrics at {exporter.url}: {error}{remedy}"
            ) from error
        return exporter.node_id, self._node(exporter, scrape, found or Choices())

    def _find_rules(self, exporter: Exporter) -> Choices:
        """Choose a series on the exporter's page for each reading. All later scrapes read the
        chosen series.

        Raises:
            ConfigError: the page does not belong to a broker.
        """
        polls = [exporter.poll(OPEN_DEADLINE_S)]
        while (found := choose(polls)).needs_poll:
            self._pause(SECOND_POLL_S)
            polls.append(exporter.poll(OPEN_DEADLINE_S))
        if not found.has_beans and not found.refused:
            raise ConfigError(
                f"broker {exporter.node_id} shows no metrics at {exporter.url}: "
                f"{kind_of(polls[-1].text)}{self.remedy}"
            )
        exporter.use(found.rules)
        return found

    def _node(self, exporter: Exporter, scrape: Scrape, found: Choices) -> NodeInfo:
        node_id = exporter.node_id
        values = self._counts[node_id].counted(scrape.values, scrape.at_s)
        ids = parts_of(values, NODE_ID)
        if ids and str(node_id) not in ids:
            raise ConfigError(
                f"{exporter.url} answers as node {', '.join(sorted(ids))}, "
                f"expected node {node_id}; {self.correction}"
            )
        java = parts_of(values, JAVA)
        roles = roles_of(values)
        if Role.BROKER in roles:
            self._require_handlers(exporter, values, found)
        has_quorum = CONTROLLER_EPOCH in values
        sampled = with_handlers(values, scrape.at_s, is_shared=roles >= _COMBINED)
        rates = tuple(sorted({*parts_of(scrape.values, ONE_MINUTE_RATE)} - {*scrape.values}))
        later = (self._rules or found.rules).selectors.keys() & {*FROM_FIRST_USE}
        return NodeInfo(
            node_id,
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
            # One-minute rates need frequent samples, because a sample must not miss a tick.
            spared_s=0.0 if rates else scrape_interval_s(scrape.took_s, scrape.lines),
        )

    def _require_handlers(
        self, exporter: Exporter, values: Mapping[str, float], found: Choices
    ) -> None:
        """Raise a ConfigError if an exporter does not show the idle time of the broker's own
        request handlers.
        """
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
            f"broker {exporter.node_id} at {exporter.url} does not show the count of "
            f"RequestHandlerAvgIdlePercent{found_out}, which is required to recognize an "
            f"overload{reason}; configure the exporter to show this bean's Count, or its "
            f"OneMinuteRate under a name that ends in OneMinuteRate; or set "
            f"metrics.prometheus.rules to a rule set for this exporter; or set "
            f"metrics.client_only: true"
        )

    def sample_all(self) -> list[BrokerSample]:
        """One sample of each node, as `MetricsSource.sample_all` describes."""
        scrapes = self._scrapers.scrape_all()
        return [self._sample(*each) for each in zip(self._ids, scrapes, strict=True)]

    def _sample(self, node_id: int, scrape: Scrape) -> BrokerSample:
        ids = parts_of(scrape.values, NODE_ID)
        if ids and str(node_id) not in ids:
            other = f"node {', '.join(sorted(ids))} answers at the address of node {node_id}"
            return BrokerSample(node_id, scrape.at_s, error=other)
        node, values = self.nodes[node_id], scrape.values
        is_shared = node.roles >= _COMBINED
        if node.rates:
            most = SHARED_IDLE_MOST if is_shared else IDLE_MOST
            values = self._counts[node_id].counted(values, scrape.at_s, most)
        values = with_handlers(values, scrape.at_s, is_shared=is_shared)
        return BrokerSample(node_id, scrape.at_s, values, scrape.error)

    def reconnect(self) -> None:
        """Close all connections, so that the next sample opens new connections."""
        self._scrapers.reconnect()

    def close(self) -> None:
        """Close all connections, as `MetricsSource.close` describes."""
        self._scrapers.close()
