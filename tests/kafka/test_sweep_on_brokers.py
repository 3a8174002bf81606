"""A sweep on real brokers: its cases, a kill in the middle, and what it says at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.console.events import RecordingReporter, TrialFinished
from jobs.runs.sweep.answer import answer_of
from jobs.testbed.handle import Testbed
from metrics.comparing.sweeps import Result
from metrics.reporting.sweep.from_tables import read_sweep
from metrics.tables.store import TableStore
from search.errors import ConfigError
from tests.support.sweeps import sweep_of, sweeping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACKS = "workload.producer.acks"
TEXT = f"""
asks: load
load: 4
workload: 1kB
set:
  - cluster.warm_up_max_s=0
  - workload.topic.replication_factor=1
  - workload.trial.warmup_s=0.5
  - workload.trial.measure_s=2
axes:
  {ACKS}: ["1", all]
"""


class Killed(RecordingReporter):
    """Interrupts once so many trials were made."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._left = after

    def report(self, event: object) -> None:
        super().report(event)  # type: ignore[arg-type]
        if isinstance(event, TrialFinished):
            self._left -= 1
            if not self._left:
                raise KeyboardInterrupt


def test_a_sweep_that_was_interrupted_measures_no_case_twice(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    sweep = sweep_of(tmp_path, kafka_testbed, TEXT)
    with pytest.raises(KeyboardInterrupt):
        sweeping(sweep, tmp_path, Killed(after=2)).run()
    reporter = RecordingReporter()
    resumed = sweeping(sweep, tmp_path, reporter)
    resumed.run()
    made = [event for event in reporter.events if isinstance(event, TrialFinished)]
    assert len(made) == 1, "the first case was measured before the interrupt"
    assert resumed.ending(None).exit_code == 0
    assert {each.settings[ACKS] for each in resumed.results} == {"1", "all"}
    by_acks: dict[str, Result] = {each.settings[ACKS]: each for each in resumed.results}
    for each in by_acks.values():
        assert each.value == pytest.approx(4 * 0.25, rel=0.05)
        assert each.p99_ms is not None and each.p99_ms > 0
    (found,) = answer_of(resumed, resumed.ending(None)).effects
    assert found.count == 1
    kept = TableStore(spark, str(tmp_path / "tables"))
    again = read_sweep(kept)
    assert (again.sweep_id, again.axes, again.unit) == ("s1", {ACKS: ("1", "all")}, "MB/s")
    assert [each.value for each in again.results] == [by_acks[n].value for n in ("1", "all")]
    assert kept.read("trials").count() == 3
    plan = json.loads((tmp_path / "s1" / "experiment.json").read_text())
    assert sorted(plan["cases"].values()) == ["acks=1", "acks=all"]

    other = sweep_of(tmp_path, kafka_testbed, TEXT.replace("load: 4", "load: 5"))
    with pytest.raises(ConfigError, match="begun with another experiment"):
        sweeping(other, tmp_path, RecordingReporter()).run()
