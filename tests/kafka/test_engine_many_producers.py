"""Thousands of producers in two tasks: each keeps its own rate, in little memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.trial.task import merge
from tests.support.engine_bench import bench_on
from tests.support.process_tasks import run_in_processes

pytestmark = pytest.mark.long

DEVIATION_MAX = 0.005
MEMORY_MAX_BYTES = 100_000
TASKS = 2


@pytest.fixture
def one_broker(tmp_path: Path) -> Iterator[Testbed]:
    with start("default", brokers=1, name="many", root=tmp_path) as running:
        yield running


# 240 records of each producer in the window: one acknowledged beyond its edge is 0.4 %.
@pytest.mark.parametrize(
    ("brokers", "producers", "rate_records_per_s"),
    [("kafka_testbed", 2_000, 2.0), ("one_broker", 10_000, 1.0)],
)
@pytest.mark.timeout(900)
def test_each_of_thousands_of_producers_keeps_its_rate(
    brokers: str,
    producers: int,
    rate_records_per_s: float,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    testbed: Testbed = request.getfixturevalue(brokers)
    measure_s = 240.0 / rate_records_per_s
    with bench_on(testbed, partitions=10, config={"flush.messages": "1000000"}) as bench:
        trial = bench.plan(
            rate_records_per_s=rate_records_per_s,
            message_bytes=100,
            pool_bytes=1_000_000,
            producers=producers,
            tasks=TASKS,
            warmup_s=20.0,  # cold brokers stall, and acknowledge waiting records later
            measure_s=measure_s,
            connect_timeout_s=240.0,
        )
        runs = run_in_processes(trial, timeout_s=measure_s + 270)
        ends = bench.end_offsets()
    assert [run.row.error for run in runs] == [None, None]
    client = merge([run.row for run in runs])
    memory = sum(run.memory_bytes for run in runs) / producers
    counts, share = client.counts, client.producer_share
    with capsys.disabled():
        sys.stdout.write(
            f"\n{producers:,} producers: {memory / 1000:.1f} kB each, shares {share.min:.4f} to "
            f"{share.max:.4f} (worst {share.worst}), loop busy {counts.loop_busy:.0%}, lateness "
            f"p99 {client.lateness_p99_ms:.1f} ms, latency p99 {client.latency.p99_ms:.1f} ms, "
            f"{sum(run.cpu_s for run in runs):.0f} CPU-s to connect and send, in the window "
            f"{counts.cpu_s / producers / measure_s * 1e6:.0f} us a second for each\n"
        )
    assert counts.offered_records == pytest.approx(producers * rate_records_per_s * measure_s, 1e-3)
    assert counts.acked_total == sum(ends.values())
    assert counts.failed_total == 0 == counts.retried_records
    assert share.min is not None and share.max is not None
    assert share.min >= 1 - DEVIATION_MAX
    assert share.max <= 1 + DEVIATION_MAX
    assert memory < MEMORY_MAX_BYTES
