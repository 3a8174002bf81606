from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from jobs.runs.resumption import resumed_trials
from metrics.arrow_schema import ddl
from metrics.columns import utc
from metrics.common.errors import ConfigError
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.tables.boundary import BoundaryRow
from metrics.tables.rows import SweepCase
from metrics.tables.schema import SCHEMAS, HostRow, RunRow, SampleRow
from metrics.tables.store import TableStore
from metrics.tables.views import latest_boundaries
from metrics.traffic.axes import SCALE
from metrics.traffic.mix import mix_of
from tests.support.evidence import client
from tests.support.frames import stored_rows
from tests.support.headroom import headroom_row
from tests.support.nights import case_row
from tests.support.rows import BOUNDARY, traffic, trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("testbed", "demo", "default")
SAMPLES = [
    BrokerSample(1, 100.25, {"bytes_in": 5.0, "gc_ms:G1 Old Generation": 0.0}),
    BrokerSample(2, 100.5, error="no answer"),
]
HOSTS = [HostSample("h", 100.25, {"cores": 2.0}), HostSample("h", 101.25, {"cores": 2.0})]


def run_row(run_id: str, event: str, at_s: float, **values: Any) -> RunRow:
    return RunRow(run_id, event, at_s, *NAMES, **values)


def point(run_id: str, **changes: Any) -> BoundaryRow:
    return BoundaryRow(run_id, 5.0, *NAMES[:2], replace(BOUNDARY, **changes))


@pytest.fixture(scope="module")
def tables(
    new_store: Callable[[Path], TableStore], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, TableStore]:
    return {"shared": new_store(tmp_path_factory.mktemp("store") / "tables")}


@pytest.fixture
def store(spark: SparkSession, tables: dict[str, TableStore]) -> TableStore:
    """One store for all tests, as the creation of tables takes seconds; each test has its runs."""
    return tables["shared"]


@pytest.fixture
def again(store: TableStore, spark: SparkSession) -> TableStore:
    """The store of a later process."""
    return TableStore(spark, str(Path(store.address("runs")).parent))


@pytest.fixture
def fresh(
    spark: SparkSession, new_store: Callable[[Path], TableStore], tmp_path: Path
) -> TableStore:
    return new_store(tmp_path / "tables")


@pytest.fixture
def run_id(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name


def test_all_tables_exist_at_once_with_their_schema(fresh: TableStore, spark: SparkSession) -> None:
    for table in SCHEMAS:
        expected = spark.createDataFrame([], ddl(SCHEMAS[table])).schema
        found = fresh.read(table).schema
        assert [(each.name, each.dataType, each.nullable) for each in found] == [
            (each.name, each.dataType, each.nullable) for each in expected
        ]
        assert stored_rows(fresh, table) == []


def test_a_run_is_resumed_with_its_own_plan_only(store: TableStore, run_id: str) -> None:
    plan = json.dumps({"goal": {"search.resolution": 0.05}})
    here = {"cluster.id": "abc", "broker.version": "4.1.2"}
    store.append_run(run_row(run_id, "started", 1.0, config=plan, environment=here))
    made = trial(1, run_id)
    store.append_trial(made, SAMPLES)
    (found,) = resumed_trials(store, run_id, plan, here)
    assert found.judgements == made.judgements
    other = json.dumps({"goal": {"search.resolution": 0.2}})
    with pytest.raises(ConfigError, match=r"goal\.search\.resolution was 0\.05 and is 0\.2"):
        resumed_trials(store, run_id, other, here)
    with pytest.raises(ConfigError, match="which is not in"):
        resumed_trials(store, "another-run", plan, here)
    there = here | {"cluster.id": "xyz"}
    with pytest.raises(ConfigError, match=r"another cluster: cluster\.id was abc and is xyz"):
        resumed_trials(store, run_id, plan, there)
    store.append_run(run_row(run_id, "finished", 2.0, config=plan, status="done"))
    with pytest.raises(ConfigError, match="is done"):
        resumed_trials(store, run_id, plan, here)


def test_an_append_that_is_tried_again_adds_nothing(
    store: TableStore, again: TableStore, run_id: str
) -> None:
    store.append_run(run_row(run_id, "started", 1.0), is_new=True)
    for each in (store, store, again):
        each.append_trial(trial(1, run_id), SAMPLES, HOSTS)
        each.append_trial(trial(2, run_id), SAMPLES, HOSTS)
        each.append_boundary(point(run_id))
        each.append_boundary(point(run_id, goal="strict"))
        each.append_case(case_row(run_id=run_id))
        each.append_case(case_row(run_id=run_id, event="judged", outcome="regression"))
        each.append_headroom([headroom_row(run_id)])
        each.settle()
    counts = {table: len(stored_rows(store, table, run_id)) for table in SCHEMAS}
    twice = dict.fromkeys(("trials", "boundaries", "cases"), 2)
    once = {"runs": 1, "samples": 4, "hosts": 4, "headroom": 1}
    assert counts == {**dict.fromkeys(SCHEMAS, 0), **twice, **once}
    assert [row.host for row in store.read("hosts", run_id).collect()] == ["h"] * 4


def test_the_parts_of_a_mix_have_rows_of_their_own(
    store: TableStore, again: TableStore, run_id: str
) -> None:
    parts = [traffic(n + 2).as_part(name) for n, name in enumerate(("clicks", "orders"))]
    mixed = SCALE.apply(mix_of(parts), 150)
    accounts = {each.part: client(acked_records=each.producers) for each in mixed.parts}
    made = trial(1, run_id, pattern=mixed, client=client(parts=accounts))
    for each in (store, store, again):
        each.append_trial(made)
        each.settle()
    rows = store.read("parts", run_id).collect()
    assert [(row.part, row.np, row.scale, row.acked_records) for row in rows] == [
        ("clicks", 3, 1.5, 3),
        ("orders", 4, 1.5, 4),
    ]
    (row,) = store.trials(run_id).collect()
    assert (row.np, row.axis, row.load, set(row.mix)) == (7, "scale", 150, {"clicks", "orders"})
    (kept,) = store.trials_of(run_id)
    assert kept.pattern.mb_per_s == pytest.approx(mixed.mb_per_s)
    assert (kept.load, kept.pattern.mix) == (150, mixed.mix)


def test_a_point_that_was_searched_on_adds_a_newer_row(
    store: TableStore, again: TableStore, run_id: str
) -> None:
    for each, trials in ((store, 0), (store, 4), (again, 4), (again, 3), (again, 6)):
        each.append_boundary(point(run_id, trials=trials))
        each.append_boundary(point(run_id, trials=trials, state="catching up"))
        each.settle()
    rows = stored_rows(store, "boundaries", run_id)
    assert sorted((row["state"], row["trials"]) for row in rows) == [
        (state, trials) for state in ("all brokers", "catching up") for trials in (0, 4, 6)
    ]
    newest = store.boundaries(run_id).collect()
    assert sorted((row.state, row.trials) for row in newest) == [
        ("all brokers", 6),
        ("catching up", 6),
    ]


def test_the_steady_limit_of_a_point_adds_one_row(
    store: TableStore, again: TableStore, run_id: str
) -> None:
    why = "no hold was made, as search.steady_s is 0"
    for each in (store, again):
        each.append_boundary(point(run_id))
        each.append_boundary(replace(point(run_id, steady_note=why), at_s=6.0))
        each.settle()
    assert len(stored_rows(store, "boundaries", run_id)) == 2
    (row,) = store.boundaries(run_id).collect()
    assert row.steady_note == why


def test_the_tables_are_not_queried_for_a_new_run(
    store: TableStore, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(store, "_rows_of_run", lambda *arguments: pytest.fail(f"{arguments}"))
        store.append_run(run_row(run_id, "started", 1.0), is_new=True)
        for number in (1, 2):
            store.append_trial(trial(number, run_id), SAMPLES, HOSTS)
            store.append_boundary(point(run_id, trials=number))
        store.settle()
    counts = {table: len(stored_rows(store, table, run_id)) for table in SCHEMAS}
    appended = {"runs": 1, "trials": 2, "samples": 4, "hosts": 4, "boundaries": 2}
    assert counts == {**dict.fromkeys(SCHEMAS, 0), **appended}


class SlowStore(TableStore):
    """A store whose saves wait for an event, or fail."""

    def __init__(self, spark: SparkSession, base: str) -> None:
        super().__init__(spark, base)
        self.may_save = threading.Event()
        self.error: Exception | None = None

    def _save(self, table: str, frame: DataFrame, options: dict[str, str]) -> None:
        assert self.may_save.wait(60)
        if self.error is not None:
            raise self.error
        super()._save(table, frame, options)


def test_only_reads_wait_for_an_append(store: TableStore, spark: SparkSession, run_id: str) -> None:
    slow = SlowStore(spark, str(Path(store.address("runs")).parent))
    slow.append_trial(trial(1, run_id), SAMPLES)
    assert stored_rows(store, "trials", run_id) == [], "the append returned before the save"
    slow.may_save.set()
    assert slow.trials(run_id).count() == 1
    assert len(stored_rows(store, "samples", run_id)) == 2


def test_an_error_of_an_append_is_raised_once_by_the_next_read(
    store: TableStore, spark: SparkSession, run_id: str
) -> None:
    slow = SlowStore(spark, str(Path(store.address("runs")).parent))
    slow.may_save.set()
    slow.error = OSError("no space left")
    slow.append_trial(trial(1, run_id), SAMPLES)
    with pytest.raises(OSError, match="no space left"):
        slow.settle()
    slow.error = None
    slow.append_run(run_row(run_id, "finished", 1.0))
    assert slow.read("runs", run_id).count() == 1


def test_a_trial_whose_row_was_lost_is_completed(store: TableStore, run_id: str) -> None:
    # The state after a kill before the write of the trial's own row.
    lost = [SampleRow(run_id, 1, sample) for sample in SAMPLES]
    store._append("samples", lost, {})
    store.append_trial(trial(1, run_id), SAMPLES)
    assert [len(stored_rows(store, table, run_id)) for table in ("trials", "samples")] == [1, 2]


def test_a_resumed_run_continues_after_the_stored_trials(store: TableStore, run_id: str) -> None:
    assert store.next_trial(run_id) == 1
    store.append_trial(trial(1, run_id), SAMPLES)
    store.append_trial(trial(7, f"not {run_id}"))
    assert store.next_trial(run_id) == 2
    store._append("samples", [SampleRow(run_id, 2, SAMPLES[0])], {})
    assert store.next_trial(run_id) == 3
    store._append("hosts", [HostRow(run_id, 3, HOSTS[0])], {})
    assert store.next_trial(run_id) == 4


def test_samples_read_back_in_order(store: TableStore, spark: SparkSession, run_id: str) -> None:
    store.append_trial(trial(1, f"not {run_id}"), SAMPLES)
    store.append_trial(trial(2, run_id), SAMPLES[::-1])
    readings = {"bytes_in": 5.0, "gc_ms:G1 Old Generation": 0.0}
    expected = spark.createDataFrame(
        [(run_id, 2, 1, utc(100.25), readings, None), (run_id, 2, 2, utc(100.5), {}, "no answer")],
        ddl(SCHEMAS["samples"]),
    )
    found = store.read("samples", run_id).orderBy("trial", "at", "broker_id")
    assert_df_equality(found, expected, ignore_metadata=True)


def test_the_newest_row_of_a_run_counts(store: TableStore, spark: SparkSession) -> None:
    store.append_run(run_row("newest a", "started", 1.0))
    store.append_run(run_row("newest b", "started", 2.0))
    store.append_run(run_row("newest a", "finished", 3.0, status="done", exit_code=0))
    runs = store.runs().where("run_id like 'newest %'")
    expected = spark.createDataFrame(
        [("newest a", "finished", "done", 0), ("newest b", "started", "running", None)],
        "run_id string, event string, status string, exit_code bigint",
    )
    actual = runs.select("run_id", "event", "status", "exit_code")
    assert_df_equality(actual, expected, ignore_row_order=True, ignore_metadata=True)


def test_boundaries_read_back_by_size(store: TableStore, run_id: str) -> None:
    for message_bytes in (1_000, 100):
        store.append_boundary(point(run_id, message_bytes=message_bytes))
    small, large = store.boundaries(run_id).collect()
    assert (small.bpm, small.np_sustained, small.np_overloaded) == (100, 20, 21)
    assert (large.bpm, large.cluster) == (1_000, "testbed")
    assert large.overload_reasons == ["request_handler_idle: idle 0.1"]
    assert store.boundaries(f"not {run_id}").count() == 0


def test_a_case_reads_back_with_its_verdict(store: TableStore, run_id: str) -> None:
    measured = case_row(3, run_id=run_id, suite=run_id, cluster="here")
    judged = replace(measured, event="judged", outcome="no change", change=0.01, nights=("n1",))
    earlier = case_row(2, run_id=f"{run_id} 2", suite=run_id, cluster="here")
    elsewhere = case_row(run_id=f"{run_id} 3", suite=run_id, cluster="there")
    for row in (measured, judged, earlier, elsewhere):
        store.append_case(row)
    assert store.cases(run_id, "here") == [earlier, judged]


def test_compacting_merges_many_files_of_appends(
    fresh: TableStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        fresh.append_trial(trial(number, "r"), SAMPLES * 20)
    fresh.compact()
    assert len(fresh.read("samples").inputFiles()) == 2, "two files are not rewritten"
    before = fresh.read("samples", "r").orderBy("trial", "at", "broker_id").collect()
    monkeypatch.setattr("metrics.tables.store.COMPACT_FROM_FILES", 2)
    fresh.compact()
    assert len(fresh.read("samples").inputFiles()) == 1
    assert fresh.read("samples", "r").orderBy("trial", "at", "broker_id").collect() == before
    later = TableStore(spark, str(Path(fresh.address("samples")).parent))
    later.append_trial(trial(2, "r"), SAMPLES)
    assert later.read("samples", "r").count() == len(before), "appended rows are still known"


def test_a_table_is_checked_again_after_enough_appends(
    fresh: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def files_of(table: str) -> int:
        looked.append(table)
        return 1

    monkeypatch.setattr(fresh, "_count_files", files_of)
    monkeypatch.setattr("metrics.tables.store.COMPACT_FROM_FILES", 3)
    for number in (1, 2, 3):
        fresh.append_run(run_row("r", "started", float(number)))
        fresh.compact()
    assert looked == ["runs", "runs"], "three appends to runs, none to the others"


READ = """
import json, sys
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
found = {}
for name in sys.argv[2:]:
    table = DeltaTable(f"{sys.argv[1]}/{name}")
    rows = pa.table(QueryBuilder().register("t", table).execute("select * from t")).to_pylist()
    found[name] = [[field.name for field in table.schema().fields], rows]
print(json.dumps(found, default=str))
"""


def test_tables_are_readable_without_spark(fresh: TableStore) -> None:
    for number in (1, 2):
        fresh.append_trial(trial(number, "r"), SAMPLES, HOSTS)
    fresh.compact()
    fresh.append_run(run_row("r", "finished", 2.0, status="done"))
    fresh.settle()
    base = str(Path(fresh.address("runs")).parent)
    command = [sys.executable, "-c", READ, base, *SCHEMAS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    read = json.loads(done.stdout)
    assert {table: columns for table, (columns, _) in read.items()} == {
        table: SCHEMAS[table].names for table in SCHEMAS
    }
    rows = {table: found for table, (_, found) in read.items()}
    counts = {table: len(found) for table, found in rows.items()}
    appended = {"runs": 1, "trials": 2, "samples": 4, "hosts": 4}
    assert counts == {**dict.fromkeys(SCHEMAS, 0), **appended}
    first, second = sorted(rows["trials"], key=lambda row: int(row["trial"]))
    assert (first["trial"], second["trial"], first["verdict"]) == (1, 2, "OVERLOADED")
    assert [w["handler_idle"] for w in first["broker_windows"]] == [0.8, 0.1]
    assert first["resources"][0]["resource"] == "request handlers"
    readings = [dict(row["readings"]) for row in rows["samples"] if row["readings"]]
    assert readings == [dict(SAMPLES[0].values)] * 2


def test_tables_that_are_there_are_not_created_again(
    fresh: TableStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = TableStore(spark, str(Path(fresh.address("runs")).parent))
    with monkeypatch.context() as patched:
        patched.setattr(later._spark, "sql", pytest.fail)
        later.open().settle()
    assert stored_rows(later, "runs") == []


def test_a_newer_table_accepts_rows_of_this_version(
    fresh: TableStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metrics.tables.store.SCHEMAS", {"runs": SCHEMAS["runs"]})
    spark.sql(f"ALTER TABLE delta.`{fresh.address('runs')}` ADD COLUMNS (later string)")
    fresh.open()
    fresh.append_run(run_row("r", "started", 1.0))
    fresh.settle()
    assert fresh.read("runs").select("run_id", "later").collect() == [("r", None)]


def test_runs_that_create_and_fill_the_tables_at_the_same_time_all_succeed(
    spark: SparkSession, tmp_path: Path
) -> None:
    base, names, together = str(tmp_path / "tables"), ("a", "b"), threading.Barrier(2)

    def filled(run_id: str) -> TableStore:
        together.wait(30)
        own = TableStore(spark, base).open()
        for number in (1, 2):
            own.append_trial(trial(number, run_id), SAMPLES)
        own.settle()
        return own

    with ThreadPoolExecutor(2) as pool:
        store, _ = pool.map(filled, names)
    counts = {table: len(stored_rows(store, table, "a")) for table in SCHEMAS}
    assert counts == {**dict.fromkeys(SCHEMAS, 0), "trials": 2, "samples": 4}
    assert [len(stored_rows(store, table, "b")) for table in ("trials", "samples")] == [2, 4]


def test_a_table_that_cannot_be_compacted_is_kept(
    fresh: TableStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.append_run(run_row("r", "started", 1.0))
    monkeypatch.setattr("metrics.tables.store.COMPACT_FROM_FILES", 1)
    monkeypatch.setattr(fresh, "_sql_name", lambda table: f"delta.`{table} is nowhere`")
    fresh.compact()
    assert "the table runs cannot be compacted" in caplog.text
    assert len(stored_rows(fresh, "runs")) == 1


def _fill_for_views(store: TableStore) -> None:
    """Two searches of one limit, a night with its judgement, and a sweep of two cases."""
    for number, mb_per_s in enumerate((9.0, 7.0)):
        boundary = replace(BOUNDARY, mb_per_s=mb_per_s)
        store.append_boundary(BoundaryRow(f"s{number}", 10.0 + number, "c", "w", boundary))
    night = replace(case_row(), event="measured", case="one", message_bytes=1000, outcome=None)
    store.append_case(night)
    store.append_case(replace(night, event="judged", outcome="regression"))
    measured = [("acks=1", 11.0), ("acks=1", 13.0), ("acks=all", 6.0)]
    for number, (case, mb_per_s) in enumerate(measured):
        sweep_case = SweepCase("sweep", "acks", case, number + 1, {"acks": case})
        run_id = f"e{number}"
        store.append_run(replace(run_row(run_id, "started", 1.0), sweep_case=sweep_case))
        boundary = replace(BOUNDARY, mb_per_s=mb_per_s)
        row = BoundaryRow(run_id, 20.0 + number, "c", "w", boundary, "acks", case)
        store.append_boundary(row)


def test_a_schema_of_the_catalog_works_like_a_folder(spark: SparkSession) -> None:
    store = TableStore(spark, "redline_tests").open()
    try:
        for _ in range(2):
            store.append_run(run_row("r", "started", 1.0))
        assert store.runs().count() == 1
        assert spark.catalog.tableExists("redline_tests.trials")
        comments = {row.col_name: row.comment for row in
                spark.sql("DESCRIBE TABLE redline_tests.boundaries").collect()}  # fmt: skip
        assert comments["mb_per_s"] == "payload rate at `np_sustained`, whole cluster [MB/s]"
        assert all(comments[name] for name in SCHEMAS["boundaries"].names)
        _fill_for_views(store)
        store.settle()
        limits = spark.table("redline_tests.latest_limits")
        assert [row.mb_per_s for row in limits.collect()] == [7.0], "only the newest"
        expected = (
            latest_boundaries(store.read("boundaries")).select("run_id", "mb_per_s").collect()
        )
        assert limits.select("run_id", "mb_per_s").collect() == expected
        assert {"message_bytes", "producers"} <= set(limits.columns)
        (night,) = spark.table("redline_tests.nights").collect()
        assert (night.case, night.outcome, night.message_bytes) == ("one", "regression", 1000)
        effects = {row.case: row for row in spark.table("redline_tests.effects").collect()}
        assert effects["acks=1"].mb_per_s == 12.0
        assert effects["acks=1"].repeats == 2
        assert effects["acks=all"].change_to_median_of_all == pytest.approx(6 / 11 - 1)
        store.open()
        store.compact()
    finally:
        spark.sql("DROP SCHEMA redline_tests CASCADE")


@pytest.mark.parametrize("base", ["", "a.b.c", "no such", "x;y"])
def test_a_name_that_is_neither_path_nor_schema_is_refused(spark: SparkSession, base: str) -> None:
    with pytest.raises(ConfigError, match=r"--tables is .*; expected a path with a slash"):
        TableStore(spark, base)
