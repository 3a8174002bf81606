"""Prometheus JMX exporters in the brokers of the tests, each with a different rule set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.config.metrics_registry import load_rules
from jobs.setup.jars import EXPORTER_VERSION, exporter_jar
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.sample import BrokerSample
from metrics.sources.source import Endpoint, MetricsSource
from metrics.windows.broker import BrokerWindow, broker_windows

HOST = "127.0.0.1"


def rules_of(name: str) -> str:
    """The text of a file with rules of the exporter."""
    folder = Path(__file__).parents[1] / "data/exporter/rules"
    return (folder / f"{name}.yaml").read_text(encoding="utf-8")


# The published rules for the metrics that are read: examples/kafka-kraft-3_0_0.yml of the exporter,
# kafka-metrics.yaml of Strimzi's examples, and the exporter without rules, as on Amazon MSK.
RULES = {
    "kafka-kraft": rules_of("kafka-kraft"),
    "strimzi": rules_of("strimzi"),
    "msk": 'rules:\n- pattern: ".*"\n',
}


@dataclass(frozen=True)
class Exporter:
    """The exporter of one broker.

    Attributes:
        rules: name of its rule set, a key of `RULES`.
        text: its rules, where they are others.
    """

    rules: str
    port: int
    text: str = ""
    version: str = EXPORTER_VERSION

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def java_option(self, folder: Path) -> str:
        """The JVM option that starts the exporter; its rules are written to a file of `folder`."""
        path = folder / f"{self.rules}.yaml"
        path.write_text(self.text or RULES[self.rules])
        return f"-javaagent:{exporter_jar(self.version)}={HOST}:{self.port}:{path}"

    @contextmanager
    def read(
        self, broker: int, deadline_s: float = 20.0, has_rules: bool = True, version: str = "4.1"
    ) -> Iterator[PrometheusSource]:
        """An open source that reads it, by its rules or by the series that it finds."""
        rules = load_rules(self.rules) if has_rules else None
        endpoint = Endpoint.parse(broker, self.address)
        with closing(PrometheusSource([endpoint], rules, deadline_s, version)) as source:
            source.open()
            yield source


def sampled(*sources: MetricsSource) -> dict[int, BrokerSample]:
    """Broker id → its sample, none of which failed."""
    found = [each for source in sources for each in source.sample_all()]
    assert [each.error for each in found] == [None] * len(found)
    return {each.broker_id: each for each in found}


def window_of(before: BrokerSample, after: BrokerSample) -> BrokerWindow:
    length_s = after.at_s - before.at_s
    (made,) = broker_windows([before, after], [before.broker_id], before.at_s, after.at_s, length_s)
    return made
