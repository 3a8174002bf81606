"""Two thousand producers in two tasks: each keeps its own rate, in little memory."""

from __future__ import annotations

import sys
import uuid

import pytest

from jobs.cluster.connect import connect
from jobs.cluster.topic_plan import assignment
from jobs.testbed.handle import Testbed
from metrics.trial.task import merge
from tests.support.offsets import end_offsets_of
from tests.support.patterns import plan
from tests.support.process_tasks import run_in_processes

pytestmark = pytest.mark.long

PRODUCERS = 2_000
RATE_RECORDS_PER_S = 2.0
MEASURE_S = 120.0
DEVIATION_MAX = 0.005
MEMORY_MAX_BYTES = 100_000


def test_each_of_two_thousand_producers_keeps_its_rate(
    kafka_testbed: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect(kafka_testbed.bootstrap_servers) as admin:
        topic = f"many-{uuid.uuid4().hex[:8]}"
        assigned = assignment(kafka_testbed.broker_ids, 10, 1)
        admin.create_topic(topic, assigned, {"flush.messages": "1000000"})
        trial = plan(
            trial_id="many",
            topics=(topic,),
            rate_records_per_s=RATE_RECORDS_PER_S,
            pool_bytes=1_000_000,
            np=PRODUCERS,
            tasks=2,
            leaders=tuple(assigned[partition][0] for partition in sorted(assigned)),
            brokers=admin.describe_cluster().addresses,
            warmup_s=20.0,  # cold brokers stall, and what waits then is acknowledged later
            measure_s=MEASURE_S,
            connect_timeout_s=120.0,
        )
        runs = run_in_processes(trial, timeout_s=MEASURE_S + 150)
        ends = end_offsets_of(admin, topic, assigned)
        admin.delete_topic(topic)
    assert [run.row.error for run in runs] == [None, None]
    client = merge([run.row for run in runs])
    memory = sum(run.memory_bytes for run in runs) / PRODUCERS
    counts, share = client.counts, client.producer_share
    with capsys.disabled():
        sys.stdout.write(
            f"\n{PRODUCERS} producers: {memory / 1000:.1f} kB each, shares {share.min:.4f} to "
            f"{share.max:.4f} (worst {share.worst}), loop busy {counts.loop_busy:.0%}, lateness "
            f"p99 {client.lateness_p99_ms:.1f} ms, latency p99 {client.latency.p99_ms:.1f} ms, "
            f"{sum(run.cpu_s for run in runs):.0f} CPU-s\n"
        )
    assert counts.offered_records == pytest.approx(PRODUCERS * RATE_RECORDS_PER_S * MEASURE_S, 1e-3)
    assert counts.acked_total == sum(ends.values())
    assert counts.failed_total == 0 == counts.retried_records
    assert share.min is not None and share.max is not None
    assert share.min >= 1 - DEVIATION_MAX
    assert share.max <= 1 + DEVIATION_MAX
    assert memory < MEMORY_MAX_BYTES
