"""Quotas and limits on connections that could look like the brokers' limit are reported."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobs.cluster.admin import TopicSize
from jobs.cluster.connect import connect
from jobs.cluster.opening import OpenCluster
from jobs.cluster.permissions import Quota, quotas_of, require_throttling_seen
from jobs.cluster.sources import replicas_by_broker
from jobs.config import load_cluster, load_workload
from jobs.engine.network.connections import BrokerConnectError, Connector
from jobs.engine.network.transport import Transport
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.common.errors import ConfigError
from metrics.judging import validity
from metrics.judging.thresholds import Thresholds, Validity
from metrics.judging.verdict import judge
from metrics.sources.client_only import ClientOnlySource
from metrics.traffic.clients import ProducerPattern
from metrics.trial.evidence import ClusterFacts, Evidence
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.engine_bench import bench_on
from tests.support.loaded_brokers import LoadedBrokers, quota
from tests.support.patterns import producer_pattern

pytestmark = pytest.mark.together

LIBRARIES = [pytest.param(each, marks=pytest.mark.long) for each in ("kafka-python", "librdkafka")]
REPLICAS = {0: [1], 1: [2]}
BYTES_PER_S = 30_000.0
FETCH_BYTES_PER_S = 15_000.0
"""Quota on each broker [B/s], below a third of 200 kB/s. Kafka averages over at least 10 s."""
LENIENT_MS = 5.0
"""A mean throttle time that a goal could allow, far below that of the quota [ms]."""


@contextmanager
def blind(testbed: Testbed) -> Iterator[LoadedBrokers]:
    """Brokers whose only metrics source is the Admin API."""
    ids = testbed.broker_ids
    with connect(testbed.bootstrap_servers) as admin, connect(testbed.bootstrap_servers) as looking:
        source = ClientOnlySource(ids, partial(replicas_by_broker, looking), "4.1", lambda: None)
        source.open()
        yield LoadedBrokers(testbed, admin, source)


def throttled(brokers: LoadedBrokers, pattern: ProducerPattern, **validity: float) -> set[str]:
    """The rules that make a trial of one throttled producer INVALID."""
    with brokers.topic(REPLICAS, {}) as topic, brokers.quota("producer_byte_rate", BYTES_PER_S):
        seen = brokers.trial(topic, REPLICAS, pattern, producers=1, measure_s=4.0, warmup_s=0.5)
    facts = ClusterFacts(is_blind=brokers.source.name == "client-only")
    limits = Thresholds(validity=Validity(missed_samples_max=0.4, **validity))
    judged = judge(replace(seen.evidence, cluster=facts), limits)
    assert judged.verdict is Verdict.INVALID, judged.reasons
    assert Resource.QUOTA in {each.resource for each in judged.reasons}
    return {each.indicator for each in judged.reasons}


def messages(**options: Any) -> ProducerPattern:
    return producer_pattern(1_000, 200.0, linger_ms=10.0, **options)


@pytest.mark.long
def test_without_answers_the_brokers_metrics_show_throttling(brokers: LoadedBrokers) -> None:
    assert "throttled" in throttled(brokers, messages(acks="0"))


@pytest.mark.long
@pytest.mark.parametrize("client", ["wire", "kafka-python", "librdkafka"])
def test_without_metrics_the_producers_show_throttling(kafka_testbed: Testbed, client: str) -> None:
    with blind(kafka_testbed) as brokers:
        found = throttled(brokers, messages(client=client), throttle_ms_max=LENIENT_MS)
    assert "throttled" in found


def test_a_load_with_an_invisible_quota_is_refused(kafka_testbed: Testbed) -> None:
    unanswered = load_workload("demo", ["workload.producer.acks=0"])
    answered = load_workload("demo")
    with blind(kafka_testbed) as brokers, connect(kafka_testbed.bootstrap_servers) as admin:
        opened, nodes = OpenCluster(admin, admin.describe_cluster()), brokers.source.nodes
        require_throttling_seen(opened, unanswered, nodes.values())
        with brokers.quota("producer_byte_rate", BYTES_PER_S):
            (found,) = quotas_of(admin)
            assert found == Quota({"client-id": None}, {"producer_byte_rate": BYTES_PER_S})
            require_throttling_seen(opened, answered, nodes.values())
            with pytest.raises(ConfigError, match="producer_byte_rate 30000 for client-id by def"):
                require_throttling_seen(opened, unanswered, nodes.values())
        with brokers.quota("producer_byte_rate", BYTES_PER_S, "another-client"):
            require_throttling_seen(opened, unanswered, nodes.values())


@pytest.mark.parametrize("client", ["wire", *LIBRARIES])
def test_a_fetch_quota_is_not_reported_as_lag(kafka_testbed: Testbed, client: str) -> None:
    with bench_on(kafka_testbed) as bench:
        options = {"groups": 1, "client": client}
        plan = bench.plan(options, consumer_tasks=1, rate_records_per_s=100.0, measure_s=3.0)
        with quota(bench.admin, "consumer_byte_rate", FETCH_BYTES_PER_S, plan.member_name(0, 0)):
            seen = bench.run(plan)
    (reason,) = validity.throttled(Evidence(seen), Thresholds())
    assert "consumer group 0 was throttled" in reason.text
    assert reason.resource is Resource.QUOTA


@pytest.mark.parametrize("client", ["wire", *LIBRARIES])
def test_the_given_client_id_has_its_quota(
    kafka_testbed: Testbed, tmp_path: Path, client: str
) -> None:
    given = tmp_path / "client.properties"
    servers = ",".join(kafka_testbed.bootstrap_servers)
    given.write_text(f"bootstrap.servers={servers}\nclient.id=orders\n")
    file = tmp_path / "tenant.yaml"
    file.write_text(f"client_properties: {given}\nmetrics: {{client_only: true}}\n")
    with ExitStack() as stack:
        bench = stack.enter_context(bench_on(kafka_testbed))
        for key in ("producer_byte_rate", "consumer_byte_rate"):
            stack.enter_context(quota(bench.admin, key, FETCH_BYTES_PER_S))
            stack.enter_context(quota(bench.admin, key, 100e6, "orders"))
        options = load_cluster(str(file)).client_kwargs()
        plan = bench.plan({"groups": 1, "client": client}, client=client, client_options=options)
        seen = bench.run(plan)
    assert seen.counts.throttle_ms == 0
    assert not validity.throttled(Evidence(seen), Thresholds())


def test_a_quota_on_changes_of_topics_delays_a_run(kafka_testbed: Testbed) -> None:
    """Two topics of 40 partitions use up what 4 changes a second save in eleven seconds."""
    said: list[str] = []
    names = [f"redline-changes-{number}" for number in range(3)]
    with connect(kafka_testbed.bootstrap_servers) as admin:
        admin.on_wait = said.append
        with quota(admin, "controller_mutation_rate", 4.0):
            for name in names:
                admin.create_topic(name, TopicSize(40, 1), {})
        for name in names:
            admin.delete_topic(name)
    assert re.fullmatch(
        rf"waiting \d+\.\d s to create the topic {names[2]}, because the cluster has a quota on "
        r"changes of topics \(controller_mutation_rate\)",
        said[0],
    )


RATE, MOST = 4, 80
"""max.connection.creation.rate, which allows a burst of 11 s, and max.connections.per.ip."""
FIRST = 60


@pytest.fixture
def limited() -> Iterator[Testbed]:
    limits = {"max.connection.creation.rate": RATE, "max.connections.per.ip": MOST}
    with start("disk-bound", brokers=1, overrides=limits, name="limits") as testbed:
        yield testbed


@pytest.mark.long
def test_a_limit_on_the_rate_is_followed_and_one_on_the_number_is_named(limited: Testbed) -> None:
    with connect(limited.bootstrap_servers) as admin:
        brokers = admin.describe_cluster().addresses
        (broker,) = brokers
        opened: dict[tuple[str, int], Transport] = {}
        try:
            began_s = time.monotonic()
            wanted = [(f"producer-{i}", broker) for i in range(FIRST)]
            opened.update(Connector(brokers, {}, 10.0).open(wanted))
            took_s = time.monotonic() - began_s
            assert len(opened) == FIRST
            assert took_s > (FIRST - 12 * RATE) / RATE, "the broker limited the rate"
            assert took_s < 2 * FIRST / RATE
            more = [(f"more-{i}", broker) for i in range(MOST - FIRST + 10)]
            with pytest.raises(BrokerConnectError) as refused:
                Connector(brokers, {}, 10.0).open(more)
        finally:
            for transport in opened.values():
                transport.close()
    text = str(refused.value)
    assert f"broker {broker} at " in text
    assert f"closes new connections: {MOST} are open from this host" in text
    assert "max.connections.per.ip" in text
