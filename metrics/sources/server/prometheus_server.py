"""Broker metrics from a Prometheus server. A sample is one scrape by the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from metrics.common.errors import ConfigError
from metrics.sources.bean_series import may_be_reading
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import BROKER_HANDLER_IDLE_NS, RuleSet
from metrics.sources.sample import BrokerSample
from metrics.sources.server.feed import ServerFeed
from metrics.sources.source import Endpoint, NodeInfo

_OWN = {HANDLER_IDLE_NS: BROKER_HANDLER_IDLE_NS}
"""Name of a reading → name of the reading that newer releases show in its place."""
_AGENT = ("jvm_", "process_")
"""An exporter adds series about the JVM. The names of these series begin with these characters."""


class PrometheusServerSource(PrometheusSource):
    """Reads the exporters of all brokers from one Prometheus server.

    Args:
        feed: the server, with the targets to read.
        rules: rule set for the exporters' series, or None to choose the series automatically.
        version: the part of Kafka's version that the protocol shows, such as `4.1`.
    """

    name = "prometheus-server"
    remedy: ClassVar[str] = (
        ". Configure the server to scrape the broker's JMX exporter, or correct "
        "metrics.prometheus of the cluster's file"
    )
    correction: ClassVar[str] = "correct metrics.prometheus.broker_pattern or broker_values"

    def __init__(self, feed: ServerFeed, rules: RuleSet | None, version: str = "unknown") -> None:
        endpoints = [Endpoint(broker, host, 0) for broker, host in sorted(feed.spec.hosts.items())]
        super().__init__(endpoints, rules, 0.0, version, pause=lambda _: None)
        self._feed = feed

    def open(self) -> None:
        """Connect to the nodes, as `MetricsSource.open` describes."""
        feed, rules, found = self._feed, self._rules, {}
        is_read = _may_be_read if rules is None else lambda name: bool(rules.candidates_for(name))
        try:
            feed.open(is_read)
            for target in feed.targets:
                if rules is not None:
                    target.use(rules)
                broker, node = self._probe(target)
                found[broker] = replace(node, interval_s=target.interval_s)
                target.pages = []
        except BaseException:
            self.close()
            raise
        self.nodes: Mapping[int, NodeInfo] = found
        feed.read_known_series()

    def sample_all(self) -> list[BrokerSample]:
        """The scrapes of each broker since the last call. See `ServerFeed.deliver`.

        The call waits for a scrape of each broker, usually for up to one scrape interval. If the
        scrape of a broker is missing, the call waits longer.
        """
        return [
            self._sample(target.node_id, each)
            for target, scrapes in zip(self._feed.targets, self._feed.deliver(), strict=True)
            for each in scrapes
        ]

    def history(
        self, reading: str, from_s: float, to_s: float, step_s: float
    ) -> dict[int, list[tuple[float, float]]]:
        """Broker id → pairs of a time [s since the epoch] and the reading's value at this time,
        oldest first.

        The values of a counter are its counts, not its rates. A step without a scrape has no value.
        If a reading has several parts, such as one for each garbage collector, the value is their
        sum.

        Args:
            reading: name of the reading in `metrics.sources.beans`.
            from_s, to_s: first and last time [s since the epoch].
            step_s: time between two values, at least the scrape interval [s].

        Raises:
            ScrapeError: the server does not answer.
            ConfigError: no series of the brokers has the reading.
        """
        found: dict[int, list[tuple[float, float]]] = {}
        for target in self._feed.targets:
            known = target.rules.selectors
            own_name = _OWN.get(reading, reading)
            name = own_name if own_name in known else reading
            if not known.get(name):
                raise ConfigError(
                    f"broker {target.node_id} shows no series for the history of {reading}; "
                    f"expected one of the readings {', '.join(sorted(known))}"
                )
            own = RuleSet(target.rules.name, {name: known[name]})
            found[target.node_id] = [
                (each.at_s, sum(each.values.values()))
                for each in self._feed.past(target, own, (from_s, to_s, step_s))
                if each.values
            ]
        return found

    def past_samples(self, from_s: float, to_s: float, step_s: float) -> list[BrokerSample]:
        """One sample of each broker for each step of a past time range, oldest first.

        A step without a scrape has no sample. Brokers whose counts are computed from one-minute
        rates have no samples, because such counts need every scrape.

        Args:
            from_s: first time [s since the epoch].
            to_s: last time [s since the epoch].
            step_s: time between two samples, at least the scrape interval [s].

        Raises:
            ScrapeError: the server does not answer.
        """
        found = [
            self._sample(target.node_id, each)
            for target in self._feed.targets
            if not self.nodes[target.node_id].rates
            for each in self._feed.past(target, target.rules, (from_s, to_s, step_s))
        ]
        return sorted(found, key=lambda each: each.at_s)

    def close(self) -> None:
        """Close all connections, as `MetricsSource.close` describes."""
        self._feed.close()


def _may_be_read(name: str) -> bool:
    return may_be_reading(name) or name.startswith(_AGENT)
