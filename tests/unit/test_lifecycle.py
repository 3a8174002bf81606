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
                self.job, RunOrder(folder, "unused", reporter=self.reporter, run_id="r")
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


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    """Runs a case with these parts."""
    return lambda **parts: Case(**parts).run(tmp_path, monkeypatch)


Run = Callable[..., Case]
NOT_WRITTEN = ConfigError("not written: out/answer.json (No space left on device)")
FULL = ConfigError("no space left")
STOP = GuardStopError("the disk is full")
LOST = NoConclusionError("all trials were INVALID")


def test_an_interrupt_while_tables_are_compacted_leaves_a_run_that_is_done(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, patience_s = threading.Event(), 60.0

    def cancelled(_spark: object, group: str) -> None:
        assert group == COMPACTION
        cut.set()

    def waits_for_the_cut() -> None:
        assert cut.wait(patience_s)

    monkeypatch.setattr("jobs.runs.lifecycle.cancel_group", cancelled)
    monkeypatch.setattr("jobs.runs.lifecycle.wait", lambda _: raises(KeyboardInterrupt())())
    case = run(compacts=waits_for_the_cut)
    assert (case.recorded, case.filed, case.code) == (("done", 0), ("done", 0), 0)
    assert "not compacted" in case.warnings


def test_files_are_written_while_resources_are_closed(run: Run) -> None:
    together = threading.Barrier(2)

    def meets() -> None:
        together.wait(60.0)

    case = run(tidies=meets, concludes=meets)
    assert (case.recorded, case.filed, case.code) == (("done", 0), ("done", 0), 0)
    assert case.warnings == ""


def test_an_error_after_the_end_does_not_change_the_outcome(run: Run) -> None:
    fails = raises(RedlineError("brokers do not stop"))
    for answer, code in ((RunOutcome(), 0), (RunOutcome("overloaded", 3, None), 3)):
        case = run(tidies=fails, answer=answer)
        assert case.recorded == case.filed == (answer.status, code)
        assert case.code == code
        assert "brokers do not stop" in case.warnings
    case = run(measures=raises(STOP), tidies=fails)
    assert case.recorded == case.filed == ("stopped by a guard", 5)
    assert case.code is STOP


@pytest.mark.parametrize(
    ("error", "is_watched"), [(None, True), (STOP, True), (KeyboardInterrupt(), False)]
)
def test_canaries_go_on_after_the_last_load_unless_the_run_is_interrupted(
    run: Run, error: BaseException | None, is_watched: bool
) -> None:
    asked = list[float]()

    def windows_after(loaded_until_s: float) -> tuple[CanaryWindow, ...]:
        asked.append(loaded_until_s)
        return (CanaryWindow(1, records=10),)

    measures = {} if error is None else {"measures": raises(error)}
    run(canaries=SimpleNamespace(windows_after=windows_after), **measures)
    assert asked == [7.0] * is_watched


@pytest.mark.parametrize(
    ("answer", "code", "ends_by"),
    [
        (RunOutcome("done", 4), 4, int),
        (RunOutcome("regression", 4, "b is slower"), 4, RegressionError),
        (RunOutcome("no conclusion", 3, "too few pairs"), 3, NoConclusionError),
        (RunOutcome(), 2, ConfigError),
    ],
    ids=["worse", "regression", "no conclusion", "done"],
)
def test_a_file_that_cannot_be_written_fails_only_a_good_run(
    run: Run, answer: RunOutcome, code: int, ends_by: type
) -> None:
    case = run(concludes=raises(NOT_WRITTEN), answer=answer)
    assert getattr(case.code, "exit_code", case.code) == code
    assert type(case.code) is ends_by
    assert ("not written: out/answer.json" in case.warnings) is (code != 2), "once"


@pytest.mark.parametrize("error", [STOP, LOST])
def test_an_error_keeps_its_exit_code_when_a_file_or_its_end_cannot_be_written(
    run: Run, error: RedlineError
) -> None:
    case = run(measures=raises(error), concludes=raises(NOT_WRITTEN))
    assert case.code is error
    assert "not written: out/answer.json" in case.warnings
    case = run(measures=raises(error), ends=raises(FULL))
    assert case.filed == (("no conclusion", 3) if error is LOST else ("stopped by a guard", 5))
    assert case.code is error
    assert "no space left" in case.warnings


def test_a_good_run_whose_end_cannot_be_recorded_fails(run: Run) -> None:
    case = run(ends=raises(FULL))
    assert case.recorded == ("running", None)
    assert case.filed == ("failed", 2)
    assert isinstance(case.code, ConfigError)
