"""Sockets to real brokers from both ends, and producers in a closed loop."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.testbed.handle import Testbed
from jobs.trials.broker_sockets import BrokerSockets
from jobs.trials.control_server import ControlServer
from metrics.tables.store import TableStore
from tests.support.engine_bench import Bench
from tests.support.patterns import pattern
from tests.support.running_loads import running
from tests.support.sweeps import swept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figures are Linux's")

HELD = """
asks: load
load: 2
workload: 1kB
set:
  - cluster.warm_up_max_s=0
  - workload.topic.replication_factor=1
  - workload.producer.rate_bytes_per_s=null
  - workload.producer.rate=unlimited
  - workload.trial.warmup_s=1
  - workload.trial.measure_s=2
  - workload.producer.send_buffer_bytes=200000
cases: [{workload.producer.max_in_flight: 5}]
"""


def test_a_window_has_the_sockets_to_each_broker(bench: Bench) -> None:
    client = bench.run(producers=3, send_buffer_bytes=100_000, receive_buffer_bytes=50_000)
    assert set(client.producer_sockets) == set(bench.brokers)
    for found in client.producer_sockets.values():
        assert (found.connections, found.watched) == (3, 3)
        assert found.looks >= 3 * 4, "four per second in 1.5 s, and one at the end"
        assert (found.send_buffer_bytes, found.receive_buffer_bytes) == (200_000, 100_000)
        assert found.rtt_min_ms is not None and 0 < found.rtt_min_ms < 2
        assert found.retransmitted_bytes <= found.sent_bytes
    sent = sum(found.sent_bytes for found in client.producer_sockets.values())
    # Records of the warm-up can be acknowledged in the window; cold brokers are late.
    assert sent >= 0.9 * 1_000 * client.counts.sent_records, "payload and framing"
    (host,) = client.kernel_buffers
    assert len(host.tcp_rmem) == len(host.tcp_wmem) == 3


def test_a_closed_loop_arrives_whole_and_is_faster_than_the_stated_rate(bench: Bench) -> None:
    paced = bench.run(producers=2)
    before = sum(bench.end_offsets().values())
    client = bench.run(
        producers=2, rate_records_per_s=math.inf, buffer_memory=500_000, pool_bytes=2_000_000
    )
    counts = client.counts
    assert counts.acked_total == sum(bench.end_offsets().values()) - before > 0
    assert counts.failed_total == 0
    assert counts.acked_records > 5 * paced.counts.acked_records
    assert (counts.offered_records, client.offered_mb_per_s) == (0, None)
    assert client.achieved_mb_per_s is not None and client.achieved_mb_per_s > 3
    assert math.isnan(client.lateness_p99_ms)
    # buffer_memory limits the waiting records, so the drain takes at most this time.
    drain_ms = 1000 * 2 * 2 * 516_384 / 1e6 / client.achieved_mb_per_s
    assert client.latency.p50_ms < drain_ms + 200


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss of iproute2 shows the brokers' ends")
def test_the_brokers_ends_are_seen_while_a_window_lasts(
    kafka_testbed: Testbed, bench: Bench
) -> None:
    looking = BrokerSockets(kafka_testbed.pids, bench.brokers)
    with (
        ControlServer("127.0.0.1", "127.0.0.1") as server,
        server.channel(1) as channel,
        looking.watch(running(pattern(warmup_s=0.5, measure_s=3.0), channel, None)),
    ):
        client = bench.run(producers=3, measure_s=3.0, control=channel.address)
    seen = looking.window_counts()
    assert set(seen) == set(client.producer_sockets) == set(kafka_testbed.broker_ids)
    for broker, ends in seen.items():
        sockets = client.producer_sockets[broker]
        assert ends.connections >= sockets.connections == 3, "and connections of other clients"
        # Kafka requests 102,400 bytes by default; the kernel doubles it.
        assert ends.receive_buffer_bytes == 204_800
        assert 0 < ends.received_bytes <= sockets.sent_bytes + 100_000
        assert ends.rtt_min_ms is not None


@pytest.mark.long
def test_trials_of_a_closed_loop_are_marked_and_name_the_limiting_resource(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    swept(tmp_path, kafka_testbed, HELD)
    (row,) = TableStore(spark, str(tmp_path / "tables")).read("trials").collect()
    assert (row.closed_loop, row.rate_records_per_s) == (True, None)
    assert row.offered_records == 0
    assert row.end_offset_growth_records == row.acked_total > row.acked_records > 0
    assert row.verdict in {"SUSTAINED", "OVERLOADED"}, row.reasons
    assert "closed_loop" in {reason.indicator for reason in row.reasons}
    assert row.limited_by, "the row names the limiting resource, or unknown"
    assert row.limited_by != "connection", "socket buffers do not limit within one machine"
    sockets = row.producer_sockets
    assert set(sockets) == set(kafka_testbed.broker_ids)
    assert {each.send_buffer_bytes for each in sockets.values()} == {400_000}
