"""A quota planted in a real broker is found as the limit."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.connect import connect
from jobs.config import Configuration, load
from jobs.console.events import Event, RecordingReporter, TrialFinished
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.limit import LimitRun
from jobs.runs.options import RunOptions
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from tests.support.loaded_brokers import quota

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PLANTED_BYTES_PER_S = 4_000_000.0
RATE_BYTES_PER_S = 62_500


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with start("default", brokers=1, overrides={"heap_mb": 512}, name="quota") as running:
        yield running


@pytest.fixture
def config(testbed: Testbed) -> Configuration:
    short = (
        "cluster.warm_up_max_s=20",
        "workload.message_bytes=[1000]",
        f"workload.producer.rate_bytes_per_s={RATE_BYTES_PER_S}",
        "workload.topic.replication_factor=1",
        "workload.trial.warmup_s=1",
        "workload.trial.measure_s=12",
        "goal.search.load_start_max=128",
        "goal.search.steady_s=0",
        "goal.search.resolution=0.02",
    )
    return load(str(cluster_file(testbed.folder)), "calibrated", "within-quota", short)


class LoggingReporter(RecordingReporter):
    """A reporter that logs each trial."""

    def report(self, event: Event) -> None:
        super().report(event)
        if isinstance(event, TrialFinished):
            trial = event.trial
            reasons = [reason.text for reason in trial.judgement.reasons]
            log.warning("%d producers: %s %s", trial.load, trial.verdict, reasons)


def test_find_limit_finds_the_quota_that_all_producers_share(
    testbed: Testbed, config: Configuration, tmp_path: Path, spark: SparkSession
) -> None:
    order = RunOrder(LoggingReporter(), RunOptions(tmp_path), "quota")
    with (
        connect(testbed.bootstrap_servers) as admin,
        quota(admin, "producer_byte_rate", PLANTED_BYTES_PER_S, kind="user"),
    ):
        assert execute(LimitRun(config), order) == 0
    (point,) = json.loads((order.folder / "summary.json").read_text())["boundaries"]
    found = point["np_sustained"] * RATE_BYTES_PER_S
    log.warning(
        "%d producers, %.1f%% of the quota, limited by %s, trials %s",
        point["np_sustained"],
        100 * found / PLANTED_BYTES_PER_S,
        point["limited_by"],
        point["trials"],
    )
    assert 0.95 <= found / PLANTED_BYTES_PER_S <= 1.0
    assert point["limited_by"] == "quota"
    assert any("by a quota" in str(reason) for reason in point["overload_reasons"])
