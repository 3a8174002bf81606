"""Broker metrics from Prometheus exporters in the brokers: a sample is one HTTP scrape of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from metrics.common.errors import ConfigError
from metrics.sources.beans import HANDLER_IDLE_NS, Role
from metrics.sources.http_access import HttpAccess
from metrics.sources.rules import (
    ACTIVE_CONTROLLER,
    BROKER_HANDLER_IDLE_NS,
    JAVA,
    NODE_ID,
    NODE_SERIES,
    RuleSet,
    missing_readings,
)
from metrics.sources.sample import BrokerSample
from metrics.sources.scraper import ClosedError, Scrape, ScrapeError, Scraper, names_with
from metrics.sources.scrapers import OPEN_DEADLINE_S, Scrapers
from metrics.sources.source import Endpoint, NodeInfo

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
        rules: the readings of their series.
        deadline_s: time after which a node's sample counts as missed [s].
        version: Kafka's version as far as the protocol shows it, such as `4.1`.
        clock: wall clock [s since the epoch].
        access: login and certificates for the exporters.

    Raises:
        ConfigError: a file of `access` cannot be used.
    """

    name = "prometheus"

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        rules: RuleSet,
        deadline_s: float,
        version: str = "unknown",
        clock: Callable[[], float] = time.time,
        access: HttpAccess = _OPEN,
    ) -> None:
        self._ids = [endpoint.node_id for endpoint in endpoints]
        scrapers = [Scraper(endpoint, access, rules, clock) for endpoint in endpoints]
        self._scrapers = Scrapers(scrapers, deadline_s, "redline-prometheus", clock)
        self._rules = rules
        self._version = version
        self.nodes: Mapping[int, NodeInfo] = {}

    def open(self) -> None:
        """See `MetricsSource.open`."""
        self.nodes = dict(self._scrapers.open(self._probe))

    def _probe(self, scraper: Scraper) -> tuple[int, NodeInfo]:
        endpoint = scraper.endpoint
        try:
            scrape = scraper.scrape_known_series(OPEN_DEADLINE_S)
        except ScrapeError as error:
            remedy = "" if isinstance(error, ClosedError) else _REMEDY
            raise ConfigError(
                f"broker {endpoint.node_id} shows no metrics at {scraper.url}: {error}{remedy}"
            ) from error
        return endpoint.node_id, self._node(scraper, scrape)

    def _node(self, scraper: Scraper, scrape: Scrape) -> NodeInfo:
        endpoint, values = scraper.endpoint, scrape.values
        ids = names_with(values, NODE_ID)
        if ids and str(endpoint.node_id) not in ids:
            raise ConfigError(
                f"{scraper.url} answers as node {', '.join(sorted(ids))}, "
                f"expected node {endpoint.node_id}; correct metrics.prometheus.endpoints"
            )
        java = names_with(values, JAVA)
        roles = {Role.CONTROLLER} if ACTIVE_CONTROLLER in values else set()
        if Role.CONTROLLER not in roles or "leader_partitions" in values:
            roles.add(Role.BROKER)
        if Role.BROKER in roles:
            self._require_handlers(scraper, values, Role.CONTROLLER in roles)
        return NodeInfo(
            endpoint.node_id,
            self._version,
            frozenset(roles),
            dict(zip(JAVA_FACTS, java[0].split("/"), strict=False)) if java else {},
            missing_readings(_sampled(values), roles),
            scrape.took_s,
        )

    def _require_handlers(
        self, scraper: Scraper, values: Mapping[str, float], is_combined: bool
    ) -> None:
        who = f"broker {scraper.endpoint.node_id} at {scraper.url}"
        if BROKER_HANDLER_IDLE_NS in values:
            return
        if HANDLER_IDLE_NS not in values:
            raise ConfigError(
                f"{who} does not show the count of RequestHandlerAvgIdlePercent under a name "
                f"that {self._rules.name} maps to {HANDLER_IDLE_NS}, which is required to "
                f"recognize an overload; have the exporter's rules export that bean's Count, name "
                f"the rules that fit in metrics.prometheus.rules, or set metrics.client_only: true"
            )
        if is_combined:
            raise ConfigError(
                f"{who} is broker and controller in one process, whose request handlers share one "
                f"metric before Kafka 4.2, so that an overload does not show; run the controller "
                f"in a process of its own, use Kafka 4.2 or later, or export the Count of "
                f"BrokerRequestHandlerAvgIdlePercent"
            )

    def sample_all(self) -> list[BrokerSample]:
        """See `MetricsSource.sample_all`."""
        return [
            BrokerSample(node_id, scrape.at_s, _sampled(scrape.values), scrape.error)
            for node_id, scrape in zip(self._ids, self._scrapers.scrape_all(), strict=True)
        ]

    def close(self) -> None:
        """See `MetricsSource.close`."""
        self._scrapers.close()


def _sampled(values: Mapping[str, float]) -> dict[str, float]:
    """The readings of a sample, with one name for the idle time of the broker's handlers."""
    found = {
        name: value for name, value in values.items() if name.partition(":")[0] not in NODE_SERIES
    }
    own = found.pop(BROKER_HANDLER_IDLE_NS, None)
    if own is not None:
        found[HANDLER_IDLE_NS] = own
    return found
