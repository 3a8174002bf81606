"""`redline nightly` without brokers: endings and files."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from junitparser import Error, Failure, JUnitXml, Skipped
from syrupy.assertion import SnapshotAssertion

from jobs.console.events import RecordingReporter
from jobs.features.nightly import night_run
from jobs.features.nightly.night_run import (
    NightRun,
    accept_night,
    case_reports,
    judged_row,
    outcome_of_night,
    rule_of,
    write_junit,
)
from jobs.features.nightly.suite import configuration_of
from jobs.nightly import nightly
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import RunState, execute
from jobs.runs.options import RunOptions
from jobs.runs.resumption import config_text
from jobs.trials.context import TrialHistory
from metrics.common.errors import ConfigError, GuardStopError
from metrics.features.nightly.judging import (
    CaseReport,
    NightComparison,
    case_report,
    judge_night,
    night_document,
    table_rows,
)
from metrics.tables.rows import CaseRow, Outcome
from metrics.tables.schema import RunRow
from tests.support.frozen import lost_keys
from tests.support.nights import ENVIRONMENT, SUITE, case_row, head_of_night

ROOT = Path(__file__).parents[2]
SLOW = {**ENVIRONMENT, "broker.config.num.io.threads": "1"}
HISTORY = [case_row(night) for night in (1, 2, 3)]


def compared(value: float, **changes: object) -> NightComparison:
    (found,) = judge_night([case_row(9, value, **changes)], HISTORY, rule_of(SUITE))
    return found


# --- endings --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "error", "status", "code"),
    [
        ([Outcome.NO_CHANGE, Outcome.IMPROVEMENT], None, "done", 0),
        ([Outcome.NO_HISTORY], None, "done", 0),
        ([Outcome.NO_CHANGE, Outcome.INVALID, Outcome.NOT_MEASURED], None, "done", 0),
        ([Outcome.REGRESSION, Outcome.INVALID], None, "regression", 4),
        ([Outcome.INVALID, Outcome.NOT_MEASURED], None, "no conclusion", 3),
        ([Outcome.REGRESSION], GuardStopError("full"), "stopped by a guard", 5),
        ([Outcome.REGRESSION], KeyboardInterrupt(), "interrupted", 130),
        ([Outcome.NO_CHANGE], ConfigError("wrong"), "failed", 2),
    ],
)
def test_how_a_night_ends(
    outcomes: list[Outcome], error: BaseException | None, status: str, code: int
) -> None:
    measured = (Outcome.INVALID, Outcome.NOT_MEASURED)
    cases = [
        CaseReport("c", "limit", 1, each, "x", None if each in measured else compared(20.0))
        for each in outcomes
    ]
    outcome = outcome_of_night(cases, error)
    assert (outcome.status, outcome.exit_code) == (status, code)


def test_no_case_is_silently_skipped() -> None:
    missing = {"load": (Outcome.NOT_MEASURED, "it takes about 45 s, and 10 s were left")}
    reports = case_reports(SUITE, [compared(20.0)], missing, None)
    assert [(row[0], row[-1]) for row in table_rows(reports)] == [
        ("limit", "no change"), ("load", "not measured"), ("late", "not measured"),
    ]  # fmt: skip
    assert "10 s were left" in reports[1].text
    for error, words in ((GuardStopError("the disk is full"), "the disk is full"),
                         (KeyboardInterrupt(), "interrupted")):  # fmt: skip
        stopped = case_reports(SUITE, [], {}, error)
        assert len(stopped) == 3 and all(each.text.endswith(f": {words}") for each in stopped)


def test_a_regression_has_its_size_its_p_value_and_its_cause(snapshot: SnapshotAssertion) -> None:
    found = case_report(compared(10.0, environment=SLOW, limited_by="request handlers"))
    assert found.outcome is Outcome.REGRESSION
    assert found.text == snapshot
    same = case_report(compared(20.0, environment=SLOW)).text
    assert "likely cause" not in same and "the brokers were" not in same


UPGRADED = {
    **ENVIRONMENT,
    "broker.config.process.roles": "broker",
    "cluster.metadata.version": "27",
    "topic.config.newer": "x",
}
BEFORE_UPGRADE = {
    **ENVIRONMENT,
    "broker.version": "3.6.2",
    "broker.config.zookeeper.connect": "127.0.0.1:2181",
    "topic.config.older": "y",
}


def after_upgrade(value: float, **changed: str) -> NightComparison:
    history = [case_row(night, environment=BEFORE_UPGRADE) for night in (1, 2, 3)]
    tonight = case_row(9, value, environment={**UPGRADED, **changed})
    (found,) = judge_night([tonight], history, rule_of(SUITE))
    return found


def test_a_regression_after_an_upgrade_names_release_and_metadata_first(
    snapshot: SnapshotAssertion,
) -> None:
    found = case_report(after_upgrade(10.0, **{"broker.config.num.io.threads": "1"}))
    assert found.outcome is Outcome.REGRESSION
    assert found.text == snapshot
    same = case_report(after_upgrade(20.0))
    assert same.outcome is Outcome.NO_CHANGE
    assert "the brokers were Kafka 3.6.2 with ZooKeeper, are Kafka 4.1.2 with KRaft" in same.text
    assert "possible reasons" not in same.text


def test_the_judged_row_keeps_the_comparison() -> None:
    row = judged_row(compared(10.0))
    assert (row.event, row.outcome, row.nights) == ("judged", "regression", ("n1", "n2", "n3"))
    assert row.change == pytest.approx(-0.5)
    assert row.change_low is not None and row.change_high is not None
    assert row.change_low < -0.5 < row.change_high < 0
    (first,) = judge_night([case_row(9)], [], rule_of(SUITE))
    assert (judged_row(first).outcome, judged_row(first).change) == ("no history", None)


# --- files ----------------------------------------------------------------------


def test_a_night_that_cannot_begin_writes_its_files_unless_another_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: object, _stack: object) -> None:
        raise ConfigError("no such cluster")

    monkeypatch.setattr("jobs.runs.lifecycle.ContextFactory.open", refuse)
    junit, run_id = tmp_path / "j.xml", f"{SUITE.name}-n1"
    order = RunOrder(
        tmp_path / "out", "unused", reporter=RecordingReporter(), run_id=run_id, resumes=True
    )

    def try_it() -> None:
        body = NightRun(SUITE, configuration_of(SUITE), "n1", None, junit)
        with pytest.raises(ConfigError, match="no such cluster"):
            execute(body, order)

    try_it()
    kept = json.loads((order.folder / "nightly.json").read_text())
    assert (kept["exit_code"], kept["error"]) == (2, "no such cluster")
    assert "no such cluster" in junit.read_text()
    page = (order.folder / "nightly.html").read_text(encoding="utf-8")
    assert "The run ended with the status: failed.</strong> No such cluster." in page
    (order.folder / "nightly.json").write_text("{}")  # as if a night had come further
    try_it()
    assert (order.folder / "nightly.json").read_text() == "{}"


def cases() -> tuple[CaseReport, ...]:
    missing = {"late": (Outcome.INVALID, "4 of 4 trials were INVALID")}
    return case_reports(SUITE, [compared(10.0, environment=SLOW)], missing, None)


def test_a_repeated_night_requires_the_series_that_it_began_with() -> None:
    config = configuration_of(SUITE)
    begun = RunRow(
        "r", "started", 0.0, "c", "w", "g", config=config_text(config),
        environment={"series.bytes_in": "b_total"},
    )  # fmt: skip
    tables = SimpleNamespace(
        cases=lambda *_: [],
        accepted_cases=lambda *_: {},
        run_rows=lambda _: [begun],
        next_trial=lambda _: 7,
    )

    def resumed(series: str) -> TrialHistory:
        history = TrialHistory()
        context = SimpleNamespace(
            run_id="r", tables=tables, history=history, environment={"series.bytes_in": series}
        )
        order = SimpleNamespace(resumes=True)
        run = cast(RunState, SimpleNamespace(context=context, order=order))
        NightRun(SUITE, config, "n1").resume(run)
        return history

    assert next(resumed("b_total").numbers) == 7
    with pytest.raises(ConfigError, match=r"the night n1 read other series .*bytes_in was b_total"):
        resumed("b_count")


def test_nightly_json_holds_each_case_with_its_evidence() -> None:
    document = json.loads(json.dumps(night_document(head_of_night(), cases(), {})))
    assert not lost_keys("nightly.json", document)
    limit, load, late = document["cases"]
    assert limit["effect"]["change"] == pytest.approx(-0.5)
    assert limit["effect"]["nights"] == 3
    assert limit["changes"] == [
        {"name": "broker.config.num.io.threads", "before": "8", "after": "1"}
    ]
    assert (limit["limited_by"], limit["limited_by_before"]) == ("disk", "disk")
    assert (load["outcome"], late["outcome"]) == ("not measured", "invalid")


def test_junit_distinguishes_failure_error_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "nightly.xml"
    write_junit(head_of_night(), cases(), path)
    (suite,) = JUnitXml.fromfile(str(path))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (3, 1, 1, 1)
    kinds = [[type(each) for each in case.result] for case in suite]
    assert kinds == [[Failure], [Skipped], [Error]]
    failed = next(iter(suite))
    assert (failed.name, failed.classname) == ("limit", "s.limit")
    assert "num.io.threads was 8, is 1" in failed.result[0].message
    odd = [replace(each, text="\x1b[31mred\x00 \ud800 é") for each in cases()]
    write_junit(head_of_night(), odd, path)
    (suite,) = JUnitXml.fromfile(str(path))
    assert next(iter(suite)).system_out == "?[31mred? ? é"


# --- the command ----------------------------------------------------------------


def test_a_dry_run_shows_the_cases_and_their_time(tmp_path: Path) -> None:
    done = CliRunner().invoke(nightly, ["--dry-run", "--out", str(tmp_path / "out")])
    assert (done.exit_code, done.exception) == (0, None)
    assert "cases limit-1kB, load-1kB, within 30 min" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--night", "../n1"], "expected a name of at most 80"),
        (["--cluster", "example"], "may have other users"),
        (["--suite", "nothing"], "is not found in conf/suites"),
    ],
)
def test_wrong_options_are_refused_before_any_load(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(nightly, [*arguments, "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
    assert not (tmp_path / "out").exists()


# --- an accepted night --------------------------------------------------------


def judged_with(accepted: CaseRow | None, values: list[float]) -> NightComparison:
    """The last of these nights, of which the third is a regression; one may be accepted."""
    *rows, tonight = (case_row(night, value) for night, value in enumerate(values, 1))
    rows[2] = replace(rows[2], outcome="regression")
    rule = replace(rule_of(SUITE), accepted={} if accepted is None else {"limit": accepted})
    return judge_night([tonight], rows, rule)[0]


def test_after_an_accepted_night_only_that_one_and_later_ones_count() -> None:
    values = [20.0, 20.0, 10.0, 10.0]
    row = replace(case_row(3, 10.0), event="accepted", at_s=case_row(4).at_s - 1.0)
    before, after = judged_with(None, values), judged_with(row, values)
    assert (before.outcome, len(before.nights)) == (Outcome.REGRESSION, 2)
    assert (after.outcome, after.nights) == (Outcome.NO_CHANGE, (case_row(3).night,))
    (left_out,) = after.left_out
    assert left_out.text == f"2 nights left out: before the night {row.night}, which was accepted"
    worse = judged_with(row, [*values, 10.0, 10.0, 10.0, 5.0])
    assert worse.outcome is Outcome.REGRESSION and len(worse.nights) == 5
    slowly = [10.0] * 22 + [9.2] * 20
    fixed = judged_with(row, [20.0, 20.0, *slowly])
    assert fixed.slow_loss is not None and fixed.slow_loss.loss == pytest.approx(0.08, abs=0.01)


class Accepting:
    """Tables of some nights in memory, which keep what is accepted."""

    def __init__(self, rows: list[CaseRow]) -> None:
        self.rows = rows

    def address(self, table: str) -> str:
        return f"/t/{table}"

    def cases(self, suite: str, cluster: str) -> list[CaseRow]:
        return [row for row in self.rows if row.event != "accepted"]

    def accepted_cases(self, suite: str, cluster: str) -> dict[str, CaseRow]:
        return {row.case: row for row in self.rows if row.event == "accepted"}

    def append_case(self, row: CaseRow) -> None:
        self.rows.append(row)

    def settle(self) -> None: ...


def test_the_newest_night_is_accepted_once_and_a_dry_run_only_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = Accepting([])
    monkeypatch.setattr(night_run, "open_spark", lambda stack: None)
    monkeypatch.setattr(night_run, "TableStore", lambda *_: tables)
    monkeypatch.setattr(night_run, "explaining_missing_tables", nullcontext)

    def accept(**options: Any) -> str:
        assert accept_night(SUITE, "testbed", RunOptions(Path("out"), **options)) == 0
        return capsys.readouterr().out

    with pytest.raises(ConfigError, match=r"/t/cases has no judged night of suite .*--tables"):
        accept()
    nights = [case_row(1), case_row(2), replace(case_row(2), case="late")]
    stopped = case_row(3)  # before it was judged
    tables.rows += [*(replace(row, event="judged") for row in nights), stopped]
    assert "would be accepted" in accept(dry_run=True)
    assert len(tables.rows) == 4
    text = accept()
    assert "is accepted: later nights" in text and "(cases limit, late)" in text
    assert [(row.case, row.night) for row in tables.rows[4:]] == [
        (case, case_row(2).night) for case in ("limit", "late")
    ]
    assert "accepted already" in accept()
    assert len(tables.rows) == 6
    with pytest.raises(ConfigError, match="--accept and --night n1 are given"):
        nightly.main(["--accept", "--night", "n1"], standalone_mode=False)
