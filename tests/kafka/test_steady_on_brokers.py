"""A burst limit that memory carries, and the steady limit below it: a broker with a slow disk."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.config import load
from jobs.config.link import PlantedDisk
from jobs.console.events import RecordingReporter, TrialFinished
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.limit import LimitRun
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from jobs.testbed.planted_devices import planted_disk_problem
from metrics.common.errors import NoConclusionError
from metrics.judging.disk_proof import proof_of
from metrics.reporting.limit_answer import proof_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DISK_MB_PER_S = 10
LOAD_MB_PER_S = 32
LACKING = planted_disk_problem(PlantedDisk(f"{DISK_MB_PER_S}MB/s", dirty_bytes=0))

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(LACKING is not None, reason=LACKING or ""),
]

OPTIONS = (
    "cluster.warm_up_max_s=0",
    "workload.message_bytes=[1000]",
    "workload.producer.rate_bytes_per_s=1000000",
    "workload.producer.batch_size=131072",
    "workload.topic.replication_factor=1",
    "workload.topic.config.retention.bytes=1073741824",
    "workload.trial.warmup_s=1",
    "workload.trial.measure_s=8",
    "workload.trial.sample_interval_s=1",
    "goal.search.steady_s=66",
    f"goal.search.load_start_max={LOAD_MB_PER_S}",
    f"goal.search.load_cap={LOAD_MB_PER_S}",
)
"""Producers of 1 MB/s; the highest load that is offered is sustained by memory."""


@pytest.fixture
def testbed() -> Iterator[Testbed]:
    overrides: dict[str, object] = {
        "disk.write_rate": f"{DISK_MB_PER_S}MB/s",
        "disk.dirty_bytes": 0,  # the kernel decides what waits in memory, as on most brokers
        "disk_limit_bytes": 20_000_000_000,
    }
    with start("planted-disk", brokers=1, overrides=overrides, name="steady") as running:
        yield running


def test_memory_carries_a_burst_and_the_disk_the_steady_limit(
    testbed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    reporter = RecordingReporter()
    config = load(str(cluster_file(testbed.folder)), "1kB", "default", OPTIONS)
    order = RunOrder(tmp_path, reporter=reporter, run_id="steady")
    with pytest.raises(NoConclusionError, match=f"sustained at {LOAD_MB_PER_S} producers"):
        execute(LimitRun(config), order)
    trials = [each.trial for each in reporter.events if isinstance(each, TrialFinished)]
    for each in trials:
        said = proof_words(proof_of(each))
        log.warning("%d MB/s, steady %s: %s, %s", each.load, each.steady, each.verdict, said)
    (point,) = json.loads((order.folder / "summary.json").read_text())["boundaries"]
    log.warning("%s", {name: point[name] for name in point if "steady" in name or "pro" in name})
    assert point["load_sustained"] == LOAD_MB_PER_S
    assert point["proven_on_disk"] is False
    assert point["memory_bytes"] > 0.5 * point["proven_bytes"]
    assert 0.8 * DISK_MB_PER_S <= point["steady_mb_per_s"] <= DISK_MB_PER_S
    assert point["steady_s"] >= 59.0
    assert f" of {LOAD_MB_PER_S}.0 MB/s" in point["steady_note"]
    held = [each.load for each in trials if each.steady]
    assert held[0] == LOAD_MB_PER_S and len(held) == 2, "the second load is what the disk wrote"
