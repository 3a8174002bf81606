"""Headroom of production on brokers whose limit is planted, at three shares of it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.config import load
from jobs.headroom import headroom
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from tests.support.commands import answered
from tests.support.neighbors import Neighbor, steady
from tests.support.runs import limits_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BROKERS, HANDLERS, STATED_S, OWN_S = 3, 4, 0.060, 0.0006
REQUESTS_PER_S = 0.8 * BROKERS * HANDLERS / (STATED_S + OWN_S)
"""Produce requests that the brokers take at the limit [1/s]."""
WRITERS = 8
"""A broker answers one request of a connection after the other, so that one writer cannot send more
than 16 requests a second to each broker."""
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


@contextmanager
def production(testbed: Testbed, share: float) -> Iterator[list[Neighbor]]:
    """Writers of requests that take this share of the planted limit."""
    each = steady(share * REQUESTS_PER_S / WRITERS)
    with ExitStack() as stack:
        writers = [stack.enter_context(Neighbor(testbed, each)) for _ in range(WRITERS)]
        threading.Event().wait(SETTLED_S)
        yield writers


def test_headroom_is_that_of_the_planted_limit(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bed = start("calibrated", brokers=BROKERS, root=tmp_path / "bed", name="production")
    with bed as testbed:
        cluster = str(cluster_file(testbed.folder))
        config = load(cluster, "calibrated", "default", OPTIONS)
        (point,) = limits_of(config, out, "limit")
        log.warning("limit: %s to %s producers", point["load_low"], point["load_high"])
        found = {}
        for share in SHARES:
            file = tmp_path / f"{share}.json"
            with production(testbed, share):
                options = ("--run=limit", f"--out={out}", "--window=20s", f"--json={file}")
                output = answered(headroom, f"--cluster={cluster}", *options)
            log.warning("at %.0f %%:\n%s", 100 * share, output)
            rows = json.loads(file.read_text())["rows"]
            found[share] = next(row for row in rows if row["resource"] == "request handlers")
    for share, row in found.items():
        assert row["times"] == pytest.approx(1 / share, rel=NEAR), (share, row)
        assert row["times_low"] <= row["times"] <= row["times_high"]
