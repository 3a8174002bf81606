"""The wire model compared with the socket counters of real brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jobs.testbed.handle import Testbed
from metrics.planning.load_needs import Assumptions, batch_bytes, wire_bytes
from metrics.sources.source import brokers_of
from metrics.traffic.pattern import TopicOptions
from metrics.windows.broker import BrokerWindow, broker_windows
from tests.support.loaded_brokers import loaded
from tests.support.patterns import pattern, producer_pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLICAS = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
ENGINE = producer_pattern(1_000, 200.0, linger_ms=50.0)


@pytest.mark.long
def test_the_model_is_within_three_percent_of_the_sockets_counters(
    spark: SparkSession, kafka_testbed: Testbed
) -> None:
    with loaded(kafka_testbed, spark._jvm) as brokers, brokers.topic(REPLICAS, {}) as topic:
        # The brokers are at rest at both edges, so no request is in flight there.
        before = brokers.source.sample_all()
        seen = brokers.trial(topic, REPLICAS, ENGINE, producers=6, warmup_s=1.0, measure_s=4.0)
        brokers.await_replicated(topic, REPLICAS, seen.evidence.client.counts.acked_total)
        samples = [*before, *brokers.source.sample_all()]
        ids = brokers_of(brokers.source)
    windows = broker_windows(samples, ids, samples[0].at_s - 1, samples[-1].at_s + 1, 1.0)
    offered = replace(pattern(topic=TopicOptions(replication_factor=2)), producer=ENGINE)
    names = Assumptions(topic_bytes=len(topic), client_id_bytes=len(f"redline-{topic}-0"))
    model = wire_bytes(offered, given=names)
    batches = batch_bytes(ENGINE) / ENGINE.records_per_batch
    messages = per_s(windows, "messages_in_per_s")
    assert messages > 0
    assert per_s(windows, "bytes_in_per_s") / messages == pytest.approx(batches, rel=0.01)
    replicated = per_s(windows, "replication_bytes_in_per_s") / messages
    assert replicated == pytest.approx(batches, rel=0.01)
    served_in = per_s(windows, "network_in_bytes_per_s") / messages
    assert served_in == pytest.approx(model.served_in, rel=0.03)
    served_out = per_s(windows, "network_out_bytes_per_s") / messages
    assert served_out == pytest.approx(model.served_out, rel=0.03)


def per_s(brokers: tuple[BrokerWindow, ...], rate: str) -> float:
    values = [getattr(window, rate) for window in brokers]
    assert all(value is not None for value in values), f"{rate} is unknown: {values}"
    return float(sum(values))
