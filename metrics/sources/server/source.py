"""Broker metrics from a Prometheus server: a sample is one scrape that the server made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from metrics.common.errors import ConfigError
from metrics.sources.bean_series import may_be_reading
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import BROKER_HANDLER_IDLE_NS, RuleSet
from metrics.sources.sample import BrokerSample
from metrics.sources.server.api import ServerApi
from metrics.sources.server.feed import FeedSpec, ServerFeed
from metrics.sources.source import Endpoint, NodeInfo

_OWN = {HANDLER_IDLE_NS: BROKER_HANDLER_IDLE_NS}
"""Reading → the series of a release that shows the broker's own part of it."""
_AGENT = ("jvm_", "process_")
"""Begin of the names of the JVM's series, which the exporter adds."""


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
        self._feed = ServerFeed(api, spec, clock, pause)

    def open(self) -> None:
        """See `MetricsSource.open`."""
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
        """The scrapes of each broker since the last call; see `ServerFeed.deliver`.

        It waits for a scrape of each broker, up to a scrape interval, and longer where one is
        missing.
        """
        return [
            self._sample(target.node_id, each)
            for target, scrapes in zip(self._feed.targets, self._feed.deliver(), strict=True)
            for each in scrapes
        ]

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
        for target in self._feed.targets:
            known = target.rules.selectors
            own_name = _OWN.get(reading, reading)
            name = own_name if own_name in known else reading
            if not known.get(name):
                raise ConfigError(
                    f"the history of {reading} is unknown: broker {target.node_id} shows no series "
                    f"of it; expected one of {', '.join(sorted(known))}"
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

        A step without a scrape has no sample. Counts that follow from one-minute rates need each
        scrape, so that brokers with such counts have no samples.

        Args:
            from_s: first time [s since the epoch].
            to_s: last time [s since the epoch].
            step_s: time between two samples [s]; not less than the scrape interval.

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
        """See `MetricsSource.close`."""
        self._feed.close()


def _may_be_read(name: str) -> bool:
    return may_be_reading(name) or name.startswith(_AGENT)
