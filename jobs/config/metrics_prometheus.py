"""Prometheus exporters in the brokers, or a server that scrapes them, as a source of metrics."""

from __future__ import annotations

from typing import Annotated, ClassVar

from jobs.config.exporter_rules import load_rules
from jobs.config.metrics_section import BrokerSection, SourceTarget
from jobs.config.metrics_server import ServedSection
from metrics.common.bounds import Text
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.series_choice import AUTO
from metrics.sources.server.source import PrometheusServerSource
from metrics.sources.source import Endpoint, MetricsSource

DEADLINE_S = 10.0
"""Deadline of a scrape; an exporter without rules reads every bean of a broker [s]."""


class Prometheus(ServedSection, BrokerSection):
    """The brokers' Prometheus JMX exporters, or the Prometheus server that scrapes them.

    Attributes:
        rules: which series are which readings: auto, to find them on each page; or a file of
            conf/prometheus, by its name without .yaml, or a path.
    """

    key: ClassVar[str] = "metrics.prometheus"
    meaning: ClassVar[str] = "exporters that are scraped."
    example: ClassVar[str] = "prometheus"
    remedy: ClassVar[str] = "name their exporters in metrics.prometheus"

    rules: Annotated[str, Text(r"\S.*", "auto, or the name of a rule set, such as strimzi")] = AUTO

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        rules = None if self.rules == AUTO else load_rules(self.rules)
        served = self.served(target.hosts, DEADLINE_S)
        if served is not None:
            of_server = PrometheusServerSource(*served, rules, target.version)
            of_server.open()  # closes itself when it fails
            return of_server
        endpoints = [
            Endpoint.parse(broker, address)
            for broker, address in sorted(self.addresses(target.hosts).items())
        ]
        access = self.access()
        source = PrometheusSource(endpoints, rules, DEADLINE_S, target.version, access=access)
        source.open()  # closes itself when it fails
        return source
