"""The time budget of sweeps and nights: the cases that are begun, and the end of a search."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.campaigns.sweep import execution
from jobs.campaigns.sweep.cases import load_sweep
from jobs.campaigns.sweep.execution import SweepExecution, SweepOrder
from jobs.config import load
from jobs.console.events import Notice, RecordingReporter
from jobs.runs.budget import TimeBudget, ending_within
from tests.support.report_rows import summary_of_sizes

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

    monkeypatch.setattr(execution, "open_cluster", lambda *_: None)
    monkeypatch.setattr(SweepExecution, "_open_spark", lambda *_: nullcontext())
    monkeypatch.setattr(execution, "execute", executed)
    monkeypatch.setattr(execution, "finished", finished)
    order = SweepOrder(
        load_sweep(str(file)), reporter, "s1", tmp_path / "s1", "unused", budget_s=100.0,
        expected_s=lambda turn: 101.0 if turn.number == 2 else 10.0,
    )  # fmt: skip
    under_way = SweepExecution(order)
    under_way.run()
    assert sorted(each.name for each in begun) == ["s1-c01-r1", "s1-c03-r1"]
    assert [turn.number for turn in under_way.left] == [2]
    (warned,) = (each.text for each in reporter.events if isinstance(each, Notice))
    assert warned.startswith("case acks=1, repeat 1 is not begun: it takes about 1 min 41 s")
    assert "1 cases did not fit into the budget" in (under_way.outcome(None).error or "")
