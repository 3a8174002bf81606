"""Series that are found on the pages of real exporters, in brokers under load, beside JMX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from jobs.config import load_workload
from jobs.setup.jars import EXPORTER_VERSION, kafka_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import launch, make_spec
from jobs.testbed.places import default_root
from jobs.testbed.ports import free_ports
from jobs.testbed.profile import adapt, load_profile
from metrics.judging.series_proof import polls_of, prove, sent_by_broker
from metrics.sources.jmx import open_jmx
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.sample import BrokerSample
from metrics.sources.source import Endpoint, MetricsSource
from metrics.windows.broker import BrokerWindow, broker_windows
from tests.support.exporter_pages import RULES
from tests.support.exporters import Exporter
from tests.support.kafka_fixtures import QUIET
from tests.support.small_load import offer_with_leaders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

DEADLINE_S = 20.0
OLDER = "0.20.0"
"""The newest exporter of release 0."""
EXPORTERS = {
    1: ("lower case", EXPORTER_VERSION),
    2: ("confluent", OLDER),
    3: ("kafka-2_0_0", EXPORTER_VERSION),
}
"""Broker id → rules and release of its exporter."""
LOAD = load_workload(
    "demo",
    [
        "workload.topic.replication_factor=2",
        "workload.topic.partitions_per_broker=2",
        "workload.producer.rate_bytes_per_s=500000",
        "workload.trial.warmup_s=1",
        "workload.trial.measure_s=20",
    ],
)


@pytest.fixture(scope="module")
def exporters() -> dict[int, Exporter]:
    ports = dict(zip(EXPORTERS, free_ports(len(EXPORTERS)), strict=True))
    return {
        broker: Exporter(f"rules-{broker}", ports[broker], RULES[rules] or "rules: []\n", version)
        for broker, (rules, version) in EXPORTERS.items()
    }


@pytest.fixture(scope="module")
def testbed(
    exporters: dict[int, Exporter], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    """Three brokers, each with an exporter of its own."""
    profile, rules = load_profile("disk-bound"), tmp_path_factory.mktemp("rules")
    spec = make_spec(
        adapt(profile, brokers=len(exporters), overrides=QUIET),
        "automatic-rules",
        kafka_jars(profile.kafka_version),
        node_jvm_options={i: [each.java_option(rules)] for i, each in exporters.items()},
    )
    with launch(spec, default_root()) as started:
        yield started


@pytest.fixture(scope="module")
def source(testbed: Testbed, exporters: dict[int, Exporter]) -> Iterator[PrometheusSource]:
    endpoints = [Endpoint.parse(i, each.address) for i, each in exporters.items()]
    with closing(PrometheusSource(endpoints, None, DEADLINE_S, "4.1")) as opened:
        opened.open()
        yield opened


def sampled(source: MetricsSource) -> list[BrokerSample]:
    found = source.sample_all()
    assert [each.error for each in found] == [None] * len(found)
    return found


def window(first: list[BrokerSample], last: list[BrokerSample], broker: int) -> BrokerWindow:
    (before,), (after,) = ([each for each in s if each.broker_id == broker] for s in (first, last))
    length_s = after.at_s - before.at_s
    (made,) = broker_windows([before, after], [broker], before.at_s, after.at_s, length_s)
    return made


def test_idle_and_bytes_are_those_of_jmx_whatever_the_rules(
    source: PrometheusSource, testbed: Testbed, spark: SparkSession
) -> None:
    assert not any(node.refused for node in source.nodes.values())
    with ExitStack() as stack:
        jmx = stack.enter_context(closing(open_jmx(testbed.jmx_endpoints, spark._jvm, DEADLINE_S)))
        rest = sampled(source)
        rest_of_jmx, before = sampled(jmx), sampled(source)
        client, leaders = offer_with_leaders(spark, testbed, LOAD, 6)
        of_jmx, after = sampled(jmx), sampled(source)
    proof = prove(
        polls_of(rest, before), polls_of(before, after), sent_by_broker(client.counts, leaders)
    )
    assert proof.is_complete, proof
    for broker in EXPORTERS:
        by_jmx = window(rest_of_jmx, of_jmx, broker)
        by_page = window(before, after, broker)
        length_s = (by_page.end_s or 0.0) - (by_page.start_s or 0.0)
        assert by_jmx.handler_idle is not None
        # A wait of up to 0.3 s counts on either side of each edge of either window.
        assert by_page.handler_idle == pytest.approx(
            by_jmx.handler_idle, abs=0.02 + 0.6 / length_s
        ), broker
        for name in ("messages_in", "bytes_in", "produce_total_ms_count"):
            by_jmx_last, by_page_last = (
                next(each.values[name] for each in polls if each.broker_id == broker)
                for polls in (of_jmx, after)
            )
            assert by_page_last == by_jmx_last, (broker, name)
