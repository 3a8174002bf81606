"""`redline report` on real tables: from a run's id to its page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.config import load
from jobs.report import report
from jobs.runs.resumption import config_text
from metrics.common.errors import ConfigError
from metrics.reporting.summary import write_summary
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import RunRow
from metrics.tables.store import TableStore
from tests.support.commands import answered
from tests.support.evidence import START_S
from tests.support.report_rows import RUN_ID, summary_of_sizes, trials_of_sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARY = summary_of_sizes([1000])
NAMES = (SUMMARY.cluster, SUMMARY.workload, SUMMARY.goal)


@pytest.fixture(scope="module")
def out(new_store: Callable[[Path], TableStore], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, without its summary.json."""
    folder = tmp_path_factory.mktemp("report") / "out"
    store = new_store(folder / "tables")
    config = config_text(load(*NAMES, ["workload.producer.acks=all"]))
    began = RunRow(RUN_ID, "started", START_S, *NAMES, 3, config=config)
    ended = replace(began, event="finished", at_s=START_S + 60, status="done")
    rows: dict[str, list[Any]] = {
        "runs": [began, ended],
        "trials": trials_of_sizes([1000]),
        "boundaries": [BoundaryRow(RUN_ID, START_S + 60, *NAMES[:2], SUMMARY.boundaries[0])],
    }
    for table, some in rows.items():
        store._append(table, some, {})
    return folder


@pytest.fixture(autouse=True)
def shared_session(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Make the command use the session of the tests, and not close it."""
    monkeypatch.setattr("jobs.runs.recorded_runs.close_session", lambda session: None)


def test_the_tables_become_a_page(out: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert str(page) in answered(report, RUN_ID, "--out", str(out), "--to", str(page))
    text = page.read_text(encoding="utf-8")
    assert "14.5 MB/s" in text and "14,500 messages/s" in text
    assert "--set workload.producer.acks=all" in text
    assert "bound by disk" in text
    assert "Evidence of trial 2" in text
    assert "Took</dt><dd>1 min</dd>" in text


def test_the_page_has_values_that_only_the_summary_has(out: Path) -> None:
    write_summary(replace(SUMMARY, caveat="seen by the summary"), out / RUN_ID / "summary.json")
    answered(report, RUN_ID, "--out", str(out))
    text = (out / RUN_ID / "report.html").read_text(encoding="utf-8")
    assert "Seen by the summary." in text
    assert "Evidence of trial 2" in text


def test_the_page_of_a_killed_drivers_run_reports_the_kill(out: Path, spark: SparkSession) -> None:
    store = TableStore(spark, str(out / "tables"))
    store.append_run(RunRow("killed", "started", START_S, *NAMES))
    store.settle()
    (out / "killed").mkdir()
    answered(report, "killed", "--out", str(out))
    text = (out / "killed" / "report.html").read_text(encoding="utf-8")
    assert "without a complete answer: killed" in text
    assert "redline find-limit --resume killed" in text


def test_unknown_runs_and_missing_tables_are_named(out: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"run unknown is not in .*{RUN_ID}.*--tables"):
        answered(report, "unknown", "--out", str(out))

    with pytest.raises(ConfigError, match="nothing/tables does not exist; expected the tables"):
        answered(report, RUN_ID, "--out", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"runs does not exist; .*--tables"):
        answered(report, RUN_ID, "--out", str(tmp_path), "--tables", str(tmp_path / "nothing"))
