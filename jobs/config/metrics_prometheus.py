"""Prometheus exporters in the brokers as a source of their metrics."""

from __future__ import annotations

from typing import Annotated, ClassVar

from jobs.config.exporter_rules import load_rules
from jobs.config.metrics_section import BrokerSection, HttpSection, SourceTarget
from metrics.common.bounds import Text
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.series_choice import AUTO
from metrics.sources.source import Endpoint, MetricsSource

DEADLINE_S = 10.0
"""Deadline of a scrape; an exporter without rules reads every bean of a broker [s]."""


class Prometheus(HttpSection, BrokerSection):
    """The brokers' Prometheus JMX exporters.

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
        endpoints = [
            Endpoint.parse(broker, address)
            for broker, address in sorted(self.addresses(target.hosts).items())
        ]
        rules = None if self.rules == AUTO else load_rules(self.rules)
        access = self.access()
        source = PrometheusSource(endpoints, rules, DEADLINE_S, target.version, access=access)
        source.open()  # closes itself when it fails
        return source
