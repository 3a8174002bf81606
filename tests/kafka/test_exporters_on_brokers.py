"""Prometheus exporters in real brokers compared with JMX, brokers without metrics, and the
environment in a run's tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.connect import connect
from jobs.cluster.opening import OpenCluster
from jobs.cluster.sources import open_metrics
from jobs.config import Cluster, load
from jobs.runs.environment import environment_of
from jobs.testbed.handle import Testbed
from metrics.judging.verdict import judge
from metrics.sources.jmx import open_jmx
from metrics.sources.sample import BrokerSample
from metrics.sources.shortcomings import CLIENT_ONLY, is_blind, shortcomings
from metrics.sources.source import MetricsSource, NodeInfo, controllers_of
from metrics.tables.rows import difference
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import ClusterFacts, Evidence
from metrics.windows.broker import BrokerWindow
from search.model import Verdict
from tests.support.evidence import goal
from tests.support.exporters import Exporter, sampled, window_of
from tests.support.loaded_brokers import jmx_of
from tests.support.small_load import WORKLOAD, offer_small_load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 20.0
EXACT = ("messages_in", "bytes_in", "produce_total_ms_count", "log_flush_ms_count", "isr_shrinks")
THRESHOLDS = goal(achieved_min=0.9)
Looks = tuple[dict[int, BrokerSample], dict[int, BrokerSample]]


@pytest.fixture(scope="module")
def scraped(
    kafka_for_all: Testbed, exporters: dict[int, Exporter]
) -> Iterator[dict[str, MetricsSource]]:
    """Rule set → an open source of the broker with this rule set."""
    with ExitStack() as stack:
        yield {
            each.rules: stack.enter_context(each.read(broker)) for broker, each in exporters.items()
        }


@pytest.fixture(scope="module")
def opened(kafka_for_all: Testbed) -> Iterator[OpenCluster]:
    with connect(kafka_for_all.bootstrap_servers) as admin:
        yield OpenCluster(admin, admin.describe_cluster())


@dataclass(frozen=True)
class Seen:
    """One load, and the samples of each source before and after it."""

    client: ClientWindow
    jmx: Looks
    exporters: Looks
    admin: Looks
    admin_nodes: Mapping[int, NodeInfo]


@pytest.fixture(scope="module")
def seen(
    opened: OpenCluster,
    scraped: dict[str, MetricsSource],
    spark_for_all: SparkSession,
    kafka_for_all: Testbed,
) -> Seen:
    closed = Cluster.model_validate(
        {
            "name": "closed",
            "bootstrap_servers": kafka_for_all.bootstrap_servers,
            "metrics": {"client_only": True},
        }
    )
    with (
        closing(open_jmx(kafka_for_all.jmx_endpoints, spark_for_all._jvm, DEADLINE_S)) as jmx,
        closing(open_metrics(closed, opened, None)) as admin,
    ):
        assert admin.name == "client-only"
        ways = ([jmx], list(scraped.values()), [admin])
        before = [sampled(*each) for each in ways]
        client = offer_small_load(spark_for_all, kafka_for_all)
        after = [sampled(*each) for each in ways]
        by_jmx, by_exporters, by_admin = zip(before, after, strict=True)
        return Seen(client, by_jmx, by_exporters, by_admin, admin.nodes)


def test_exporters_and_jmx_see_the_same_windows(
    seen: Seen, scraped: dict[str, MetricsSource], spark: SparkSession, kafka_testbed: Testbed
) -> None:
    windows: tuple[list[BrokerWindow], list[BrokerWindow]] = ([], [])
    for broker in kafka_testbed.broker_ids:
        for name in EXACT:
            by_jmx, by_exporter = (
                after[broker].values[name] - before[broker].values[name]
                for before, after in (seen.jmx, seen.exporters)
            )
            assert by_exporter == by_jmx, name
            assert by_jmx > 0 or name == "isr_shrinks", name
        both = [
            window_of(before[broker], after[broker]) for before, after in (seen.jmx, seen.exporters)
        ]
        # A wait of up to 0.3 s counts on either side of each edge, and a scrape reads its beans for
        # up to a second.
        length_s = seen.exporters[1][broker].at_s - seen.exporters[0][broker].at_s
        for name in ("handler_idle", "network_idle"):
            by_jmx, by_exporter = (getattr(each, name) for each in both)
            assert by_jmx is not None, name
            assert by_exporter == pytest.approx(by_jmx, abs=0.03 + 1.0 / length_s), name
        windows[0].append(both[0])
        windows[1].append(both[1])
    by_jmx_verdict, by_exporter_verdict = (
        judge(Evidence(seen.client, tuple(each)), THRESHOLDS) for each in windows
    )
    assert by_jmx_verdict.verdict is Verdict.SUSTAINED, by_jmx_verdict.reasons
    assert by_exporter_verdict.verdict is Verdict.SUSTAINED, by_exporter_verdict.reasons
    whole = windows[1][list(scraped).index("msk")]
    assert whole.produce.local_ms == pytest.approx(windows[0][2].produce.local_ms, rel=0.01)


def test_missing_readings_of_each_rule_set_are_known(scraped: dict[str, MetricsSource]) -> None:
    lacks = {
        rules: {name for node in source.nodes.values() for name in node.lacks}
        for rules, source in scraped.items()
    }
    assert lacks["msk"] == set()
    for rules in ("kafka-kraft", "strimzi"):
        means = {name for name in lacks[rules] if name.endswith("_ms_mean")}
        assert lacks[rules] - means == {"processors", "machine_cpu_share"}
        assert "produce_local_ms_mean" in means
        sentences = shortcomings(scraped[rules].nodes, 60.0)
        assert any("request times" in sentence for sentence in sentences)
    assert shortcomings(scraped["msk"].nodes, 60.0) == ()
    for source in scraped.values():
        (node,) = source.nodes.values()
        assert node.facts["jvm.version"]
        assert not controllers_of(source)


def test_a_cluster_without_metrics_is_judged_by_its_clients_and_says_so(
    seen: Seen, spark: SparkSession, kafka_testbed: Testbed
) -> None:
    assert is_blind(seen.admin_nodes)
    assert shortcomings(seen.admin_nodes, 60.0) == (CLIENT_ONLY,)
    before, after = seen.admin
    windows = tuple(window_of(before[broker], after[broker]) for broker in kafka_testbed.broker_ids)
    assert [each.under_replicated_max for each in windows] == [0.0, 0.0, 0.0]
    found = Evidence(seen.client, windows)
    needs_metrics = judge(found, THRESHOLDS)
    assert needs_metrics.verdict is Verdict.INVALID
    assert "metrics.prometheus.rules" in needs_metrics.reasons[0].text
    blind = replace(found, cluster=ClusterFacts(is_blind=True))
    assert judge(blind, THRESHOLDS).verdict is Verdict.SUSTAINED
    overloaded = judge(blind, goal(achieved_min=0.9, latency_p50_ms_max=0.001))
    assert overloaded.verdict is Verdict.OVERLOADED
    assert overloaded.attribution == "unknown: the cluster shows no broker metrics"


def test_a_run_keeps_the_environment_for_comparisons(
    opened: OpenCluster, spark: SparkSession, kafka_testbed: Testbed
) -> None:
    config = replace(load("testbed", "demo", "default"), workload=WORKLOAD)
    with closing(open_jmx(jmx_of(kafka_testbed), spark._jvm, DEADLINE_S)) as source:
        found = environment_of(spark, source.nodes, opened, config)
    expected = {
        "broker.version": kafka_testbed.state.spec.kafka_version,
        "controller.version": kafka_testbed.state.spec.kafka_version,
        "broker.config.num.io.threads": "1",
        "broker.config.log.dirs.count": "1",
        "topic.config.min.insync.replicas": "1",
        "broker.jvm.heap_max_bytes": str(512 * 2**20),
        "cluster.id": opened.info.cluster_id,
        "cluster.brokers": "3",
        "spark.version": spark.version,
        "package.kafka-python": "3.0.12",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "-Xmx512m" in found["broker.jvm.arguments"].split()
    assert int(found["broker.cores"]) >= 1
    assert found["cluster.metadata.version"].isdecimal()
    assert not [text for text in found.values() if "unreadable" in text]
    assert not [text for text in found.values() if "-Dcom" in text or "javaagent" in text]
    other = {**found, "broker.config.num.io.threads": "8", "cluster.id": "another"}
    (changed,) = difference(found, other)
    assert (changed.name, changed.before, changed.after) == (
        "broker.config.num.io.threads",
        "1",
        "8",
    )
