"""Roles, readings and idle handlers of the processes of real releases: by JMX and by exporters."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from jobs.cluster.connect import connect
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import Topics
from jobs.config import load_workload
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.places import free_ports
from metrics.judging.verdict import judge
from metrics.sources.beans import HANDLER_IDLE_NS, NETWORK_WAIT_NS, Role, parse_version
from metrics.sources.jmx import open_jmx
from metrics.sources.sample import BrokerSample
from metrics.sources.shortcomings import shortcomings
from metrics.sources.source import MetricsSource, brokers_of
from metrics.trial.evidence import ClusterFacts
from metrics.windows.broker import BrokerWindow, broker_windows
from search.model import Verdict
from tests.support.evidence import evidence, goal
from tests.support.exporters import RULES, Exporter, sampled, window_of

CASES = [
    ("2.8.2", "zookeeper"),
    ("3.9.2", "zookeeper"),
    ("3.9.2", "combined"),
    ("4.1.2", "combined"),
]
BROKER = frozenset({Role.BROKER})
COMBINED = frozenset({Role.BROKER, Role.CONTROLLER})
SETTLED_S = 20.0
REST_S = 12.0
"""Time that brokers get after their start, and time for which they are watched [s]."""
RECORDS = 300
COUNTED = ("messages_in", "bytes_in", "produce_total_ms_count", "isr_shrinks")
"""Readings that do not change without traffic."""
DEADLINE_S = 10.0


@dataclass(frozen=True)
class Settled:
    """Brokers that have settled, with a Prometheus exporter of other rules in each."""

    version: str
    metadata: str
    testbed: Testbed
    exporters: Mapping[int, Exporter]

    @property
    def is_combined(self) -> bool:
        """Whether its brokers are controllers, too."""
        return self.metadata == "combined"


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def settled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settled]:
    version, metadata = request.param
    named = zip(RULES, free_ports(len(RULES)), strict=True)
    exporters = {i: Exporter(*each) for i, each in enumerate(named, 1)}
    folder: Path = tmp_path_factory.mktemp("exporters")
    with start(
        "calibrated",
        brokers=len(exporters),
        kafka_version=version,
        overrides={"metadata": metadata, "heap_mb": 256},
        node_jvm_options={i: [each.java_option(folder)] for i, each in exporters.items()},
    ) as testbed:
        time.sleep(SETTLED_S)
        yield Settled(version, metadata, testbed, exporters)


def watched(source: MetricsSource) -> tuple[list[BrokerSample], tuple[BrokerWindow, ...]]:
    """Samples of idle brokers, and the windows between them."""
    samples = [*sampled(source).values()]
    time.sleep(REST_S)
    samples += sampled(source).values()
    edges = min(s.at_s for s in samples), max(s.at_s for s in samples)
    return samples, broker_windows(samples, brokers_of(source), *edges, REST_S)


@pytest.mark.long
@pytest.mark.parametrize("through", ["driver-jvm", "jmxquery"])
def test_roles_readings_and_idle_handlers_are_right(
    settled: Settled, jvm: Any, through: str
) -> None:
    version, endpoints = settled.version, settled.testbed.jmx_endpoints
    with closing(
        open_jmx(endpoints, jvm if through == "driver-jvm" else None, DEADLINE_S)
    ) as source:
        nodes, samples, windows = source.nodes, *watched(source)
    is_combined = settled.is_combined
    assert {node.roles for node in nodes.values()} == {COMBINED if is_combined else BROKER}
    assert {node.version for node in nodes.values()} == {version}
    assert {node.has_quorum for node in nodes.values()} == {is_combined}
    assert {name for node in nodes.values() for name in node.lacks} == set()
    for sample in samples:
        assert any(name.startswith(NETWORK_WAIT_NS) for name in sample.values)
        assert HANDLER_IDLE_NS in sample.values
    assert [window.broker_id for window in windows] == sorted(endpoints)
    for window in windows:
        assert window.contradiction is None
        assert window.handler_idle == pytest.approx(1.0, abs=0.06)
        assert window.network_idle is not None
        assert (window.handler_idle_error is not None) is is_combined
        assert (window.handler_idle_error or 0.0) < 0.05
        assert (window.controller_elections is not None) is is_combined
    caveats = " ".join(shortcomings(nodes, REST_S))
    assert ("before Kafka 4.2, broker and controller share one metric" in caveats) is is_combined
    assert ("use ZooKeeper" in caveats) is not is_combined
    judgement = judge(evidence(brokers=windows, cluster=ClusterFacts()), goal())
    assert judgement.verdict is Verdict.SUSTAINED, judgement.reasons
    assert parse_version(version) < (4, 2), "from there on the broker has a meter of its own"


def send_records(bootstrap_servers: tuple[str, ...], topic: TopicSet) -> None:
    """Send records one by one to all brokers, and wait for their acknowledgements."""
    producer = KafkaProducer(bootstrap_servers=list(bootstrap_servers), acks="all")
    for number in range(RECORDS):
        producer.send(topic.names[0], b"x" * 1_000, partition=number % len(topic.leaders))
    producer.flush()
    producer.close()


Looks = tuple[dict[int, BrokerSample], dict[int, BrokerSample]]
"""Samples by broker id, before and after the records."""


def growth(looks: Looks, broker: int) -> dict[str, float]:
    before, after = (each[broker].values for each in looks)
    return {name: after[name] - before[name] for name in COUNTED}


@pytest.mark.long
def test_exporters_read_what_jmx_reads(settled: Settled, jvm: Any) -> None:
    servers, is_combined = settled.testbed.bootstrap_servers, settled.is_combined
    with ExitStack() as stack:
        jmx = stack.enter_context(closing(open_jmx(settled.testbed.jmx_endpoints, jvm, DEADLINE_S)))
        scraped = {
            broker: stack.enter_context(each.read(broker, DEADLINE_S, version="unknown"))
            for broker, each in settled.exporters.items()
        }
        topics = Topics(stack.enter_context(connect(servers)), f"roles-{uuid.uuid4().hex[:8]}")
        topic = topics.create(load_workload("demo").pattern(1_000))
        before = sampled(jmx), sampled(*scraped.values())
        send_records(servers, topic)
        time.sleep(REST_S)
        after = sampled(jmx), sampled(*scraped.values())
        topics.delete(topics.made)
    by_jmx, by_exporters = zip(before, after, strict=True)
    assert sum(growth(by_jmx, broker)["messages_in"] for broker in scraped) == RECORDS
    windows = []
    for broker, exporter in settled.exporters.items():
        assert growth(by_exporters, broker) == growth(by_jmx, broker)
        known, node = jmx.nodes[broker], scraped[broker].nodes[broker]
        assert node.roles == known.roles == (COMBINED if is_combined else BROKER)
        assert node.has_quorum == known.has_quorum == is_combined
        assert (node.controller_share is not None) == is_combined
        assert "network_wait_ns" not in node.lacks
        assert exporter.rules != "msk" or node.lacks == ()
        expected, found = (
            window_of(before[broker], after[broker]) for before, after in (by_jmx, by_exporters)
        )
        # At each edge a wait of up to 0.3 s may count on either side, and a scrape takes up to a
        # second; both together are far below the whole time, which a second pool would add.
        length_s = by_jmx[1][broker].at_s - by_jmx[0][broker].at_s
        near = 0.03 + 2.0 / length_s
        assert found.handler_idle == pytest.approx(expected.handler_idle, abs=near)
        assert found.network_idle == pytest.approx(expected.network_idle, abs=near)
        assert (found.handler_idle_error is not None) is is_combined
        assert (found.handler_idle_error or 0.0) < 0.05
        windows.append(found)
    judgement = judge(evidence(brokers=tuple(windows)), goal())
    assert judgement.verdict is Verdict.SUSTAINED, judgement.reasons
