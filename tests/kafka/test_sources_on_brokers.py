"""Both JMX sources on real brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.places import free_ports
from metrics.common.errors import ConfigError
from metrics.judging.verdict import judge
from metrics.sources.beans import (
    NETWORK_WAIT_NS,
    POLL_MS,
    PRODUCE_ERRORS,
    SILENT_MS,
    Role,
    beans_for,
    readings_of,
)
from metrics.sources.first_polls import take_first_polls
from metrics.sources.jmx import DriverJvmSource, open_jmx
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import (
    SAMPLE_PARTITION_S,
    SAMPLES_SHARE_MAX,
    MetricsSource,
    brokers_of,
    controllers_of,
)
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Evidence
from metrics.windows.broker import broker_windows, seconds_between
from search.model import Verdict
from tests.bench.cpu import cpu_s
from tests.support.bare_jvm import bare_jvm
from tests.support.evidence import goal
from tests.support.loaded_brokers import jmx_of
from tests.support.processes import controller_of
from tests.support.simulated_jmx import simulated_jmx
from tests.support.small_load import offer_small_load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("driver-jvm", "jmxquery")
OF_THE_POLL = {SILENT_MS, POLL_MS}


def jvm_for(name: str, spark: SparkSession) -> Any:
    return spark._jvm if name == "driver-jvm" else None


@pytest.fixture(
    # That jmxquery reads the same is a test of its own, as each of its samples starts JVMs.
    params=["driver-jvm", pytest.param("jmxquery", marks=pytest.mark.long)]
)
def source(
    request: pytest.FixtureRequest, spark: SparkSession, kafka_testbed: Testbed
) -> Iterator[MetricsSource]:
    opened = open_jmx(jmx_of(kafka_testbed), jvm_for(request.param, spark), 10.0)
    assert opened.name == request.param
    with closing(opened):
        yield opened


@pytest.mark.together
def test_a_source_finds_versions_and_roles(source: MetricsSource, kafka_testbed: Testbed) -> None:
    assert brokers_of(source) == frozenset(kafka_testbed.broker_ids)
    assert controllers_of(source) == frozenset({controller_of(kafka_testbed).node_id})
    assert {node.version for node in source.nodes.values()} == {
        kafka_testbed.state.spec.kafka_version
    }


@pytest.mark.together
def test_a_sample_has_every_reading_of_the_catalogue(
    source: MetricsSource, kafka_testbed: Testbed
) -> None:
    for sample in source.sample_all():
        assert sample.error is None
        assert sample.at_s == pytest.approx(time.time(), abs=10)
        node = source.nodes[sample.broker_id]
        expected = {r.name for r in readings_of(beans_for(node.version, node.roles))}
        given = {name.partition(":")[0] for name in sample.values}
        expected, given = expected - {PRODUCE_ERRORS}, given - {PRODUCE_ERRORS}  # from first use
        assert (given & OF_THE_POLL == OF_THE_POLL) is (source.name == "driver-jvm")
        assert given - OF_THE_POLL == expected
        waits = [name for name in sample.values if name.startswith(NETWORK_WAIT_NS)]
        assert bool(waits) is (Role.BROKER in node.roles)


def test_a_load_is_measured_exactly_and_sustained(
    source: MetricsSource, spark: SparkSession, kafka_testbed: Testbed
) -> None:
    client, samples = offer_and_sample(source, spark, kafka_testbed)
    brokers = [s for s in samples if s.broker_id in kafka_testbed.broker_ids]
    first = {s.broker_id: s for s in reversed(brokers)}
    last = {s.broker_id: s for s in brokers}
    grown = {
        name: sum(last[i].values[name] - first[i].values[name] for i in first)
        for name in ("messages_in", "produce_total_ms_count")
    }
    assert grown["messages_in"] == client.counts.acked_total
    assert grown["produce_total_ms_count"] > 0
    # A poll through jmxquery may take seconds here, so its window covers all samples.
    start_s, end_s = min(s.at_s for s in brokers), max(s.at_s for s in brokers)
    if source.name == "driver-jvm":
        start_s, end_s = client.start_s, client.end_s
    windows = broker_windows(samples, brokers_of(source), start_s, end_s, 1.0)
    for window in windows:
        assert window.handler_idle is not None
        assert 0.0 < window.handler_idle < 1.1
        assert window.network_idle is not None
        assert 0.0 < window.network_idle < 1.1, "waits across the window's edges count"
        assert window.produce.local_ms is not None
        assert window.flush_ms is not None, "this profile flushes on every append"
        assert window.replication_bytes_in_per_s is not None
        assert window.replication_bytes_in_per_s > 0
    controllers = broker_windows(samples, controllers_of(source), start_s, end_s, 1.0)
    assert controllers[0].fenced_brokers_max == 0
    if source.name == "driver-jvm":  # the JVMs of jmxquery slow down a small machine
        judgement = judge(Evidence(client, windows, controllers), goal(achieved_min=0.9))
        assert judgement.verdict is Verdict.SUSTAINED, judgement.reasons


def offer_and_sample(
    source: MetricsSource, spark: SparkSession, testbed: Testbed
) -> tuple[ClientWindow, list[BrokerSample]]:
    before = source.sample_all()
    with Sampler(source, 1.0) as sampler:
        client = offer_small_load(spark, testbed)
        during = sampler.stop()
    return client, before + during + source.sample_all()


def test_both_sources_read_the_same(spark: SparkSession, kafka_testbed: Testbed) -> None:
    addresses = jmx_of(kafka_testbed)
    with (
        closing(open_jmx(addresses, spark._jvm, 10.0)) as fast,
        closing(open_jmx(addresses, None, 10.0)) as forking,
    ):
        assert (fast.name, forking.name) == NAMES
        versions, others = (
            {i: (node.version, node.roles) for i, node in source.nodes.items()}
            for source in (fast, forking)
        )
        assert others == versions
        rounds = [(fast.sample_all(), forking.sample_all(), fast.sample_all()) for _ in range(2)]
    for before, between, after in rounds:
        for low, middle, high in zip(before, between, after, strict=True):
            assert low.values.keys() - OF_THE_POLL == middle.values.keys()
            assert low.values.keys() == high.values.keys()
            for name, value in middle.values.items():
                if name.endswith(("_ns", "_count", "_in", "_out", "uptime_ms")):
                    assert low.values[name] <= value <= high.values[name], name
    for broker_id in kafka_testbed.broker_ids:
        idle = []
        for which in (0, 1):
            first, last = (
                next(s for s in samples[which] if s.broker_id == broker_id) for samples in rounds
            )
            grown = last.values["handler_idle_ns"] - first.values["handler_idle_ns"]
            idle.append(grown / 1e9 / seconds_between(first, last))
        # A wait of up to 0.3 s counts on either side of each edge.
        assert idle[0] == pytest.approx(idle[1], abs=0.03 + 2 * 0.3 / seconds_between(first, last))


@pytest.mark.together
@pytest.mark.parametrize("name", NAMES)
def test_a_port_without_jmx_and_another_process_at_it_are_configuration_errors(
    name: str, spark: SparkSession, kafka_testbed: Testbed
) -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConfigError) as raised:
        open_jmx({7: f"127.0.0.1:{port}"}, jvm_for(name, spark))
    message = str(raised.value)
    assert f"broker 7 does not answer JMX at 127.0.0.1:{port}: ConnectException" in message
    assert f"JMX_PORT={port}" in message
    assert "\n" not in message

    broker_id, address = next(iter(kafka_testbed.jmx_endpoints.items()))
    with pytest.raises(ConfigError, match=f"answers as node {broker_id}, expected node 77"):
        open_jmx({77: address}, jvm_for(name, spark))


log = logging.getLogger(__name__)


OTHERS = 50_000
SAMPLES = 20


def calls_of(others: int) -> tuple[int, float]:
    """Calls for attributes in some samples, and the least time between two samples [s]."""
    with (
        simulated_jmx(1, others=others) as brokers,
        bare_jvm() as (jvm, _),
        closing(DriverJvmSource(jvm, brokers.endpoints, 10.0)) as source,
    ):
        source.open()
        polls = take_first_polls(source)
        before, used_s = brokers.calls(), cpu_s(brokers.pid)
        for _ in range(SAMPLES):
            (sample,) = source.sample_all()
            assert sample.error is None
        used_s = cpu_s(brokers.pid) - used_s
        log.warning("%d partitions: %.1f ms of CPU a sample", others, 1e3 * used_s / SAMPLES)
        return brokers.calls() - before, polls.spared_s


@pytest.mark.long
def test_calls_do_not_grow_with_the_partitions_of_others() -> None:
    few, often_s = calls_of(0)
    many, spared_s = calls_of(OTHERS)
    assert many == few > 0
    # Gauges that count partitions cost a real broker more, so they are read less often.
    assert often_s == 0.0
    assert OTHERS * SAMPLE_PARTITION_S / spared_s == pytest.approx(SAMPLES_SHARE_MAX, rel=0.01)
