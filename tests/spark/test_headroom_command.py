"""`redline headroom` on real tables, with invented brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.config import load
from jobs.features.headroom import estimate
from jobs.headroom import headroom
from jobs.runs.resumption import config_text
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.judging.thresholds import Indicators
from metrics.sources.hosts.host_sample import NoHosts
from metrics.tables import views
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import RunRow
from metrics.tables.store import TableStore
from tests.support.commands import answered
from tests.support.evidence import START_S
from tests.support.headroom import boundary, headroom_row, today_at, trials_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_ID, CLUSTER_ID = "run-1", "cluster-1"
OPENED = SimpleNamespace(info=SimpleNamespace(cluster_id=CLUSTER_ID, hosts={1: "a", 2: "b"}))


@pytest.fixture(scope="module")
def out(new_store: Callable[[Path], TableStore], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, and of one without a limit."""
    folder = tmp_path_factory.mktemp("headroom") / "out"
    store = new_store(folder / "tables")
    names = ("prod", "demo", "default")
    config = config_text(load("testbed", "demo", "default"))
    ids = {"cluster.id": CLUSTER_ID}
    rows: dict[str, list[Any]] = {
        "runs": [],
        "trials": trials_at(40, 80, 100, 105),
        "boundaries": [],
    }
    gave_up = boundary(gave_up="the budget is spent")
    for run_id, point in ((RUN_ID, boundary()), ("run-2", gave_up)):
        began = RunRow(run_id, "started", START_S, *names, 2, config=config, environment=ids)
        ended = replace(began, event="finished", at_s=START_S + 60, status="done")
        rows["runs"] += [began, ended]
        rows["boundaries"].append(BoundaryRow(run_id, START_S + 60, *names[:2], point))
    for table, some in rows.items():
        store._append(table, some, {})
    return folder


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    file = tmp_path / "prod.yaml"
    file.write_text("bootstrap_servers: [localhost:9092]\njmx: {port: 9999}\n")
    return file


@pytest.fixture
def production(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> dict[str, Any]:
    """What the command sees: `today` of the brokers `opened`, with the session of the tests."""
    seen: dict[str, Any] = {"today": today_at(25.0, 20.0), "opened": OPENED}
    monkeypatch.setattr(estimate, "open_spark", lambda _: spark)
    monkeypatch.setattr(estimate, "open_cluster", lambda *_: seen["opened"])
    monkeypatch.setattr(estimate, "require_sources", lambda *_: None)
    monkeypatch.setattr(
        estimate,
        "_open_sources",
        lambda *_: estimate.Production(seen["opened"], SimpleNamespace(), NoHosts()),
    )
    monkeypatch.setattr(estimate.Production, "watched", lambda *_, **_named: seen["today"])
    return seen


def asked(cluster: Path, out: Path, *options: str) -> str:
    return answered(headroom, "--cluster", str(cluster), "--out", str(out), *options)


def test_an_answer_is_shown_written_and_appended(
    out: Path, cluster: Path, production: dict[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "headroom.json"
    text = asked(cluster, out, "--run", RUN_ID, "--json", str(file))
    assert "4.0 times today's traffic fits" in text
    assert "the first exhausted resource is broker 1's request handlers" in text
    assert "no date: the history of this cluster has 1 day" in text
    written = json.loads(file.read_text())
    assert written["times"] == pytest.approx(4.0, rel=0.03)
    assert written["times_low"] < 4.0 < written["times_high"]
    assert written["first"]["broker_id"] == 1
    assert (written["is_estimate"], written["is_enough"]) == (False, True)
    store = TableStore(spark, str(out / "tables"))
    kept = store.read("headroom", RUN_ID).where(f"headroom_id = '{written['headroom_id']}'")
    assert kept.count() == len(written["rows"])
    (first,) = kept.where("is_first").collect()
    assert first.times == pytest.approx(written["times"])
    assert first.at.timestamp() == START_S + 60


def test_rows_that_are_appended_again_add_nothing(
    spark: SparkSession, new_store: Callable[[Path], TableStore], tmp_path: Path
) -> None:
    store = new_store(tmp_path / "tables")
    known = estimate._KnownLimit("default", Indicators())
    answer = estimate._answer(known, today_at(25.0), None)
    order = estimate.HeadroomOrder("prod", (), tmp_path)
    rows = estimate.rows_of(answer, today_at(25.0), None, order, "default", ("prod", OPENED))  # type: ignore[arg-type]
    for _ in range(2):
        store.append_headroom(rows)
    assert store.read("headroom").count() == len(rows)
    assert [row.is_first for row in store.headroom(CLUSTER_ID)] == [True]
    assert store.headroom(CLUSTER_ID)[0] == rows[0]
    assert store.headroom("another") == []


def test_runs_that_cannot_be_held_against_are_named(
    out: Path, cluster: Path, production: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"the run unknown is not in .*run-"):
        asked(cluster, out, "--run", "unknown")
    with pytest.raises(NoConclusionError, match="run-2 has no closed bracket"):
        asked(cluster, out, "--run", "run-2")
    with pytest.raises(ConfigError, match=r"has the goals default, and --goal is strict"):
        asked(cluster, out, "--run", RUN_ID, "--goal", "strict")
    with pytest.raises(ConfigError, match=r"nothing/tables does not exist.*--tables"):
        asked(cluster, tmp_path / "nothing", "--run", RUN_ID)
    production["opened"] = SimpleNamespace(info=SimpleNamespace(cluster_id="other", hosts={}))
    with pytest.raises(ConfigError, match=r"cluster prod \(id cluster-1\).*\(id other\)"):
        asked(cluster, out, "--run", RUN_ID)


def test_answers_over_time_have_a_row_for_each_call(
    spark: SparkSession, new_store: Callable[[Path], TableStore], tmp_path: Path
) -> None:
    store = new_store(tmp_path / "tables")
    for number, at_s in enumerate((START_S + 60.0, START_S)):
        call = {"headroom_id": f"h{number}", "at_s": at_s}
        first = headroom_row("run-1", **call)
        store.append_headroom([first, headroom_row("run-1", **call, is_first=False, broker_id=2)])
    answers = views.headroom_history(store.read("headroom"))
    assert [row.headroom_id for row in answers.collect()] == ["h1", "h0"]
    assert [row.at_ms for row in answers.collect()] == [START_S * 1e3, (START_S + 60) * 1e3]
    shown = views.headroom_for_people(answers).collect()
    assert [row.times for row in shown] == [3.25, 3.25]
    assert shown[0].full_at is not None and shown[0].full_high_at is None
