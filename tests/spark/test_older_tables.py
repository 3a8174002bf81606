"""The tables of version 0.1.0: they are readable, and newer rows can be added."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.report import report
from jobs.runs.resumption import resumed_trials
from metrics.arrow_schema import schema_of
from metrics.columns import as_document, row_of
from metrics.common.errors import ConfigError
from metrics.reporting.notebook_display import points_over_time
from metrics.reporting.summary_tables import read_summary
from metrics.tables import views
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import RunRow
from metrics.tables.store import TableStore
from metrics.traffic.clients import ProducerPattern
from metrics.traffic.pattern import Phases, TopicOptions, TrafficPattern
from metrics.trial.adding import Quantiles
from metrics.trial.consumption import GroupCounts, GroupWindow, ReadRange
from metrics.trial.trial import ALL_BROKERS, Trial
from metrics.windows.series import SERIES
from search.model import Verdict
from tests.support import frames
from tests.support.commands import answered
from tests.support.evidence import client, sample
from tests.support.frames import LIMIT, NIGHT, OLDER, TRAFFIC, assert_rows
from tests.support.nights import case_row
from tests.support.rows import BOUNDARY, trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIALS = {LIMIT: 4, TRAFFIC: 1, NIGHT: 1}
KEYS = {
    "runs": ("run_id", "event"),
    "trials": ("run_id", "trial"),
    "samples": ("run_id", "trial", "broker_id", "at"),
    "boundaries": ("run_id", "goal"),
    "cases": ("run_id", "event"),
}
"""Columns that identify a row of a table; version 0.1.0 had no others."""

GROUP = GroupWindow(
    GroupCounts(0, 3, 10, 100, (1, 2, 3), {"NOT_LEADER": 2}, 1, 4, ("slow",)),
    Quantiles(1.0, 2.0, 3.0, 4.0, 5.0),
    records_total=12,
    reread_records=2,
    read_by_partition=(ReadRange(0, 1, 5, 4),),
)
NEW_TRIAL = trial(5, LIMIT, client=client(groups=(GROUP,)), recovery_s=2.0)
NEW_RUN = RunRow(
    "new", "started", 2e9, "testbed", "demo", "default", 3, config="{}", measurement="limit"
)
NEW_POINT = BoundaryRow("new", 2e9, "testbed", "demo", BOUNDARY)
NEW_CASE = case_row(run_id="new", suite="suite", cluster="testbed", at_s=2e9)

Row = dict[str, Any]


def rows(frame: DataFrame, table: str) -> list[Row]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=key_in(table))


def key_in(table: str) -> Callable[[Row], tuple[Any, ...]]:
    return itemgetter(*KEYS[table])


def assert_says(now: Any, then: Any, where: str = "") -> None:
    """Check that `now` has the values of `then`, and null or an empty value for others.

    Counts that version 0.1.0 did not have, such as commits of transactions, are 0 now.
    """
    if isinstance(then, dict):
        assert then.keys() <= now.keys(), where
        for name, value in now.items():
            if name in then:
                assert_says(value, then[name], f"{where}/{name}")
            else:
                assert value in (None, {}, [], 0), f"{where}/{name}"
    elif isinstance(then, list):
        assert len(now) == len(then), where
        for each, other in zip(now, then, strict=True):
            assert_says(each, other, where)
    else:
        assert now == then or (then is None and now in ({}, [])), where


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs, with tables that this version has not opened."""
    folder = tmp_path_factory.mktemp("older") / "out"
    shutil.copytree(OLDER, folder / "tables")
    return folder


@pytest.fixture
def older(out: Path, spark: SparkSession) -> TableStore:
    return TableStore(spark, str(out / "tables"))


@pytest.fixture(scope="module")
def older_rows(out: Path, spark_for_all: SparkSession) -> dict[str, list[Row]]:
    """Table → its rows, each read once."""
    store = TableStore(spark_for_all, str(out / "tables"))
    return {table: rows(store.read(table), table) for table in KEYS}


@pytest.fixture(scope="module")
def older_trials(out: Path, spark_for_all: SparkSession) -> dict[str, list[Trial]]:
    """Run → its trials, each read once."""
    store = TableStore(spark_for_all, str(out / "tables"))
    return {run_id: store.trials_of(run_id) for run_id in TRIALS}


# --- reading ------------------------------------------------------------------

NOT_READ = ("by_producer", "end_offset_growth_records")
"""Columns of rows that a trial does not have."""


NEWER: Row = {"held": False, "state": ALL_BROKERS}
"""Values of trials whose rows lack the column."""

UNTOLD = TrafficPattern(
    1,
    ProducerPattern(100, 1.0),
    TopicOptions(replication_factor=1),
    Phases(warmup_s=math.nan, measure_s=math.nan),
)
"""Default values of options; version 0.1.0 wrote only some of them into its rows."""


def test_each_trial_has_all_values_of_its_row(
    older: TableStore,
    older_trials: dict[str, list[Trial]],
    older_rows: dict[str, list[Row]],
    spark: SparkSession,
) -> None:
    (plain,) = rows(frames.table(spark, "trials", [row_of(trial(pattern=UNTOLD))]), "trials")
    had = older.read("trials").columns
    lacking = [name for name in schema_of(TrafficPattern).names if name not in had]
    defaults = NEWER | {name: plain[name] for name in lacking}
    assert {"retries", "enable_idempotence", "measure_s"} <= defaults.keys()
    assert {"acks", "linger_ms", "compression", "topics", "ramp_up_s"}.isdisjoint(defaults)
    assert {run_id: len(found) for run_id, found in older_trials.items()} == TRIALS
    found = [row_of(each) for of_run in older_trials.values() for each in of_run]
    now = rows(frames.table(spark, "trials", found).drop(*NOT_READ), "trials")
    then = [
        {name: value for name, value in row.items() if name not in NOT_READ}
        for row in older_rows["trials"]
    ]
    assert_says(now, [{**row, **defaults} for row in then])


def test_the_values_of_a_row_are_in_the_right_fields(
    older_trials: dict[str, list[Trial]], older_rows: dict[str, list[Row]], spark: SparkSession
) -> None:
    trials = {(each.run_id, each.number): each for some in older_trials.values() for each in some}
    assert len(trials) == len(older_rows["trials"]) == sum(TRIALS.values())
    for row in older_rows["trials"]:
        found = trials[row["run_id"], row["trial"]]
        evidence, seen = found.evidence, found.evidence.client
        took_s = (row["finished_at"] - row["started_at"]).total_seconds()
        assert found.load == row["np"]
        assert found.duration_s == pytest.approx(took_s)
        assert seen.start_s == row["window_start"].timestamp()
        assert (found.verdict.value, found.attribution) == (row["verdict"], row["attribution"])
        assert seen.counts.offered_records == row["offered_records"]
        assert seen.counts.acked_by_partition == row["acked_by_partition"]
        assert seen.counts.acked_total == row["acked_total"] == row["end_offset_growth_records"]
        names = ("p50", "p95", "p99", "p999", "max")
        assert seen.latency == Quantiles(*(row[f"latency_{name}_ms"] for name in names))
        for windows, those in (
            (evidence.brokers, row["broker_windows"]),
            (evidence.controllers, row["controller_windows"]),
        ):
            for window, stored in zip(windows, those, strict=True):
                defaults = dict.fromkeys(asdict(window).keys() - stored.keys())
                assert asdict(window) == {**stored, **defaults}
        assert [asdict(each) for each in evidence.resources] == row["resources"]
        assert list(found.judgements) == list(row["verdicts"])
        for goal, stored in row["verdicts"].items():
            judged = found.judgements[goal]
            assert judged.verdict.value == stored["verdict"]
            assert [asdict(each) for each in judged.reasons] == stored["reasons"]
            assert judged.utilization == stored["utilization"]
        for group, stored in zip(seen.groups, row["groups"], strict=True):
            assert group.counts.lag_records == tuple(stored["lag_records"])
            assert group.latency.p99_ms == stored["latency_p99_ms"]
            assert [asdict(each) for each in group.read_by_partition] == stored["read_by_partition"]


# --- adding -------------------------------------------------------------------


def add_rows(store: TableStore) -> TableStore:
    store.open()
    store.append_run(NEW_RUN)
    store.append_trial(NEW_TRIAL, [sample(0), sample(1)])
    store.append_boundary(NEW_POINT)
    store.append_case(NEW_CASE)
    return store


@pytest.fixture(scope="module")
def grown(spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TableStore:
    """The older tables with the rows of a run of this version."""
    base = tmp_path_factory.mktemp("grown") / "tables"
    shutil.copytree(OLDER, base)
    return add_rows(TableStore(spark_for_all, str(base)))


@pytest.mark.parametrize("table", KEYS)
def test_older_rows_stay_as_they_are_and_have_null_in_new_columns(
    grown: TableStore, older_rows: dict[str, list[Row]], table: str, spark: SparkSession
) -> None:
    then, key = older_rows[table], key_in(table)
    keys = {key(row) for row in then}
    now = [row for row in rows(grown.read(table), table) if key(row) in keys]
    assert_says(now, then)


def test_an_older_run_can_have_trials_of_this_version(
    grown: TableStore, older_trials: dict[str, list[Trial]], spark: SparkSession
) -> None:
    assert grown.next_trial(LIMIT) == NEW_TRIAL.number + 1
    *before, made = grown.trials_of(LIMIT)
    # The comparison uses texts, as an unknown number is NaN, which is not equal to itself.
    assert repr(before) == repr(older_trials[LIMIT])
    assert (made.number, made.pattern, made.judgements) == (
        NEW_TRIAL.number,
        NEW_TRIAL.pattern,
        NEW_TRIAL.judgements,
    )
    assert made.evidence.client == NEW_TRIAL.evidence.client
    assert made.evidence.brokers == NEW_TRIAL.evidence.brokers
    *_, row = rows(grown.trials(LIMIT), "trials")
    (group,) = row["groups"]
    assert [group[f"latency_{name}_ms"] for name in ("p99", "p999", "max")] == [3.0, 4.0, 5.0]
    assert (group["notes"], group["lag_slope_records_per_s"]) == (["slow"], 2.0)
    at = [
        each.at.timestamp()
        for each in grown.read("samples", LIMIT).where("trial = 5").orderBy("at").collect()
    ]
    assert at == [sample(0).at_s, sample(1).at_s]


def test_other_new_rows_are_beside_the_older_ones(grown: TableStore, spark: SparkSession) -> None:
    run_ids = {row.run_id: row.status for row in grown.runs().collect()}
    assert run_ids == {**dict.fromkeys(TRIALS, "done"), "new": "running"}
    latest = views.latest_boundaries(grown.read("boundaries"))
    assert {(row.goal, row.bpm, row.run_id) for row in latest.collect()} == {
        ("default", 1_000, LIMIT),
        ("tolerant", 1_000, LIMIT),
        ("default", 100, "new"),
    }
    assert read_summary(grown).boundaries == (BOUNDARY,)
    older_run, new_run = grown.run_rows(LIMIT) + grown.run_rows("new")
    assert (older_run.status, older_run.measurement) == ("done", None)
    assert older_run.settings["workload"]["message_bytes"] == [1000]
    assert (new_run.measurement, new_run.settings) == ("limit", {})
    names = (older_run.cluster, older_run.workload, "default")
    (point,) = grown.boundaries(LIMIT).where("goal = 'default'").collect()
    assert grown.latest_limit(*names, 1_000) == point.np_sustained
    assert grown.latest_limit(*names, 999) is None
    night, new = grown.cases("suite", "testbed")
    assert (night.run_id, night.outcome, new) == (NIGHT, "no history", NEW_CASE)


def test_a_second_opening_adds_nothing_to_an_older_table(
    grown: TableStore, spark: SparkSession
) -> None:
    def commits() -> list[Path]:
        return sorted(Path(grown.address("")).glob("*/_delta_log/*.json"))

    before = commits()
    grown.open().settle()
    assert commits() == before != []


def test_views_accept_rows_of_both_versions(grown: TableStore, spark: SparkSession) -> None:
    trials = grown.trials(LIMIT)
    assert views.broker_rows(trials).count() == 4 + 2
    assert views.resource_rows(trials).count() == (4 + 2) * 8
    assert_rows(
        views.reason_rows(trials.where("trial >= 4")).select("trial", "goal", "goal_verdict"),
        [(4, "default", "OVERLOADED"), (4, "tolerant", "OVERLOADED"), (5, "default", "OVERLOADED")],
        "trial bigint, goal string, goal_verdict string",
    )


# --- views and pages ----------------------------------------------------------


def test_the_summary_of_a_search_has_both_of_its_points(
    older: TableStore, older_rows: dict[str, list[Row]]
) -> None:
    found = read_summary(older)
    assert (found.run_id, found.status, found.brokers, found.exit_code) == (LIMIT, "done", 1, 0)
    assert (found.started_at, found.finished_at) == ("2026-11-22T10:55:15Z", "2026-11-22T10:56:14Z")
    assert (found.replication_factor, found.consumer_groups) == (1, 1)
    assert found.environment["redline.version"] == "0.1.0"
    for point, row in zip(found.boundaries, older_rows["boundaries"], strict=True):
        kept = {name: row.get(name) for name in as_document(point)}
        assert as_document(point) == kept | {
            "state": ALL_BROKERS,
            "pattern": {},
            "proof_note": "",
            "steady_note": "",
            "changed": [],
            "parts": [],
        }


@pytest.mark.parametrize("run_id", [TRAFFIC, NIGHT])
def test_the_summary_of_fixed_loads_has_no_points(older: TableStore, run_id: str) -> None:
    found = read_summary(older, run_id)
    assert (found.run_id, found.status, found.goal) == (run_id, "done", "default")
    assert (found.boundaries, found.replication_factor) == ((), 1)


@pytest.fixture
def report_text(
    out: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, request: pytest.FixtureRequest
) -> str:
    """The page of `redline report` for a run."""
    monkeypatch.setattr("jobs.runs.recorded_runs.close_session", lambda session: None)
    answered(report, request.param, "--out", str(out))
    page: Path = out / request.param / "report.html"
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("report_text", [LIMIT], indirect=True)
def test_the_page_of_a_search_shows_its_limits(report_text: str) -> None:
    for text in (
        "2,875 messages/s",
        "2.88 MB/s (23 producers)",
        "5,625 messages/s",
        "5.62 MB/s (45 producers)",
        "bound by disk",
        "at the limit (trial 3) and at the overload (trial 4)",
        "--set workload.topic.partitions_per_broker=2",
        *(f"Evidence of trial {number}" for number in range(1, 5)),
    ):
        assert text in report_text


@pytest.mark.parametrize("report_text", [TRAFFIC, NIGHT], indirect=True)
def test_the_page_of_fixed_loads_shows_their_trials(report_text: str) -> None:
    assert "Fixed load on testbed with demo" in report_text
    assert "1 SUSTAINED" in report_text
    assert "Evidence of trial 1" in report_text


def test_the_views_of_trials_accept_older_tables(older: TableStore) -> None:
    trials, samples = older.read("trials"), older.read("samples")
    assert views.broker_rows(trials).count() == 6
    uses = views.resource_rows(trials)
    assert uses.count() == views.resource_peaks(uses).count() == 6 * 8
    limits = views.limit_trials(trials, older.read("boundaries"))
    assert_rows(
        limits.select("goal", "trial", "load", "limited_by"),
        [("default", 1, 32, "disk"), ("tolerant", 4, 64, "disk")],
        "goal string, trial bigint, load bigint, limited_by string",
    )
    bound = uses.where("is_limit").select("trial", "resource", "run_id")
    assert_rows(
        bound,
        [(number, "disk", LIMIT) for number in (1, 3, 4)],
        "trial bigint, resource string, run_id string",
    )
    last = views.only_row(views.chosen_trial(older.trials(LIMIT)), "trial")
    assert last["trial"] == 4
    reasons = views.reason_rows(older.trials(LIMIT)).where("goal_verdict = 'OVERLOADED'")
    assert_rows(
        reasons.select("trial", "goal", "indicator", "threshold"),
        [
            *((number, "default", "request_handler_idle", 0.2) for number in (1, 3, 4)),
            (4, "tolerant", "request_handler_idle", 0.05),
        ],
        "trial bigint, goal string, indicator string, threshold double",
    )
    assert 0 < samples.where("readings['bytes_in'] is not null").count() < samples.count()
    sampled = [row.asDict(recursive=True) for row in samples.collect()]
    of_trials = (points_over_time(sampled, row.asDict(recursive=True)) for row in trials.collect())
    found = {(point.title, point.broker_id) for points in of_trials for point in points}
    assert found == {(series.title, 1) for series in SERIES}


def test_the_views_of_runs_points_and_nights_accept_older_tables(older: TableStore) -> None:
    ended = views.newest_runs(older.read("runs")).select("run_id", "event", "status")
    assert_rows(
        ended,
        [(run_id, "finished", "done") for run_id in TRIALS],
        "run_id string, event string, status string",
    )
    points = views.points_for_people(views.latest_boundaries(older.read("boundaries")))
    assert_rows(
        points.select("goal", "load_sustained", "load_overloaded", "width", "mps", "trials"),
        [
            ("default", 23, 32, 1 - 23 / 32, 2_875.0, 4),
            ("tolerant", 45, 64, 1 - 45 / 64, 5_625.0, 4),
        ],
        "goal string, load_sustained bigint, load_overloaded bigint, width double, mps double, "
        "trials bigint",
    )
    unknown = points.select(*views.UNCERTAINTY_COLUMNS.keys() & set(points.columns)).collect()
    assert all(set(row) == {None} for row in unknown)
    history = views.boundary_history(older.read("boundaries"))
    assert views.history_for_people(history).count() == 2
    changes = views.environment_changes(history, older.read("runs"))
    assert changes.count() == views.moved_points(history, changes).count() == 0
    found = views.nights_for_people(views.nights(older.read("cases")))
    assert_rows(
        found.select("suite", "night", "case", "outcome", "measure", "run_id"),
        [("suite", "n1", "load-1kB", "no history", "handler_s_per_mb", NIGHT)],
        "suite string, night string, case string, outcome string, measure string, run_id string",
    )


def test_a_night_reads_back_with_its_verdict(
    older: TableStore, older_rows: dict[str, list[Row]]
) -> None:
    (found,) = older.cases("suite", "testbed")
    (row,) = [each for each in older_rows["cases"] if each["event"] == "judged"]
    kept = {"scale": None} | row | {"at": row["at"].timestamp()}  # a column of later versions
    assert as_document(found) == {name: kept[name] for name in as_document(found)}
    assert (found.trials, found.verdicts) == ((1,), ("SUSTAINED",))


def test_an_older_run_that_died_is_resumed(tmp_path: Path, spark: SparkSession) -> None:
    shutil.copytree(OLDER, tmp_path / "tables")
    store = TableStore(spark, str(tmp_path / "tables"))
    spark.sql(f"DELETE FROM {store._sql_name('runs')} WHERE event = 'finished'")
    (started,) = store.read("runs", LIMIT).collect()
    store.open()
    found = resumed_trials(store, LIMIT, started.config, started.environment)
    assert [(each.number, each.load, each.point_message_bytes) for each in found] == [
        (1, 32, 1_000),
        (2, 23, 1_000),
        (3, 45, 1_000),
        (4, 64, 1_000),
    ]
    assert found[2].observation("default").verdict is Verdict.OVERLOADED
    assert found[2].observation("tolerant").verdict is Verdict.SUSTAINED
    assert store.next_trial(LIMIT) == 5
    acked = sum(each.evidence.client.counts.acked_total for each in found)
    assert store.payload_bytes(LIMIT) == acked * 1_000
    other = started.config.replace('"message_bytes": [1000]', '"message_bytes": [7]')
    with pytest.raises(ConfigError, match=r"message_bytes was \[1000\] and is \[7\]"):
        resumed_trials(store, LIMIT, other, {})
