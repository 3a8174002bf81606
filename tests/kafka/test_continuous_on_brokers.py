"""A load without a gap on real brokers, in windows: each record is in exactly one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.config import load
from jobs.console.events import RecordingReporter, TrialFinished
from jobs.runs.context_factory import RunOrder
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import execute
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file
from metrics.common.errors import NoConclusionError
from metrics.reporting.summary import load_summary
from metrics.tables.store import TableStore
from metrics.traffic.profile import RateProfile
from metrics.trial.client import ClientWindow, TaskReport, merge
from metrics.trial.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = (
    "cluster.warm_up_max_s=0",
    "workload.topic.replication_factor=1",
    "workload.consumers.groups=1",
    "workload.trial.warmup_s=1",
    "workload.trial.measure_s=3",
    "workload.trial.sample_interval_s=0.25",
    # Records in flight at the end of 3 s can be a hundredth of all.
    "goal.indicators.achieved_min=0.95",
)
WINDOWS = 4
PRODUCERS, RECORDS_PER_S = 3, 250.0
STEP = RateProfile("step", ((0, 0.5), (6, 0.5), (6, 2), (12, 2)))


@pytest.mark.usefixtures("empty_tables")
@pytest.mark.parametrize("profile", [pytest.param(None, marks=pytest.mark.long), STEP])
def test_windows_follow_each_other_and_every_record_is_in_one_of_them(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path, profile: RateProfile | None
) -> None:
    config = load(str(cluster_file(kafka_testbed.folder)), "1kB", "default", OPTIONS).in_full
    fixed_load = FixedLoad(1_000, PRODUCERS, duration_s=3.0 * WINDOWS, profile=profile)
    run, reporter = FixedLoadRun(config, fixed_load), RecordingReporter()
    order = RunOrder(tmp_path, reporter=reporter, run_id="hold")
    execute(run, order)

    page = (order.folder / "report.html").read_text(encoding="utf-8")
    assert f'aria-label="Trial {WINDOWS} over time"' in page
    trials = run.trials
    assert len(trials) == WINDOWS
    assert [each.number for each in trials] == [1, 2, 3, 4]
    shares = [1.0] * WINDOWS if profile is None else [0.5, 0.5, 2.0, 2.0]
    for trial, share in zip(trials, shares, strict=True):
        client = trial.evidence.client
        assert client.duration_s == pytest.approx(3.0)
        assert client.counts.offered_records == pytest.approx(
            PRODUCERS * RECORDS_PER_S * 3 * share, abs=2 * PRODUCERS
        )
        assert client.counts.acked_records == pytest.approx(
            client.counts.offered_records, rel=0.1
        ), "records in flight at one end are in the next window"
        (group,) = client.groups
        assert group.counts.records == pytest.approx(client.counts.offered_records, rel=0.1)
        assert len(trial.evidence.brokers) == 3
        others = trial.evidence.others
        assert others is not None and others.messages_per_s < 0.1 * PRODUCERS * RECORDS_PER_S
    for one, other in pairwise(trials):
        assert other.evidence.client.start_s == pytest.approx(one.evidence.client.end_s, abs=1e-3)

    warm_up = PRODUCERS * RECORDS_PER_S * shares[0]
    offered = sum(sum(t.evidence.client.counts.by_producer.offered.values()) for t in trials)
    out_of_step = PRODUCERS * config.workload.pattern(1_000).producer.records_per_batch
    planned = warm_up + PRODUCERS * RECORDS_PER_S * 3 * sum(shares)
    assert offered == pytest.approx(planned, abs=out_of_step)
    accounts = [trial.evidence.client.counts.by_producer for trial in trials]
    behind = list(accumulate(sum(a.offered.values()) - sum(a.sent.values()) for a in accounts))
    sent = offered - behind[-1]
    acked = sum(trial.evidence.client.counts.acked_total for trial in trials)
    assert acked == sent, "each record once, in any window"
    # A broker or a machine that stalls delays the due records for a short time only.
    assert 0 <= min(behind[1:]) <= out_of_step, "all records except those of open batches were sent"
    (group,) = trials[-1].evidence.client.groups
    read = sum(trial.evidence.client.groups[0].records_total for trial in trials)
    assert (read, group.counts.unread_records) == (acked, 0)

    assert_kept(TableStore(spark, str(tmp_path / "tables")), trials, profile)
    assert len(load_summary(tmp_path / "hold" / "summary.json").trials) == WINDOWS
    assert len([e for e in reporter.events if isinstance(e, TrialFinished)]) == WINDOWS


def assert_kept(tables: TableStore, trials: Sequence[Trial], profile: RateProfile | None) -> None:
    rows = tables.trials("hold").orderBy("trial").collect()
    assert [(row.trial, row.held) for row in rows] == [(n, True) for n in (1, 2, 3, 4)]
    assert {row.rate_profile for row in rows} == {profile.name if profile else None}
    counts = tables.read("samples", "hold").groupBy("trial", "broker_id").count()
    kept = {(row["trial"], row["broker_id"]): row["count"] for row in counts.collect()}
    for trial in trials:
        for each in trial.evidence.brokers:
            # A busy machine samples late, but each sample of a window is kept.
            seen = each.samples_expected - each.samples_missed
            assert kept[trial.number, each.broker_id] >= seen - 1


@pytest.mark.long
@pytest.mark.usefixtures("empty_tables")
def test_a_surplus_record_in_the_topic_is_reported(
    kafka_testbed: Testbed, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account covers the whole load, so the loss of one window's acknowledgements shows."""
    options = (*OPTIONS, "workload.trial.measure_s=1")
    config = load(str(cluster_file(kafka_testbed.folder)), "1kB", "default", options).in_full
    run = FixedLoadRun(config, FixedLoad(1_000, PRODUCERS, duration_s=2.0))
    order = RunOrder(tmp_path, reporter=RecordingReporter(), run_id="lost")

    def merge_with_loss(reports: list[TaskReport]) -> ClientWindow:
        client = merge(reports)
        return replace(client, counts=replace(client.counts, acked_by_partition={}))

    monkeypatch.setattr("jobs.trials.measure.merge", merge_with_loss)
    with pytest.raises(NoConclusionError, match="the records of the whole load do not add up"):
        execute(run, order)
    assert len(run.trials) == 2, "measured windows are kept"
