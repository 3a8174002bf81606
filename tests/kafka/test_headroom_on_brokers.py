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
from click.testing import CliRunner

from jobs.config import load
from jobs.console.events import RecordingReporter
from jobs.headroom import headroom
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.limit import LimitRun
from jobs.runs.options import RunOptions
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from tests.support.neighbors import Neighbor, steady

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
        order = RunOrder(RecordingReporter(), RunOptions(out), "limit")
        assert execute(LimitRun(config), order) == 0
        (summary,) = out.glob("*/summary.json")
        (point,) = json.loads(summary.read_text())["boundaries"]
        log.warning("limit: %s to %s producers", point["load_low"], point["load_high"])
        found = {}
        for share in SHARES:
            file = tmp_path / f"{share}.json"
            with production(testbed, share):
                done = CliRunner().invoke(
                    headroom,
                    [f"--cluster={cluster}", f"--run={summary.parent.name}", f"--out={out}",
                     "--window=20s", f"--json={file}"],
                    standalone_mode=False, catch_exceptions=False,
                )  # fmt: skip
            assert done.return_value == 0, done.output
            log.warning("at %.0f %%:\n%s", 100 * share, done.output)
            rows = json.loads(file.read_text())["rows"]
            found[share] = next(row for row in rows if row["resource"] == "request handlers")
    for share, row in found.items():
        assert row["times"] == pytest.approx(1 / share, rel=NEAR), (share, row)
        assert row["times_low"] <= row["times"] <= row["times_high"]
