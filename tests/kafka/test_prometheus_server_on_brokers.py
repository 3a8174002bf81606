"""A real Prometheus server that scrapes exporters in real brokers, the only source of metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.config import load_workload
from jobs.features.headroom.estimate import STEP_S
from jobs.setup.jars import EXPORTER_VERSION
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.places import free_ports
from metrics.planning.planted import HandlerTime
from metrics.sources.http_access import HttpAccess
from metrics.sources.jmx import open_jmx
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.server.api import ServerApi
from metrics.sources.server.broker_label import BrokerLabel
from metrics.sources.server.feed import FeedSpec, ServerFeed
from metrics.sources.server.prometheus_server import PrometheusServerSource
from metrics.sources.source import MetricsSource, poll_interval_of
from metrics.windows.broker import BrokerWindow, broker_windows
from tests.support.commands import document_in, finished
from tests.support.exporter_pages import RULES
from tests.support.exporters import Exporter
from tests.support.neighbors import production
from tests.support.processes import becomes
from tests.support.prometheus_program import Job, RealPrometheus
from tests.support.runs import handlers_today
from tests.support.small_load import offer_small_load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
DEADLINE_S = 20.0
IDLE_APART = 0.02
"""Largest difference between the idle time by the server and by JMX [ratio]."""
NEAR = 0.05
"""Distance from the planted limit within which an answer is right [ratio]."""
EXPORTERS = {1: "lower case", 2: "confluent"}
"""Broker id → rules of its exporter."""
SELECTOR, LABEL = 'job="kafka"', "broker"
PLANTED_MS, OWN_MS, HANDLERS, IDLE_MIN = 60.0, 1.0, 4, 0.2
PRODUCER = load_workload("calibrated").pattern(1_000).producer
LIMIT = HandlerTime(PLANTED_MS, OWN_MS, handlers=HANDLERS).requests_per_s(IDLE_MIN)
PLANTED = len(EXPORTERS) * LIMIT * PRODUCER.batch_interval_s
"""The planted limit [producers]; these exporters do not show the own time of a request."""
PRODUCTION = 0.6
"""Share of the planted limit that production takes."""
WATCHED_S, PAST_STEP_S = 65, 20.0
"""Time for which production is watched, and the steps of the past in it [s]."""
LOAD = load_workload(
    "calibrated",
    [
        "workload.message_bytes=[1000]",
        "workload.trial.warmup_s=4",
        "workload.trial.measure_s=30",
        "workload.trial.early_end_error_rate=0",
    ],
)
SEARCH = (
    "find-limit",
    "--workload=calibrated",
    "--set=workload.message_bytes=[1000]",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=10",
    "--set=cluster.warm_up_max_s=5",
    "--set=goal.search.resolution=0.03",
    "--set=goal.search.load_start_max=64",
    "--set=goal.search.steady_s=0",
    "--yes",
)


@pytest.fixture(scope="module")
def exporters() -> dict[int, Exporter]:
    ports = dict(zip(EXPORTERS, free_ports(len(EXPORTERS)), strict=True))
    return {
        broker: Exporter(f"rules-{broker}", ports[broker], RULES[rules], EXPORTER_VERSION)
        for broker, rules in EXPORTERS.items()
    }


@pytest.fixture(scope="module")
def testbed(
    exporters: dict[int, Exporter], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    """Two brokers with a planted limit, each with an exporter of its own."""
    rules = tmp_path_factory.mktemp("rules")
    agents = {i: [each.java_option(rules)] for i, each in exporters.items()}
    name, brokers = "prometheus-server", len(exporters)
    with start("calibrated", brokers=brokers, name=name, node_jvm_options=agents) as started:
        yield started


@pytest.fixture(scope="module")
def server(
    testbed: Testbed, exporters: dict[int, Exporter], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealPrometheus]:
    targets: Mapping[str, Mapping[str, str]] = {
        each.address: {LABEL: str(broker)} for broker, each in exporters.items()
    }
    folder = tmp_path_factory.mktemp("prometheus")
    with RealPrometheus(folder, Job("kafka", targets, INTERVAL_S)) as running:
        assert running.has_scraped(len(targets))
        yield running


def source_of(server: RealPrometheus, testbed: Testbed) -> PrometheusServerSource:
    api = ServerApi(server.url, HttpAccess("metrics.prometheus"), DEADLINE_S)
    hosts = dict.fromkeys(testbed.broker_ids, "localhost")
    spec = FeedSpec(SELECTOR, BrokerLabel("metrics.prometheus", LABEL), hosts)
    return PrometheusServerSource(ServerFeed(api, spec), None, testbed.state.spec.kafka_version)


def windows_of(
    source: MetricsSource, sampler: Sampler[Any], start_s: float, end_s: float
) -> tuple[BrokerWindow, ...]:
    return broker_windows(sampler.stop(), EXPORTERS, start_s, end_s, INTERVAL_S)


def counts(samples: Sequence[BrokerSample]) -> list[list[float]]:
    names = ("messages_in", "bytes_in", "produce_total_ms_count")
    ordered = sorted(samples, key=lambda each: each.broker_id)
    return [[each.values.get(name, -1.0) for name in names] for each in ordered]


@pytest.mark.parametrize("producers", [11, 32, 51], ids=["20 %", "60 %", "95 %"])
def test_idle_and_counts_of_the_server_are_those_of_jmx(
    producers: int, server: RealPrometheus, testbed: Testbed, spark: SparkSession
) -> None:
    with ExitStack() as stack:
        jmx = stack.enter_context(closing(open_jmx(testbed.jmx_endpoints, spark._jvm, DEADLINE_S)))
        source = stack.enter_context(closing(source_of(server, testbed)))
        source.open()
        assert not any(node.refused for node in source.nodes.values())
        assert all(node.interval_s == pytest.approx(INTERVAL_S) for node in source.nodes.values())
        polled_s = poll_interval_of(source, INTERVAL_S)
        samplers = [
            stack.enter_context(Sampler(jmx, INTERVAL_S)),
            stack.enter_context(Sampler(source, polled_s)),
        ]
        client = offer_small_load(spark, testbed, LOAD, producers)
        span = client.start_s, client.end_s
        by_jmx, by_server = (
            windows_of(each, sampler, *span)
            for each, sampler in zip((jmx, source), samplers, strict=True)
        )
        history = source.history("handler_idle_ns", client.start_s, client.end_s, 4.0)
        assert becomes(lambda: counts(source.sample_all()) == counts(jmx.sample_all()), 20.0)
    for of_jmx, of_server in zip(by_jmx, by_server, strict=True):
        log.warning(
            "%d producers, broker %d: idle %.4f by JMX, %.4f by the server (%d scrapes missed)",
            producers,
            of_jmx.broker_id,
            of_jmx.handler_idle,
            of_server.handler_idle,
            of_server.samples_missed,
        )
        assert of_server.samples_missed == 0
        assert of_server.contradiction is None
        assert of_jmx.handler_idle is not None
        assert of_server.handler_idle == pytest.approx(of_jmx.handler_idle, abs=IDLE_APART)
        assert of_server.bytes_in_per_s == pytest.approx(of_jmx.bytes_in_per_s, rel=0.05)
    for window in by_server:
        values = history[window.broker_id]
        grown_s = (values[-1][1] - values[0][1]) / 1e9
        assert grown_s / (values[-1][0] - values[0][0]) == pytest.approx(
            window.handler_idle, abs=0.1
        )


@pytest.fixture(scope="module")
def found(
    server: RealPrometheus, testbed: Testbed, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a search by `served.yaml`, whose only metrics are those of the server."""
    folder = tmp_path_factory.mktemp("search")
    planted = "".join(f"  {broker}: {PLANTED_MS}\n" for broker in testbed.broker_ids)
    (folder / "served.yaml").write_text(
        f"bootstrap_servers: {list(testbed.bootstrap_servers)}\n"
        f"planted_handler_ms:\n{planted}"
        "metrics:\n"
        f"  prometheus: {{server: '{server.url}', selector: '{SELECTOR}', broker_label: {LABEL}}}\n"
    )
    finished(*SEARCH, "--cluster=served.yaml", folder=folder, deadline_s=800.0)
    return folder


def test_find_limit_with_the_server_alone_finds_the_planted_limit(found: Path) -> None:
    summary = document_in(found)
    (point,) = summary["boundaries"]
    log.warning(
        "planted %.1f, found %s, estimate %.1f, %s trials; %s",
        PLANTED,
        point["np_sustained"],
        point["np_estimate"],
        point["trials"],
        summary["caveat"],
    )
    assert f"the Prometheus server scrapes the brokers every {INTERVAL_S:g} s" in summary["caveat"]
    assert "handler_idle_ns" in " ".join(summary["environment"])
    assert not point["gave_up"]
    assert abs(point["np_estimate"] / PLANTED - 1.0) <= NEAR


def test_headroom_by_the_server_is_that_of_the_planted_limit(
    found: Path, testbed: Testbed, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Production is watched for a while, and read from the past, here in short steps."""
    (summary,) = (found / "out").glob("*/summary.json")
    times = {}
    with production(testbed, PRODUCTION * len(EXPORTERS) * LIMIT):
        for way, step_s in (("watched", STEP_S), ("past", PAST_STEP_S)):
            monkeypatch.setattr("jobs.features.headroom.estimate.STEP_S", step_s)
            row, output = handlers_today(
                found / "served.yaml", summary.parent.name, found / "out", f"{WATCHED_S}s"
            )
            assert ("today's traffic is the traffic of the busiest" in output) is (way == "past")
            times[way] = row["times"]
    assert times == pytest.approx(dict.fromkeys(times, 1 / PRODUCTION), rel=0.1)


def test_a_server_that_stops_has_no_new_numbers(server: RealPrometheus, testbed: Testbed) -> None:
    with closing(source_of(server, testbed)) as source:
        source.open()
        before = {each.broker_id: each.at_s for each in source.sample_all()}
        server.pause()
        try:
            away = source.sample_all()
        finally:
            server.resume()
        assert all(each.error for each in away), away
        after = source.sample_all()
    good = [each for each in after if each.error is None]
    assert all(each.at_s > before[each.broker_id] for each in good)
