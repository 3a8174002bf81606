"""The time budget of sweeps and nights: the cases that are begun, and the end of a search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.config import load
from jobs.console.events import Notice, Plan, RecordingReporter
from jobs.features.sweep import body
from jobs.features.sweep.body import SweepRun
from jobs.features.sweep.cases import ExperimentCase, load_sweep
from jobs.runs.estimate import TimeBudget, ending_within
from tests.support.report_rows import summary_of_sizes
from tests.support.sweeps import sweeping

TEXT = """
asks: load
load: 8
workload: 1kB
axes:
  workload.producer.acks: ["0", "1", all]
"""


def test_a_case_fits_while_its_duration_is_left() -> None:
    now_s = [100.0]
    budget = TimeBudget(60.0, 100.0, lambda: now_s[0])
    assert (budget.left_s, budget.refusal(60.0)) == (60.0, "")
    now_s[0] = 130.0
    assert budget.refusal(31.0) == "it takes about 31 s, and the budget has 30 s left"
    assert budget.refusal(30.0) == ""
    now_s[0] = 500.0
    assert budget.left_s == 0.0
    endless = TimeBudget(None)
    assert (endless.left_s, endless.refusal(1e9)) == (None, "")


@pytest.mark.parametrize(("own", "left_s", "found"), [
    ("null", None, None), ("null", 90.0, 90.0), ("40", 90.0, 40.0), ("40", 20.0, 20.0),
])  # fmt: skip
def test_a_search_ends_by_the_earlier_of_both_budgets(
    own: str, left_s: float | None, found: float | None
) -> None:
    config = load("testbed", "demo", "default", [f"goal.search.budget.duration_s={own}"])
    assert ending_within(config, left_s).goal.search.budget.duration_s == found


def test_a_sweep_states_which_cases_are_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reporter = tmp_path / "mine.yaml", RecordingReporter()
    file.write_text(TEXT, encoding="utf-8")
    begun: list[Path] = []

    def executed(_body: Any, run: Any, *_: Any) -> None:
        begun.append(run.folder)
        run.folder.mkdir(parents=True)

    def finished(folder: Path) -> Any:
        return replace(summary_of_sizes([]), run_id=folder.name) if folder in begun else None

    def forecast(self: SweepRun, case: ExperimentCase) -> Plan:
        acks = case.settings["workload.producer.acks"]
        plan = self.body_of(case).plan(tmp_path)
        return replace(plan, duration_s=101.0 if acks == "1" else 10.0)

    monkeypatch.setattr(body, "open_cluster", lambda *_: None)
    monkeypatch.setattr(SweepRun, "_open_spark", lambda *_: None)
    monkeypatch.setattr(SweepRun, "forecast", forecast)
    monkeypatch.setattr(body, "execute", executed)
    monkeypatch.setattr(body, "finished", finished)
    under_way = sweeping(load_sweep(str(file)), tmp_path, reporter, budget_s=100.0)
    under_way.run()
    assert sorted(each.name for each in begun) == ["s1-c01-r1", "s1-c03-r1"]
    missing = under_way.body.missing
    assert [(each.turn.number, each.is_begun) for each in missing] == [(2, False)]
    warned = next(each.text for each in reporter.events if isinstance(each, Notice))
    assert warned.startswith("case acks=1, repeat 1 is not begun: it takes about 1 min 41 s")
    assert "1 cases did not fit into the budget" in (under_way.outcome(None).error or "")
