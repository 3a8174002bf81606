"""Headroom of production on brokers whose limit is planted, at three shares of it."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.config import load
from jobs.testbed.launcher import cluster_file, start
from tests.support.neighbors import production
from tests.support.runs import handlers_today, limits_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BROKERS, HANDLERS, STATED_S, OWN_S = 3, 4, 0.060, 0.0006
REQUESTS_PER_S = 0.8 * BROKERS * HANDLERS / (STATED_S + OWN_S)
"""Produce requests that the brokers take at the limit [1/s]."""
SHARES = (0.3, 0.6, 0.9)
NEAR = 0.10
SETTLED_S = 3.0
OPTIONS = (
    "workload.message_bytes=[1000]",
    "workload.trial.warmup_s=1",
    "workload.trial.measure_s=6",
    "cluster.warm_up_max_s=10",
    "goal.search.resolution=0.1",
    "goal.search.load_start_max=64",
    "goal.search.steady_s=0",
    "goal.search.check_for_change=false",
)


def test_headroom_is_that_of_the_planted_limit(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bed = start("calibrated", brokers=BROKERS, root=tmp_path / "bed", name="production")
    with bed as testbed:
        cluster = cluster_file(testbed.folder)
        config = load(str(cluster), "calibrated", "default", OPTIONS)
        (point,) = limits_of(config, out, "limit")
        log.warning("limit: %s to %s producers", point["load_low"], point["load_high"])
        found = {}
        for share in SHARES:
            with production(testbed, share * REQUESTS_PER_S):
                time.sleep(SETTLED_S)
                found[share], _ = handlers_today(cluster, "limit", out, "20s")
    for share, row in found.items():
        assert row["times"] == pytest.approx(1 / share, rel=NEAR), (share, row)
        assert row["times_low"] <= row["times"] <= row["times_high"]
