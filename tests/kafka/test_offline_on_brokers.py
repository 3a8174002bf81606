"""The limit of real brokers while one of them is away, and while it catches up."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.config import load
from jobs.console.events import RecordingReporter, TrialFinished
from jobs.runs.lifecycle import RunOrder, execute
from jobs.runs.limit import LimitRun
from metrics.tables.store import TableStore
from metrics.trial.state import ALL_BROKERS, CATCHING_UP, offline_state
from search.model import Verdict
from tests.support.commands import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STATED_MS = 40
AWAY = offline_state(1)

PLANTED = (
    "cluster.warm_up_max_s=20",
    "workload.topic.replication_factor=2",
    "workload.trial.warmup_s=1",
    "workload.trial.measure_s=6",
    "goal.indicators.achieved_min=0.95",  # a few batches are a hundredth of a short window
    "goal.search.load_start_max=24",
    "goal.search.resolution=0.12",
    "goal.search.brokers_offline=1",
)


class Telling(RecordingReporter):
    """Logs each trial."""

    def report(self, event: object) -> None:
        super().report(event)  # type: ignore[arg-type]
        if isinstance(event, TrialFinished):
            trial = event.trial
            idle, first = trial.evidence.handler_idle_min, event.reason
            log.warning("%s, np %d, idle %s: %s", trial.state, trial.load, idle, trial.verdict)
            log.warning("  %s", first)


def test_the_rest_is_searched_and_the_broker_catches_up_under_load(
    tmp_path: Path, spark: SparkSession
) -> None:
    profile = tmp_path / "slow.yaml"
    calibrated = (ROOT / "conf" / "testbed" / "calibrated.yaml").read_text()
    profile.write_text(calibrated.replace("handler_ms: 5", f"handler_ms: {STATED_MS}"))
    planted = (f"cluster.testbed.profile={profile}", *PLANTED)
    config = load("testbed", "calibrated", "default", planted)
    order = RunOrder(Telling(), tmp_path, str(tmp_path / "tables"), "away")
    assert execute(LimitRun(config), order) == 0
    points = json.loads((order.folder / "summary.json").read_text())["boundaries"]
    for point in points:
        log.warning("%s: np %s, %s", point["state"], point["np_sustained"], point["notes"])
    assert [point["state"] for point in points] == [ALL_BROKERS, AWAY, CATCHING_UP]
    whole, rest, catching = points
    # The two that are left lead half as many partitions more, so each has its limit at two thirds.
    assert rest["np_sustained"] == pytest.approx(whole["np_sustained"] * 2 / 3, rel=0.25)
    assert rest["np_overloaded"] < whole["np_overloaded"]
    assert rest["mb_per_s_per_broker"] == pytest.approx(rest["mb_per_s"] / 2)
    assert any("by the arithmetic of redline plan 2 of 3 brokers" in n for n in rest["notes"])
    assert catching["np_sustained"] == rest["np_sustained"]
    assert catching["np_overloaded"] is None and catching["confirmed_s"] > 0
    trials = TableStore(spark, str(tmp_path / "tables")).trials_of("away")
    by_state = {state: [t for t in trials if t.state == state] for state in (AWAY, CATCHING_UP)}
    assert all(len(t.evidence.brokers) == 2 for t in trials if t.state != ALL_BROKERS)
    assert {t.verdict for t in by_state[AWAY]} == {Verdict.SUSTAINED, Verdict.OVERLOADED}
    assert all(t.held and t.load == rest["np_sustained"] for t in by_state[CATCHING_UP])
    assert (order.folder / "boundary-1-broker-offline.png").exists()
    assert f"Goal default, {AWAY}" in (order.folder / "report.html").read_text()
