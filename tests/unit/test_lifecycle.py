"""The end of a run: tables, files and exit code state the same outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.config import Configuration
from jobs.config.loading import load
from jobs.console.events import Notice, Plan, RecordingReporter
from jobs.runs.context_factory import RunOrder
from jobs.runs.estimate import plan_of
from jobs.runs.lifecycle import COMPACTION, Body, RunState, execute
from jobs.runs.options import RunOptions
from jobs.runs.outcome import RunOutcome
from metrics.common.errors import (
    ConfigError,
    GuardStopError,
    NoConclusionError,
    RedlineError,
    RegressionError,
)
from metrics.tables.rows import SweepCase
from metrics.tables.schema import RunRow
from metrics.trial.canary import CanaryWindow

CONFIG = load("testbed", "demo", "default")


@dataclass
class Tables:
    """Tables that keep the rows of `runs` and fail as scripted."""

    ends: Callable[[], None] = lambda: None
    compacts: Callable[[], None] = lambda: None
    rows: list[RunRow] = field(default_factory=list)
    settled: int = 0

    def append_run(self, row: RunRow, *, is_new: bool = False) -> None:
        if row.event == "finished":
            self.ends()
        self.rows.append(row)

    def settle(self) -> None:
        self.settled = len(self.rows)

    def compact(self) -> None:
        self.compacts()


class Job(Body):
    """A scripted job that keeps the outcomes of its conclusion."""

    def __init__(self, measures: Callable[[], None], answer: RunOutcome) -> None:
        self._measures, self._answer = measures, answer
        self.measurement = "load"
        self.files: list[RunOutcome] = []
        self.conclusion: Callable[[], None] = lambda: None

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        return {"": CONFIG}

    def plan(self, out: Path) -> Plan:
        return plan_of(CONFIG, out)

    def measure(self, run: RunState) -> None:
        self._measures()

    def outcome(self, error: BaseException | None) -> RunOutcome:
        return self._answer if error is None else super().outcome(error)

    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        self.files.append(outcome)
        self.conclusion()


@dataclass
class Case:
    """A run of a scripted job on scripted tables."""

    measures: Callable[[], None] = lambda: None
    ends: Callable[[], None] = lambda: None
    compacts: Callable[[], None] = lambda: None
    tidies: Callable[[], None] = lambda: None
    concludes: Callable[[], None] = lambda: None
    answer: RunOutcome = field(default_factory=RunOutcome)
    canaries: Any = None

    def run(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
        self.tables = Tables(self.ends, self.compacts)
        self.reporter = RecordingReporter()
        self.job = Job(self.measures, self.answer)
        self.job.conclusion = self.concludes
        self.code: int | BaseException

        def opened(opening: Any, stack: Any) -> Any:
            stack.callback(self.tidies)
            session = SimpleNamespace(spark=None)
            return SimpleNamespace(run_id="r", session=session, tables=self.tables, brokers=1,
                                   environment={}, all_caveats=(),
                                   sweep_case=SweepCase(), canaries=self.canaries,
                                   guards=SimpleNamespace(loaded_until_s=7.0))  # fmt: skip

        monkeypatch.setattr("jobs.runs.lifecycle.ContextFactory.open", opened)
        monkeypatch.setattr(
            "jobs.runs.lifecycle.run_interruptibly", lambda _spark, _group, action: action()
        )
        try:
            self.code = execute(
                self.job, RunOrder(self.reporter, RunOptions(folder, "unused"), "r")
            )
        except BaseException as error:  # noqa: BLE001 - what the command would end by
            self.code = error
        return self

    @property
    def warnings(self) -> str:
        return " ".join(each.text for each in self.reporter.events if isinstance(each, Notice))

    @property
    def recorded(self) -> tuple[str, int | None]:
        return self.tables.rows[-1].status, self.tables.rows[-1].exit_code

    @property
    def filed(self) -> tuple[str, int]:
        (outcome,) = self.job.files
        return outcome.status, outcome.exit_code


def raises(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_an_interrupt_while_tables_are_compacted_leaves_a_run_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, patience_s = threading.Event(), 60.0

    def cancelled(_spark: object, group: str) -> None:
        assert group == COMPACTION
        cut.set()

    def waits_for_the_cut() -> None:
        assert cut.wait(patience_s)

    monkeypatch.setattr("jobs.runs.lifecycle.cancel_group", cancelled)
    monkeypatch.setattr("jobs.runs.lifecycle.wait", lambda _: raises(KeyboardInterrupt())())
    case = Case(compacts=waits_for_the_cut).run(tmp_path, monkeypatch)
    assert (case.recorded, case.filed, case.code) == (("done", 0), ("done", 0), 0)
    assert "not compacted" in case.warnings


def test_files_are_written_while_resources_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2)

    def meets() -> None:
        together.wait(60.0)

    case = Case(tidies=meets, concludes=meets).run(tmp_path, monkeypatch)
    assert (case.recorded, case.filed, case.code, case.warnings) == (
        ("done", 0),
        ("done", 0),
        0,
        "",
    )


@pytest.mark.parametrize(
    ("answer", "code"),
    [(RunOutcome(), 0), (RunOutcome("overloaded", 3, None), 3)],
    ids=["done", "overloaded"],
)
def test_an_error_after_the_end_does_not_change_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: RunOutcome, code: int
) -> None:
    case = Case(tidies=raises(RedlineError("brokers do not stop")), answer=answer)
    case.run(tmp_path, monkeypatch)
    assert case.recorded == case.filed == (answer.status, code)
    assert case.code == code
    assert "brokers do not stop" in case.warnings


@pytest.mark.parametrize(
    ("error", "is_watched"),
    [(None, True), (GuardStopError("it fills"), True), (KeyboardInterrupt(), False)],
)
def test_canaries_go_on_after_the_last_load_unless_the_run_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, is_watched: bool
) -> None:
    asked = list[float]()

    def windows_after(loaded_until_s: float) -> tuple[CanaryWindow, ...]:
        asked.append(loaded_until_s)
        return (CanaryWindow(1, records=10),)

    case = Case(canaries=SimpleNamespace(windows_after=windows_after))
    if error is not None:
        case.measures = raises(error)
    case.run(tmp_path, monkeypatch)
    assert asked == [7.0] * is_watched


def test_an_error_ends_the_command_when_closing_fails_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = GuardStopError("the disk is full")
    case = Case(measures=raises(stop), tidies=raises(RedlineError("and so on")))
    case.run(tmp_path, monkeypatch)
    assert case.recorded == case.filed == ("stopped by a guard", 5)
    assert case.code is stop


@pytest.mark.parametrize(
    ("answer", "code", "ends_by"),
    [
        (RunOutcome("done", 4), 4, None),
        (RunOutcome("regression", 4, "b is slower"), 4, RegressionError),
        (RunOutcome("no conclusion", 3, "too few pairs"), 3, NoConclusionError),
        (RunOutcome(), 2, ConfigError),
    ],
    ids=["worse", "regression", "no conclusion", "done"],
)
def test_a_file_that_cannot_be_written_hides_no_result(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: RunOutcome,
    code: int,
    ends_by: type[RedlineError] | None,
) -> None:
    lacking = ConfigError("not written: out/answer.json (No space left on device)")
    case = Case(concludes=raises(lacking), answer=answer).run(tmp_path, monkeypatch)
    assert getattr(case.code, "exit_code", case.code) == code
    if ends_by is not None:
        assert type(case.code) is ends_by
    assert ("not written: out/answer.json" in case.warnings) is (code != 2), "once"


def test_a_stopped_run_keeps_its_exit_code_when_a_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = GuardStopError("the disk fills")
    case = Case(measures=raises(stop), concludes=raises(ConfigError("not written: x")))
    assert case.run(tmp_path, monkeypatch).code is stop
    assert "not written: x" in case.warnings


def test_a_good_run_whose_end_cannot_be_recorded_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(ends=raises(ConfigError("no space left"))).run(tmp_path, monkeypatch)
    assert case.recorded == ("running", None)
    assert case.filed == ("failed", 2)
    assert isinstance(case.code, ConfigError)


def test_an_error_whose_end_cannot_be_recorded_stays_that_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = NoConclusionError("all trials were INVALID")
    case = Case(measures=raises(lost), ends=raises(ConfigError("no space left")))
    case.run(tmp_path, monkeypatch)
    assert case.filed == ("no conclusion", 3)
    assert case.code is lost
    assert "no space left" in case.warnings


def test_files_that_cannot_be_written_fail_only_a_good_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = ConfigError("summary.json could not be written")
    assert Case(concludes=raises(lacks)).run(tmp_path, monkeypatch).code is lacks
    lost = NoConclusionError("all trials were INVALID")
    case = Case(measures=raises(lost), concludes=raises(lacks)).run(tmp_path, monkeypatch)
    assert case.code is lost
    assert "could not be written" in case.warnings
