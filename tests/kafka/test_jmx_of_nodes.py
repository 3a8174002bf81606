"""JMX of nodes that hang, restart and change, and of more nodes than are polled at a time."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest

from jobs.testbed.places import free_ports
from metrics.sources.beans import POLL_MS, SILENT_MS, Role, beans_for, readings_of
from metrics.sources.first_polls import FirstPolls, least_interval_s
from metrics.sources.jmx import DriverJvmSource, open_jmx
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource
from metrics.traffic.pattern import SAMPLES_MIN
from tests.support.bare_jvm import bare_jvm
from tests.support.jmx_nodes import JmxNode
from tests.support.simulated_jmx import VERSION, beans_of_a_broker, delayed_jmx, simulated_jmx

pytestmark = pytest.mark.together

DEADLINE_S = 5.0
"""Time that a node has for its answer [s]."""


def test_a_hanging_node_is_missed_and_does_not_delay_the_others(jvm: Any) -> None:
    with JmxNode(1) as hung, JmxNode(2) as well:
        addresses = {1: hung.address, 2: well.address}
        with closing(open_jmx(addresses, jvm, DEADLINE_S)) as source:
            assert [s.error for s in source.sample_all()] == [None, None]
            hung.hang()
            began_s = time.time()
            missed, other = source.sample_all()
            assert other.error is None
            assert other.at_s - began_s < DEADLINE_S, "it is not polled after the hanging node"
            assert missed.error is not None
            assert missed.error.startswith("no answer from service:jmx:rmi:///")
            assert missed.values == {}
            again = source.sample_all()[0]
            assert again.error is not None, "a hanging poll is not repeated"
            hung.resume()
            assert_recovers(source)


def test_a_restarted_node_is_sampled_again_and_another_at_its_address_is_not(jvm: Any) -> None:
    (port,) = free_ports(1)
    with JmxNode(1, port) as node, closing(open_jmx({1: node.address}, jvm, DEADLINE_S)) as source:
        assert source.sample_all()[0].error is None
        node.kill()
        assert source.sample_all()[0].error is not None
        with JmxNode(1, port) as again:
            assert assert_recovers(source).values["leader_partitions"] == 10
            again.kill()
            assert source.sample_all()[0].error is not None
        with JmxNode(2, port):
            (other,) = source.sample_all()
    assert other.values == {}
    assert other.error is not None
    assert "leads to node 2, and the first one led to node 1" in other.error


def test_beans_that_are_registered_at_their_first_use_are_read_from_then_on(jvm: Any) -> None:
    bean = "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Produce,error="
    errors = ("NONE", "MESSAGE_TOO_LARGE", "NOT_ENOUGH_REPLICAS")
    with JmxNode(1) as node, closing(open_jmx({1: node.address}, jvm, 10.0)) as source:
        assert "log_flush_ms_count" not in source.sample_all()[0].values
        node.add_meter("kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs")
        (sample,) = source.sample_all()
        assert sample.values["log_flush_ms_count"] > 0
        assert sample.values["leader_partitions"] == 10
        for number, error in enumerate(errors, 1):  # errors stand beside each other
            node.add_meter(f"{bean}{error}")
            (sample,) = source.sample_all()
            shown = {each for each in sample.values if each.startswith("produce_errors")}
            assert shown == {f"produce_errors:{each}" for each in errors[:number]}


def test_more_brokers_than_are_polled_at_a_time_are_all_sampled(jvm: Any) -> None:
    count = 70  # more than the poller's AT_A_TIME
    with (
        simulated_jmx(count) as brokers,
        closing(DriverJvmSource(jvm, brokers.endpoints, 60.0)) as source,
    ):
        source.open()
        before = brokers.calls()
        rounds = [source.sample_all() for _ in range(2)]
        calls = brokers.calls() - before
    of_kafka = {name for name, *_ in beans_of_a_broker() if name.startswith("kafka.")}
    read = {name for name in of_kafka if "app-info" not in name}
    assert calls == 2 * count * len(read), "one call for each bean"
    beans = readings_of(beans_for(VERSION, (Role.BROKER,)))
    for samples in rounds:
        assert [(each.broker_id, each.error) for each in samples] == [
            (i, None) for i in range(1, count + 1)
        ]
        for each in samples:
            names = {name.partition(":")[0] for name in each.values}
            assert names == {reading.name for reading in beans} | {SILENT_MS, POLL_MS}


def assert_recovers(source: MetricsSource) -> BrokerSample:
    """Sample until all nodes answer again, and return the sample; each poll waits for an answer."""
    end_s = time.monotonic() + 30.0
    while True:
        samples = source.sample_all()
        if all(sample.error is None for sample in samples):
            return samples[0]
        assert time.monotonic() < end_s, [sample.error for sample in samples]


POLLS = 3
QUICK_S = 1.0
"""Interval between two samples of the workload `quick` [s]."""


@pytest.mark.parametrize("round_trip_s", [0.06, pytest.param(0.025, marks=pytest.mark.long)])
def test_a_distant_broker_is_sampled_within_the_interval(round_trip_s: float) -> None:
    with (
        delayed_jmx(1, round_trip_s) as brokers,
        bare_jvm() as (jvm, _),
        closing(DriverJvmSource(jvm, brokers.endpoints, 10.0)) as source,
    ):
        source.open()
        before = brokers.calls()
        samples = [source.sample_all()[0] for _ in range(POLLS)]
        calls = brokers.calls() - before
    of_kafka = {name for name, *_ in beans_of_a_broker() if name.startswith("kafka.")}
    read = {name for name in of_kafka if "app-info" not in name}
    assert calls == POLLS * len(read), "one call for each bean, whatever the distance"
    wanted = {reading.name for reading in readings_of(beans_for(VERSION, (Role.BROKER,)))}
    for sample in samples:
        assert sample.error is None
        assert wanted <= {name.partition(":")[0] for name in sample.values}
    # A poll whose calls were made one after another would take this long at least.
    in_a_row_s = len(read) * round_trip_s
    fastest_s = min(sample.values[POLL_MS] for sample in samples) / 1e3
    assert round_trip_s < fastest_s < in_a_row_s / 3
    assert least_interval_s(FirstPolls(nodes_s=(fastest_s,)), 10.0, SAMPLES_MIN) <= QUICK_S
