"""Series that are found on the pages of real exporters, in a broker with a planted limit, beside
JMX.

One broker has all exporters: agents of both releases under the rules of several projects, Strimzi's
Metrics Reporter, and stand-alone exporters beside it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from jobs.config.loading import load_workload
from jobs.setup.jars import kafka_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import launch, make_spec
from jobs.testbed.places import accepts, default_root, free_ports
from jobs.testbed.profile import adapt, load_profile
from metrics.common.errors import ConfigError
from metrics.judging.series_proof import HandlerPool, polls_of, prove, sent_by_broker
from metrics.planning.planted import HandlerTime
from metrics.sources.jmx import open_jmx
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.sample import BrokerSample
from metrics.sources.shortcomings import shortcomings
from metrics.sources.source import Endpoint, MetricsSource
from tests.support.exporter_pages import RULES
from tests.support.exporters import Exporter, window_of
from tests.support.kafka_fixtures import QUIET
from tests.support.loaded_brokers import LoadedBrokers, loaded
from tests.support.page_table import ROWS, cells_of, stated_rows
from tests.support.processes import PATIENCE_S, becomes
from tests.support.real_exporters import (
    VERSIONS,
    agents_option,
    reporter_jars,
    reporter_properties,
    standalone,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BROKER = 1
DEADLINE_S = 30.0
WINDOW_S, LOAD_S = 31.0, 75.0
"""Time between the two polls of a way. A handler's wait of up to 0.3 s counts on either side of
each of them, which moves idle by up to 0.6 s over it."""
IDLE_APART = 0.02
"""Largest difference between the idle times of two ways at the same moment."""
HANDLER_MS = 60.0
HANDLERS = 4
IDLE_MIN = 0.2
LIMIT = HandlerTime(HANDLER_MS, own_ms=1.0, handlers=HANDLERS).requests_per_s(IDLE_MIN)
ALL_ON_IT = {partition: [BROKER] for partition in range(8)}
PRODUCER = load_workload("calibrated").pattern(1000).producer
SHOWN = [rules for rules in RULES if rules != "one-minute rates"]
AGENTS = {f"{rules}, release {each}": (rules, each) for rules in SHOWN for each in VERSIONS}
BESIDE = {
    f"{rules}, release {each}, stand-alone": (rules, each)
    for rules in ("none", "confluent")
    for each in VERSIONS
}
REPORTER = "Strimzi's Metrics Reporter"
WAYS = (*AGENTS, *BESIDE, REPORTER)


@pytest.fixture(scope="module")
def exporters() -> dict[str, Exporter]:
    ports = dict(zip(WAYS, free_ports(len(WAYS)), strict=True))
    made = {
        way: Exporter(rules, ports[way], RULES[rules], VERSIONS[release])
        for way, (rules, release) in (AGENTS | BESIDE).items()
    }
    return {**made, REPORTER: Exporter("", ports[REPORTER])}


@pytest.fixture(scope="module")
def testbed(
    exporters: dict[str, Exporter], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    """One broker with all agents and the reporter, and the stand-alone exporters beside it."""
    folder = tmp_path_factory.mktemp("exporters")
    overrides = {**QUIET, **reporter_properties(exporters[REPORTER].port)}
    profile = adapt(load_profile("calibrated"), brokers=1, overrides=overrides)
    silent = {**profile.controller, "prometheus.metrics.reporter.listener.enable": "false"}
    profile = profile.model_copy(update={"controller": silent})  # it reads the broker's properties
    agents = agents_option({way: exporters[way] for way in AGENTS}, folder)
    spec = make_spec(
        profile,
        "automatic-rules",
        [*kafka_jars(profile.kafka_version), *reporter_jars()],
        node_jvm_options={BROKER: [agents]},
    )
    beside = {way: exporters[way] for way in BESIDE}
    with (
        launch(spec, default_root()) as started,
        standalone(beside, started.jmx_endpoints[BROKER], folder),
    ):
        yield started


@pytest.fixture(scope="module")
def sources(
    testbed: Testbed, exporters: dict[str, Exporter]
) -> Iterator[dict[str, PrometheusSource]]:
    """Way → a source that found the series on its page; a refused one is logged and left out."""

    def opened(way: str) -> PrometheusSource | None:
        assert becomes(lambda: accepts(exporters[way].port, 1.0)), f"{way} does not listen"
        endpoint = Endpoint.parse(BROKER, exporters[way].address)
        source = PrometheusSource([endpoint], None, DEADLINE_S, "4.1")
        try:
            source.open()
        except ConfigError as error:
            log.error("%s is refused: %s", way, error)
            source.close()
            return None
        return source

    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        found = {way: each for way, each in zip(WAYS, pool.map(opened, WAYS), strict=True) if each}
        for source in found.values():
            stack.callback(source.close)
        yield found


@pytest.fixture(scope="module")
def under_load(testbed: Testbed, spark_for_all: SparkSession) -> Iterator[LoadedBrokers]:
    with loaded(testbed, spark_for_all._jvm) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def jmx(testbed: Testbed, spark_for_all: SparkSession) -> Iterator[MetricsSource]:
    with closing(open_jmx(testbed.jmx_endpoints, spark_for_all._jvm, DEADLINE_S)) as opened:
        yield opened


def sample(source: MetricsSource) -> BrokerSample:
    (found,) = source.sample_all()
    assert found.error is None
    return found


@dataclass(frozen=True)
class Look:
    """A poll of one way, and one of JMX just before it."""

    by_jmx: BrokerSample
    by_page: BrokerSample


Looks = dict[str, Look]


def looked(sources: Mapping[str, PrometheusSource], jmx: MetricsSource) -> Looks:
    return {way: Look(sample(jmx), sample(source)) for way, source in sources.items()}


@pytest.mark.parametrize("way", WAYS)
def test_the_table_of_the_docs_is_what_is_read_of_a_real_page(
    way: str, sources: dict[str, PrometheusSource]
) -> None:
    node = sources[way].nodes[BROKER]
    log.warning("%s reads %s", way, dict(node.series))
    log.warning("%s lacks %s, chose %s", way, node.lacks, node.choices)
    assert not node.refused
    assert cells_of(node.series) == stated_rows()[row_of_way(way)]


def row_of_way(way: str) -> str:
    if way == REPORTER:
        return ROWS[REPORTER]
    rules, _, more = way.partition(", ")
    return ROWS[f"{rules}, stand-alone" if more.endswith("stand-alone") else rules]


def test_a_standalone_exporter_says_what_its_lack_of_the_jvm_means(
    sources: dict[str, PrometheusSource],
) -> None:
    for release in VERSIONS:
        sentences = shortcomings(sources[f"confluent, release {release}, stand-alone"].nodes, 60.0)
        for part in ("uptime of the brokers' processes", "the heap", "garbage collection"):
            assert any(part in each for each in sentences), (release, part)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_idle_is_that_of_jmx_whatever_the_rules(
    share: float,
    sources: dict[str, PrometheusSource],
    under_load: LoadedBrokers,
    jmx: MetricsSource,
) -> None:
    producers = round(share * LIMIT * PRODUCER.batch_interval_s)
    rest = looked(sources, jmx)
    before = looked(sources, jmx)
    with under_load.topic(ALL_ON_IT, {}) as topic, ThreadPoolExecutor(1) as pool:
        load = pool.submit(
            under_load.trial, topic, ALL_ON_IT, PRODUCER, producers, measure_s=LOAD_S, warmup_s=1.0
        )
        await_requests(jmx, before, producers)
        begun_s = time.monotonic()
        first = looked(sources, jmx)
        threading.Event().wait(WINDOW_S - (time.monotonic() - begun_s))
        last = looked(sources, jmx)
        assert not load.done(), "the load ended before the last poll"
        outcome = load.result()
        after = looked(sources, jmx)
    sent = sent_by_broker(outcome.evidence.client.counts, (BROKER,) * len(ALL_ON_IT))
    apart = {}
    for way in sources:
        by_jmx = window_of(first[way].by_jmx, last[way].by_jmx).handler_idle
        by_page = window_of(first[way].by_page, last[way].by_page).handler_idle
        assert by_jmx is not None and by_page is not None
        apart[way] = by_page - by_jmx
        log.warning(
            "%.0f %% of the limit, %s: idle %.4f by JMX, %.4f by the page, %+.4f apart",
            *(100 * share, way, by_jmx, by_page, apart[way]),
        )
    assert apart.keys() == set(WAYS)
    assert max(map(abs, apart.values())) <= IDLE_APART, apart
    for way in sources:
        for name in ("messages_in", "bytes_in", "produce_total_ms_count"):
            last_of = after[way]
            assert last_of.by_page.values[name] == last_of.by_jmx.values[name], (way, name)
        proof = prove(
            polls_of([rest[way].by_page], [before[way].by_page]),
            polls_of([before[way].by_page], [after[way].by_page]),
            sent,
            {BROKER: HandlerPool(HANDLERS)},
        )
        assert not proof.disagreements and not proof.doubts, (way, proof)
        # A fifth of the limit may move idle by less than its error at rest.
        assert proof.is_complete or share < 0.5, (way, proof)


def await_requests(jmx: MetricsSource, before: Looks, producers: int) -> None:
    """Wait until each producer has sent two requests or more."""
    begun = max(look.by_jmx.values["produce_total_ms_count"] for look in before.values())
    end_s = time.monotonic() + PATIENCE_S
    while sample(jmx).values["produce_total_ms_count"] < begun + 2 * producers:
        assert time.monotonic() < end_s, "the load did not begin"
        time.sleep(0.1)
