"""The same trials, judged through the driver's JVM, jmxquery and Prometheus exporters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from jobs.config import load_workload
from jobs.config.metrics_registry import load_rules
from jobs.testbed.handle import Testbed
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge
from metrics.sources.jmx import open_jmx
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import Endpoint, MetricsSource
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Evidence
from metrics.windows.broker import BrokerWindow, broker_windows
from search.model import Verdict
from tests.support.exporters import Exporter
from tests.support.small_load import offer_small_load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

INTERVAL_S = 5.0
"""Interval of samples [s]; jmxquery starts a JVM per broker and sample, and beside saturated
brokers on two cores three JVMs take more than 2 s."""
IDLE_APART_MAX = 0.03
WORKLOAD = load_workload(
    "demo",
    [
        "workload.topic.replication_factor=1",
        "workload.trial.warmup_s=10",
        "workload.trial.measure_s=60",
        "workload.trial.early_end_error_rate=0",
    ],
)
LOADS = {"light": (8, Verdict.SUSTAINED), "hopeless": (300, Verdict.OVERLOADED)}
"""Name → number of producers, and the expected verdict."""

_log = logging.getLogger(__name__)


def merged(samples: Mapping[str, list[BrokerSample]]) -> list[BrokerSample]:
    """The samples of several sources with one broker each."""
    return sorted((each for own in samples.values() for each in own), key=lambda each: each.at_s)


@pytest.mark.parametrize("load", LOADS)
def test_the_same_trial_has_the_same_verdict_and_idle_fractions(
    load: str,
    kafka_testbed: Testbed,
    exporters: dict[int, Exporter],
    spark: SparkSession,
) -> None:
    producers, verdict = LOADS[load]
    with ExitStack() as stack:
        opened: dict[str, MetricsSource] = {
            "driver-jvm": open_jmx(kafka_testbed.jmx_endpoints, spark._jvm, 10.0),
            "jmxquery": open_jmx(kafka_testbed.jmx_endpoints, None, 10.0),
        }
        for broker, exporter in exporters.items():
            endpoint = Endpoint.parse(broker, exporter.address)
            source = PrometheusSource([endpoint], load_rules(exporter.rules), 10.0, "4.1")
            source.open()
            opened[f"prometheus of {broker}"] = source
        for each in opened.values():
            stack.enter_context(closing(each))
        samplers = {
            name: stack.enter_context(Sampler(each, INTERVAL_S)) for name, each in opened.items()
        }
        client = offer_small_load(spark, kafka_testbed, WORKLOAD, producers)
        seen = {name: sampler.stop() for name, sampler in samplers.items()}
    exporters_saw = {name: own for name, own in seen.items() if name.startswith("prometheus")}
    ways = {
        "driver-jvm": seen["driver-jvm"],
        "jmxquery": seen["jmxquery"],
        "prometheus": merged(exporters_saw),
    }
    windows = {way: _windows(own, kafka_testbed, client) for way, own in ways.items()}
    for broker, beside in enumerate(zip(*windows.values(), strict=True), 1):
        idle = {way: one.handler_idle for way, one in zip(windows, beside, strict=True)}
        _log.warning("%s, broker %d: %s", load, broker, idle)
        found = [each for each in idle.values() if each is not None]
        assert len(found) == len(ways)
        assert max(found) - min(found) <= IDLE_APART_MAX
    judged = {way: judge(Evidence(client, made), Thresholds()) for way, made in windows.items()}
    assert {way: each.verdict for way, each in judged.items()} == dict.fromkeys(ways, verdict)


def _windows(
    samples: list[BrokerSample], testbed: Testbed, client: ClientWindow
) -> tuple[BrokerWindow, ...]:
    ids = testbed.broker_ids
    return broker_windows(samples, ids, client.start_s, client.end_s, INTERVAL_S)
