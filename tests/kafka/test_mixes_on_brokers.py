"""A mix on real brokers: its parts, a skewed one among them, under a profile."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.config import load
from jobs.console.events import RecordingReporter
from jobs.runs.context_factory import RunOrder
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import execute
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file
from metrics.tables.store import TableStore
from metrics.traffic.clients import zipf_weights
from metrics.traffic.profile import RateProfile
from metrics.trial.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

MIX = """
description: orders that prefer some partitions, and clicks
mix:
  orders:
    producers: 4
    message_bytes: 500
    producer: {rate_records_per_s: 50, linger_ms: 5, batch_size: 1024, partition_skew: 1}
    topic: {partitions_per_broker: 2, replication_factor: 1}
  clicks:
    producers: 4
    message_bytes: 100
    producer:
      rate_records_per_s: 40
      linger_ms: 20
      batch_size: 1024
      sticky_partition: round_robin
    topic: {count: 2, partitions_per_broker: 1, replication_factor: 2}
trial: {warmup_s: 3, measure_s: 4, sample_interval_s: 0.5}
"""
SHORT = (
    "cluster.warm_up_max_s=0",
    "goal.indicators.achieved_min=0.9",
    # A busy machine takes few samples, and the load changes between two of them.
    "goal.validity.missed_samples_max=0.9",
    "goal.validity.others_share_max=0.5",
)
STEP = RateProfile("step", ((0, 0.5), (8, 0.5), (8, 2), (16, 2)))
WINDOWS, PER_S = 4, {"orders": 200.0, "clicks": 160.0}


@pytest.fixture
def workload(tmp_path: Path) -> str:
    file = tmp_path / "mixed.yaml"
    file.write_text(MIX, encoding="utf-8")
    return str(file)


def test_a_mix_follows_a_profile_and_its_skewed_part_prefers_the_first_partitions(
    kafka_testbed: Testbed, spark: SparkSession, workload: str, tmp_path: Path
) -> None:
    cluster = str(cluster_file(kafka_testbed.folder))
    config = load(cluster, workload, "default", SHORT).in_full
    size = config.workload.message_bytes[0]
    run = FixedLoadRun(config, FixedLoad(size, 100, duration_s=4.0 * WINDOWS, profile=STEP))
    order = RunOrder(tmp_path, reporter=RecordingReporter(), run_id="mixed")
    execute(run, order)

    assert [each.pattern.load for each in run.trials] == [100] * WINDOWS
    for trial, share in zip(run.trials, (0.5, 0.5, 2.0, 2.0), strict=True):
        parts = trial.evidence.client.parts
        for name, per_s in PER_S.items():
            counts = parts[name].counts
            assert counts.offered_records == pytest.approx(4 * per_s * share, rel=0.02)
        whole = trial.evidence.client.counts
        assert whole.acked_records == sum(own.counts.acked_records for own in parts.values())
    _assert_skew(run.trials)
    kept = TableStore(spark, order.tables_or_default).read("parts", "mixed").collect()
    assert {(row.trial, row.part) for row in kept} == {
        (number, name) for number in range(1, WINDOWS + 1) for name in PER_S
    }


def _assert_skew(trials: list[Trial]) -> None:
    """The partitions of the orders have shares by Zipf's law, those of the clicks equal ones."""
    sent: Counter[int] = Counter()
    for trial in trials:
        sent.update(trial.evidence.client.counts.sent_by_partition)
    weights = zipf_weights(6, 1.0)
    orders = [sent[number] for number in range(6)]
    for found, weight in zip(orders, weights, strict=True):
        assert found / sum(orders) == pytest.approx(weight / sum(weights), abs=0.1)
    clicks = [sent[number] for number in range(6, 12)]
    assert len(sent) == 12
    assert max(clicks) < 1.5 * min(clicks)
