"""A quota planted in a real broker is found as the limit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.cluster.connect import connect
from jobs.config import Configuration, load
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from tests.support.loaded_brokers import quota
from tests.support.runs import limits_of

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


def test_find_limit_finds_the_quota_that_all_producers_share(
    testbed: Testbed, config: Configuration, tmp_path: Path, spark: SparkSession
) -> None:
    with (
        connect(testbed.bootstrap_servers) as admin,
        quota(admin, "producer_byte_rate", PLANTED_BYTES_PER_S, kind="user"),
    ):
        (point,) = limits_of(config, tmp_path, "quota")
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
