"""One-minute rates of an exporter in a broker with a planted limit, beside the counts of JMX."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.config.loading import load_workload
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.places import free_ports
from metrics.planning.planted import HandlerTime
from metrics.sources.sampler import Sampler
from metrics.windows.broker import broker_window
from tests.support.commands import RunningCommand
from tests.support.exporter_pages import RULES
from tests.support.exporters import Exporter
from tests.support.kafka_fixtures import QUIET
from tests.support.loaded_brokers import LoadedBrokers, loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

BROKER = 1
HANDLER_MS, HANDLERS, IDLE_MIN = 60.0, 4, 0.2
INTERVAL_S = 1.0
ON_IT = {partition: [BROKER] for partition in range(8)}
PRODUCER = load_workload("calibrated").pattern(1000).producer
LIMIT = HandlerTime(HANDLER_MS, own_ms=1.0, handlers=HANDLERS).requests_per_s(IDLE_MIN)
PLANTED = LIMIT * PRODUCER.batch_interval_s
"""The planted limit [producers]."""


@pytest.fixture(scope="module")
def exporter() -> Exporter:
    return Exporter("one-minute", free_ports(1)[0], RULES["one-minute rates"])


@pytest.fixture(scope="module")
def testbed(exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """One broker with an exporter that shows no counts of meters."""
    agent = {BROKER: [exporter.java_option(tmp_path_factory.mktemp("rules"))]}
    options: dict[str, Any] = {"overrides": QUIET, "node_jvm_options": agent}
    with start("calibrated", brokers=1, name="one-minute-rates", **options) as started:
        yield started


@pytest.fixture
def under_load(testbed: Testbed, spark_for_all: SparkSession) -> Iterator[LoadedBrokers]:
    with loaded(testbed, spark_for_all._jvm) as brokers:
        yield brokers


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_windows_of_whole_ticks_are_those_of_counts(
    share: float, exporter: Exporter, under_load: LoadedBrokers
) -> None:
    with exporter.read(BROKER, has_rules=False) as source:
        node = source.nodes[BROKER]
        assert {"handler_idle_ns", "bytes_in", "messages_in", "isr_shrinks"} <= {*node.rates}
        with under_load.topic(ON_IT, {}) as topic, Sampler(source, INTERVAL_S) as sampler:
            outcome = under_load.trial(
                topic, ON_IT, PRODUCER, round(share * PLANTED), measure_s=32.0, warmup_s=3.0
            )
            samples = sampler.stop()
    client, (counted,) = outcome.evidence.client, outcome.evidence.brokers
    by_rates = broker_window(samples, BROKER, client.start_s, client.end_s, INTERVAL_S)
    log.warning(
        "%.0f %% of the limit: idle %.4f by rates, %.4f by counts; bytes %.0f and %.0f B/s; %s s "
        "of ticks, error %s, a scrape takes %.3f s",
        *(100 * share, by_rates.handler_idle, counted.handler_idle),
        *(by_rates.bytes_in_per_s, counted.bytes_in_per_s),
        *(by_rates.ticked_s, by_rates.handler_idle_rate_error, node.poll_s),
    )
    assert by_rates.contradiction is None
    assert by_rates.ticked_s is not None and by_rates.ticked_s >= 20
    assert not by_rates.handler_idle_rate_error
    assert by_rates.handler_idle == pytest.approx(counted.handler_idle, abs=0.02)
    assert by_rates.bytes_in_per_s == pytest.approx(counted.bytes_in_per_s, rel=0.01)
    assert by_rates.messages_in_per_s == pytest.approx(counted.messages_in_per_s, rel=0.01)
    assert by_rates.isr_shrinks == 0


def test_a_planted_limit_is_found(exporter: Exporter, testbed: Testbed, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        f"bootstrap_servers: {list(testbed.bootstrap_servers)}\n"
        f"metrics: {{prometheus: {{endpoints: {{{BROKER}: '{exporter.address}'}}}}}}\n"
        "warm_up_max_s: 12\n"
    )
    with RunningCommand(
        "find-limit",
        f"--cluster={tmp_path / 'c.yaml'}",
        "--workload=calibrated",
        "--set=workload.message_bytes=[1000]",
        "--set=workload.trial.measure_s=18",
        "--set=workload.trial.warmup_s=1",
        "--set=workload.trial.sample_interval_s=1",
        "--set=goal.search.resolution=0.05",
        "--set=goal.search.steady_s=0",
        "--set=goal.search.load_start_max=40",
        "--yes",
        folder=tmp_path,
    ) as command:
        command.await_line("run-finished ", deadline_s=800.0)
        assert command.wait(deadline_s=60.0) == 0, command.text[-4_000:]
        log.warning(command.text[-3_000:])
    (found,) = tmp_path.glob("out/*/summary.json")
    (point,) = json.loads(found.read_text(encoding="utf-8"))["boundaries"]
    log.warning("found %s, planted %.1f producers", point["np_estimate"], PLANTED)
    assert point["np_estimate"] == pytest.approx(PLANTED, rel=0.05)
