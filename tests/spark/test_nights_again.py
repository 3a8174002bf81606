"""Repeated nights measure no case twice and add no row twice, on real tables.

Only the brokers are missing: the tests hand in the measured values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from jobs.console.events import Plan, RecordingReporter
from jobs.features.nightly import night_run as nights
from jobs.features.nightly.night_run import NightRun
from jobs.features.nightly.suite import Suite, SuiteCase, configuration_of
from jobs.runs import lifecycle
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.options import RunOptions
from jobs.trials.context import TrialHistory
from metrics.common.errors import ConfigError, NoConclusionError, RegressionError
from metrics.tables.boundary import BoundaryRow
from metrics.tables.rows import SweepCase
from metrics.tables.store import TableStore
from metrics.tables.views import newest_cases
from tests.support.nights import ENVIRONMENT, case_row
from tests.support.rows import BOUNDARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

SUITE = Suite(
    name="again",
    min_effect=0.1,
    cases=(SuiteCase(name="limit", limit=1_000), SuiteCase(name="load", message_bytes=1_000, np=4)),
)
SHORT = Plan("c", "w", "g", 3, (1_000,), "", None, 60.0, 1, 60.0)
"""The plan of each case, which takes a minute."""


@dataclass
class Cluster:
    """A stand-in for the brokers, with the value or the error of each case, and its calls."""

    spark: SparkSession
    tables: TableStore
    suite: Suite
    values: dict[str, float | BaseException]
    measured: list[str] = field(default_factory=list)
    loads: list[int | None] = field(default_factory=list)
    clock_s: float = 0.0

    def opening(self, config: Any, order: Any, *, run_id: str, **_: Any) -> Any:
        bench = SimpleNamespace(
            run_id=run_id,
            tables=self.tables,
            environment=ENVIRONMENT,
            brokers=3,
            all_caveats=(),
            history=TrialHistory(),
            session=SimpleNamespace(spark=self.spark),
            sweep_case=SweepCase(),
            canaries=None,
            guards=SimpleNamespace(loaded_until_s=None),
        )
        return SimpleNamespace(open=lambda stack: bench)

    def measurer(self, bench: Any, gates: Any, suite: str, night: str) -> Any:
        def measure(case: SuiteCase, producers: int | None, left_s: float | None) -> Any:
            self.measured.append(case.name)
            self.loads.append(producers)
            value = self.values[case.name]
            if isinstance(value, BaseException):
                raise value
            self.clock_s += 60.0
            row = case_row(
                1,
                value,
                run_id=bench.run_id,
                at_s=self.clock_s,
                suite=self.suite.name,
                night=night,
                case=case.name,
                cluster="testbed",
            )
            bench.tables.append_case(row)
            return row

        return SimpleNamespace(measure=measure)


@pytest.fixture(scope="module")
def tables(spark_for_all: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TableStore:
    """One set of tables for all tests, as their creation takes seconds; each test has a suite."""
    return TableStore(spark_for_all, str(tmp_path_factory.mktemp("nights") / "tables")).open()


@pytest.fixture
def cluster(
    spark: SparkSession,
    tables: TableStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Cluster:
    suite = SUITE.model_copy(update={"name": request.node.name[5:40]})
    made = Cluster(spark, tables, suite, {"limit": 20.0, "load": 30.0})
    monkeypatch.setattr(TableStore, "compact", lambda self: None)
    monkeypatch.setattr(lifecycle, "ContextFactory", made.opening)
    monkeypatch.setattr(nights, "open_gates", lambda bench, most_s, climbs: None)
    monkeypatch.setattr(nights, "CaseMeasurer", made.measurer)
    monkeypatch.setattr(NightRun, "forecast", lambda self, case: SHORT)
    return made


def night(cluster: Cluster, tmp_path: Path, name: str, **changes: Any) -> int:
    """Run a night to its end, and return the exit code."""
    suite = cluster.suite
    run_id = f"{suite.name}-{name}"
    order = RunOrder(
        tmp_path / "out", "unused", reporter=RecordingReporter(), run_id=run_id, resumes=True
    )
    plan = {"suite": suite, "config": configuration_of(suite), "night": name, **changes}
    return execute(NightRun(**plan), order)


def summary(cluster: Cluster, tmp_path: Path, name: str) -> dict[str, Any]:
    folder = tmp_path / "out" / f"{cluster.suite.name}-{name}"
    found: dict[str, Any] = json.loads((folder / "nightly.json").read_text())
    return found


def test_a_repeated_night_continues_and_adds_no_row_twice(
    cluster: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    cluster.values["load"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        night(cluster, tmp_path, "n1")
    assert [each["outcome"] for each in summary(cluster, tmp_path, "n1")["cases"]] == [
        "no history",
        "not measured",
    ]
    assert summary(cluster, tmp_path, "n1")["exit_code"] == 130
    cluster.values["load"] = 30.0
    assert [night(cluster, tmp_path, "n1") for _ in range(2)] == [0, 0]
    assert cluster.measured == ["limit", "load", "load"]
    assert summary(cluster, tmp_path, "n1")["status"] == "done"
    expected = spark.createDataFrame(
        [
            ("limit", "measured", None),
            ("limit", "judged", "no history"),
            ("load", "measured", None),
            ("load", "judged", "no history"),
        ],
        "case string, event string, outcome string",
    )
    own = cluster.tables.read("cases").where(f"suite = '{cluster.suite.name}'")
    rows = own.select("case", "event", "outcome")
    assert_df_equality(
        rows, expected, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
    )
    newest = newest_cases(own).select("case", "event", "outcome")
    judged = expected.where("event = 'judged'")
    assert_df_equality(
        newest, judged, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
    )


def test_a_worse_night_ends_with_a_regression_at_each_repetition(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("n1", "n2"):
        night(cluster, tmp_path, name)
    cluster.values["load"] = 10.0
    junit = tmp_path / "n3.xml"
    for _ in range(2):
        with pytest.raises(RegressionError, match="load: limit per broker 10 MB/s: regression"):
            night(cluster, tmp_path, "n3", junit=junit)
    assert cluster.measured.count("load") == 3
    assert [each["outcome"] for each in summary(cluster, tmp_path, "n3")["cases"]] == [
        "no change",
        "regression",
    ]
    assert 'failures="1"' in junit.read_text()
    ended = cluster.tables.runs().where(f"run_id = '{cluster.suite.name}-n3'").collect()
    assert [(row.status, row.exit_code) for row in ended] == [("regression", 4)]


def test_an_invalid_case_is_measured_again_and_one_without_time_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.values = dict.fromkeys(("limit", "load"), NoConclusionError("4 of 4 INVALID"))
    with pytest.raises(NoConclusionError, match="limit: invalid: 4 of 4 INVALID"):
        night(cluster, tmp_path, "n1")
    cluster.values = {"limit": 20.0, "load": 30.0}
    night(cluster, tmp_path, "n1")
    assert cluster.measured == ["limit", "load"] * 2
    with pytest.raises(NoConclusionError, match="of the budget are left"):
        night(cluster, tmp_path, "n2", budget_s=30.0)
    assert cluster.measured == ["limit", "load"] * 2


def test_a_night_continues_with_its_own_plan_only(cluster: Cluster, tmp_path: Path) -> None:
    night(cluster, tmp_path, "n1")
    other = configuration_of(SUITE, overrides=("workload.producer.acks=all",))
    with pytest.raises(ConfigError, match="acks was 1 and is all; expected"):
        night(cluster, tmp_path, "n1", config=other)


def test_a_share_refers_to_the_limit_in_the_tables(cluster: Cluster, tmp_path: Path) -> None:
    for at_s, message_bytes, producers, goal in (
        (1.0, 1_000, 80, "default"),
        (2.0, 1_000, 40, "default"),
        (3.0, 100, 30, "default"),
        (4.0, 1_000, 20, "strict"),
    ):
        boundary = replace(BOUNDARY, message_bytes=message_bytes, np_sustained=producers, goal=goal)
        point = BoundaryRow(f"run-{at_s:g}", at_s, "testbed", "demo", boundary)
        cluster.tables.append_boundary(point)
    share = Suite(
        name=cluster.suite.name, cases=(SuiteCase(name="load", message_bytes=1_000, share=0.5),)
    )
    night(cluster, tmp_path, "n1", suite=share)
    assert cluster.loads == [20]


def test_an_accepted_night_begins_the_history_of_the_next_ones(
    cluster: Cluster, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("n1", "n2"):
        night(cluster, tmp_path, name)
    cluster.values["load"] = 10.0
    with pytest.raises(RegressionError):
        night(cluster, tmp_path, "n3")
    monkeypatch.setattr(nights, "open_spark", lambda stack: spark)
    options = RunOptions(tmp_path / "out", cluster.tables.address("").rstrip("/"))
    for _ in range(2):
        assert nights.accept_night(cluster.suite, "testbed", options) == 0
    own = cluster.tables.read("cases").where(f"suite = '{cluster.suite.name}'")
    accepted = own.where("event = 'accepted'").orderBy("case").collect()
    assert [(row.night, row.case, row.value) for row in accepted] == [
        ("n3", "limit", 20.0),
        ("n3", "load", 10.0),
    ]
    assert night(cluster, tmp_path, "n4") == 0
    found = {each["case"]: each for each in summary(cluster, tmp_path, "n4")["cases"]}
    assert found["load"]["nights"] == found["limit"]["nights"] == ["n3"]
    assert found["load"]["left_out"][0]["nights"] == ["n1", "n2"]
    assert newest_cases(own).count() == 6 + 2
