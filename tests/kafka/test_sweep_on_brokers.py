"""Sweeps on real brokers: cases, an interruption, a volume, and an extension's measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.console.events import RecordingReporter, TrialFinished
from jobs.features.sweep.cases import load_sweep
from jobs.features.sweep.from_tables import read_sweep
from jobs.testbed.handle import Testbed
from jobs.trials.unclean_stop import AFTER_SHARE
from metrics.common.errors import ConfigError
from metrics.comparing.figures import Result
from metrics.tables.store import TableStore
from metrics.trial.trial import Trial
from tests.support.added_packages import add_project
from tests.support.kafka_fixtures import REFUSED_SOCKETS
from tests.support.sweeps import load_answer, sweep_of, sweeping, swept

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


FAILOVER = """
asks: failover
load: 2
cluster: testbed
workload: 1kB
set:
  - cluster.testbed.brokers=2
  - cluster.warm_up_max_s=0
  - workload.topic.replication_factor=2
  - workload.trial.warmup_s=1
  - workload.trial.measure_s=30
  - workload.trial.drain_timeout_s=30
axes:
  workload.topic.partitions_per_broker: [1, 4]
"""
SESSION_TIMEOUT_S = 9.0
"""The default of broker.session.timeout.ms, after which a controller fences a broker [s]."""
HEARTBEAT_S = 2.0
"""The default of broker.heartbeat.interval.ms [s]."""


class Killed(RecordingReporter):
    """A reporter that interrupts the run after a number of trials."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._left = after

    def report(self, event: object) -> None:
        super().report(event)  # type: ignore[arg-type]
        if isinstance(event, TrialFinished):
            self._left -= 1
            if not self._left:
                raise KeyboardInterrupt


def trials_of(reporter: RecordingReporter) -> list[Trial]:
    return [event.trial for event in reporter.events if isinstance(event, TrialFinished)]


@pytest.mark.usefixtures("empty_tables")
def test_a_resumed_sweep_measures_no_case_twice(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    sweep = sweep_of(tmp_path, kafka_testbed, TEXT)
    killed = Killed(after=2)
    with pytest.raises(KeyboardInterrupt):
        sweeping(sweep, tmp_path, killed).run()
    reporter = RecordingReporter()
    resumed = sweeping(sweep, tmp_path, reporter)
    resumed.run()
    made = trials_of(reporter)
    assert len(made) == 1, "the first case was measured before the interrupt"
    assert resumed.outcome(None).exit_code == 0
    assert {each.settings[ACKS] for each in resumed.results} == {"1", "all"}
    by_acks: dict[str, Result] = {each.settings[ACKS]: each for each in resumed.results}
    both = (trials_of(killed)[0], *made)
    counted: dict[str, Trial] = {each.pattern.producer.options.acks: each for each in both}
    for acks, each in by_acks.items():
        client = counted[acks].evidence.client
        assert client.counts.offered_records == pytest.approx(4 * 250 * 2, abs=4)
        assert each.value == client.achieved_mb_per_s
        assert each.p99_ms is not None and each.p99_ms > 0
    (found,) = load_answer(tmp_path / "s1" / "sweep.json").effects
    assert found.count == 1
    kept = TableStore(spark, str(tmp_path / "tables"))
    again = read_sweep(kept)
    assert (again.sweep_id, again.axes, again.unit) == ("s1", {ACKS: ("1", "all")}, "MB/s")
    assert [each.value for each in again.results] == [by_acks[n].value for n in ("1", "all")]
    assert kept.read("trials").count() == 3
    plan = json.loads((tmp_path / "s1" / "experiment.json").read_text())
    assert sorted(plan["cases"].values()) == ["acks=1", "acks=all"]

    other = sweep_of(tmp_path, kafka_testbed, TEXT.replace("load: 4", "load: 5"))
    with pytest.raises(ConfigError, match=r"s1/experiment\.json"):
        sweeping(other, tmp_path, RecordingReporter()).run()


@pytest.mark.long
@pytest.mark.usefixtures("refused_sockets")
@pytest.mark.filterwarnings(REFUSED_SOCKETS)
@pytest.mark.timeout(600)
def test_a_failover_in_a_sweep_has_a_duration_and_loses_no_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(FAILOVER, encoding="utf-8")
    running = sweeping(load_sweep(str(file), ()), tmp_path, RecordingReporter())
    running.run()
    assert running.outcome(None).exit_code == 0
    assert len(running.results) == 2
    for found in running.results:
        assert found.value is not None, found.why
        # The controller fences the broker a session after its last heartbeat at the earliest; the
        # run checks until the end of the window.
        assert SESSION_TIMEOUT_S - 3 * HEARTBEAT_S < found.value < 30 * (1 - AFTER_SHARE)
    rows = TableStore(spark, str(tmp_path / "tables")).read("trials").collect()
    assert len(rows) == 2
    for row in rows:
        assert row["failed_total"] == 0
        assert row["recovery_s"] is None, "a run does not wait for a killed broker"
        assert row["acked_total"] > 0


GROUPS = "workload.consumers.groups"
RECORDS = 4_000
VOLUME = f"""
asks: drain
load: 8
workload: 1kB
set:
  - cluster.warm_up_max_s=0
  - workload.topic.replication_factor=1
  - workload.trial.volume_bytes={RECORDS * 1_000}
  - workload.trial.measure_s=3
cases: [{{{GROUPS}: 2}}]
"""


@pytest.mark.long
@pytest.mark.usefixtures("empty_tables")
def test_a_volume_is_written_whole_and_then_read_whole(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    under_way = swept(tmp_path, kafka_testbed, VOLUME)
    (answer,) = under_way.results
    assert answer.settings[GROUPS] == "2"

    tables = TableStore(spark, str(tmp_path / "tables"))
    wrote, read = tables.read("trials").orderBy("trial").collect()
    assert wrote.offered_records == wrote.acked_total == RECORDS
    assert wrote.end_offset_growth_records == RECORDS
    # 8 producers of 0.25 MB/s take 2 s for the volume, and write nothing afterwards.
    assert wrote.last_acked_s == pytest.approx(2.0, abs=0.9)
    assert (read.offered_records, read.acked_total) == (0, 0)
    assert read.end_offset_growth_records == 0
    assert len(read.groups) == 2
    for group in read.groups:
        assert (group.records_total, group.unread_records) == (RECORDS, 0)
        assert 0 < group.last_read_s < 3
    assert answer.value == max(group.last_read_s for group in read.groups)

    again = read_sweep(tables)
    assert (again.asks, again.unit) == ("drain", "s")
    assert [each.value for each in again.results] == [answer.value]


BUSY = "goal.indicators.request_handler_idle_min"
REST = f"""
asks: time-to-rest
load: 8
workload: 1kB
set:
  - cluster.warm_up_max_s=0
  - workload.topic.replication_factor=1
  - workload.trial.warmup_s=1
  - workload.trial.measure_s=3
cases: [{{{BUSY}: 0.9999}}]
"""
"""No handler is that idle under a load, so that a small one counts as an overload."""


@pytest.mark.long
def test_the_time_to_rest_is_measured_and_read_back(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_project(monkeypatch, tmp_path, "rest")
    under_way = swept(tmp_path, kafka_testbed, REST)
    (answer,) = under_way.results
    assert answer.value is not None and 0.0 <= answer.value < 60.0
    tables = TableStore(spark, str(tmp_path / "tables"))
    (row,) = tables.read("trials").collect()
    assert (row.verdict, row.recovery_s) == ("OVERLOADED", answer.value)
    (run,) = tables.run_rows(answer.run_id)
    assert run.measurement == "time-to-rest"
    again = read_sweep(tables)
    assert (again.asks, again.unit, again.kind.word) == ("time-to-rest", "s", "time to rest")
    assert [each.value for each in again.results] == [answer.value]
    assert again.columns[-2:] == ("low idle", "bound by")
