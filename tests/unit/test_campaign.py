"""What all campaigns have in common: schedule, resume, budget, forecast and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.campaigns.campaign import Campaign, CampaignAnswer, Turn, once, shuffled
from jobs.config import Configuration, load
from jobs.console.events import Level, Notice, PhaseStarted, Plan, RecordingReporter, Table
from jobs.features.sweep import sweep_run
from jobs.features.sweep.cases import ExperimentCase, load_sweep
from jobs.features.sweep.sweep_run import SweepRun
from jobs.runs.context_factory import RunOrder
from jobs.runs.estimate import TimeBudget, ending_within
from jobs.runs.lifecycle import RunState, execute
from jobs.runs.outcome import RunOutcome
from metrics.common.errors import GuardStopError, NoConclusionError
from tests.support.report_rows import summary_of_sizes
from tests.support.sweeps import sweeping


class Letters(Campaign[str]):
    """A campaign of letters, which a script measures."""

    def __init__(
        self, script: Mapping[str, BaseException | None], budget_s: float | None = None
    ) -> None:
        super().__init__(budget_s)
        self.script = script
        self.measured: list[str] = []
        self.known: set[str] = set()
        self.forecasts: list[str] = []
        self.events: list[str] = []

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        return {}

    def schedule(self) -> Iterator[list[Turn[str]]]:
        turns = once(tuple(self.script))
        yield turns[:2]
        yield turns[2:]

    def title(self, turn: Turn[str]) -> str:
        return f"letter {turn.case}"

    def forecast(self, case: str) -> Plan:
        self.forecasts.append(case)
        size = 100 if case == "a" else 1_000
        return Plan("c", "w", "g", 3, (size,), "p", None, 5.0, 2, 10.0, write_bytes_max=7.0,
                    notes=("of one",))  # fmt: skip

    def starting_s(self, groups: Sequence[Sequence[Turn[str]]]) -> float:
        return 100.0 * len(groups)

    def about(self, groups: Sequence[Sequence[Turn[str]]]) -> tuple[str, ...]:
        return ("letters",)

    def take_over(self, run: RunState, turn: Turn[str]) -> bool:
        return turn.case in self.known

    @contextmanager
    def opened(self, run: RunState, group: Sequence[Turn[str]]) -> Iterator[None]:
        self.events.append("open")
        yield
        self.events.append("close")

    def measure_turn(self, run: RunState, turn: Turn[str], budget: TimeBudget) -> None:
        error = self.script[turn.case]
        self.events.append(turn.case)
        if error is not None:
            raise error
        self.measured.append(turn.case)

    def answer(self, run: RunState, outcome: RunOutcome) -> CampaignAnswer:
        text = f"{outcome.status}: {''.join(self.measured)}"
        return CampaignAnswer(
            "letters", lambda path: path.write_text(text), lambda: f"page of {text}",
            (Table("letters", ("letter",), (("a",),)),), (Notice(Level.NOTE, text),),
            "fix it", (("list", run.order.folder / "list.txt", lambda path: path.write_text("l")),),
        )  # fmt: skip


def run_of(
    campaign: Letters, folder: Path, *, resumes: bool = False, json_file: Path | None = None
) -> RecordingReporter:
    """The reporter of an executed campaign."""
    reporter = RecordingReporter()
    order = RunOrder(
        folder, "tables", json_file=json_file, reporter=reporter, run_id="id", resumes=resumes
    )
    execute(campaign, order)
    return reporter


def test_a_turn_without_a_conclusion_does_not_end_the_others(tmp_path: Path) -> None:
    campaign = Letters({"a": None, "b": NoConclusionError("all INVALID"), "c": None})
    reporter = run_of(campaign, tmp_path)
    assert campaign.measured == ["a", "c"]
    ((missing, why, begun),) = [(m.turn.case, m.why, m.is_begun) for m in campaign.missing]
    assert (missing, why, begun) == ("b", "all INVALID", True)
    texts = [each.text for each in reporter.events if isinstance(each, Notice)]
    assert "letter b: all INVALID" in texts
    phases = [each.text for each in reporter.events if isinstance(each, PhaseStarted)]
    assert phases == ["letter a", "letter b", "letter c"]


def test_a_guard_ends_a_campaign_and_its_figures_are_kept(tmp_path: Path) -> None:
    campaign = Letters({"a": None, "b": GuardStopError("the disk is full"), "c": None})
    with pytest.raises(GuardStopError):
        run_of(campaign, tmp_path)
    assert campaign.measured == ["a"]
    assert (tmp_path / "id" / "letters.json").read_text() == "stopped by a guard: a"
    assert "stopped by a guard" in (tmp_path / "id" / "letters.html").read_text()


def test_only_turns_that_are_left_and_end_within_the_budget_are_begun(tmp_path: Path) -> None:
    campaign = Letters({"a": None, "b": None}, budget_s=9.0)
    reporter = run_of(campaign, tmp_path)
    assert campaign.measured == []
    missing = [(each.turn.case, each.is_begun) for each in campaign.missing]
    assert missing == [("a", False), ("b", False)]
    first = next(each.text for each in reporter.events if isinstance(each, Notice))
    assert first.startswith("letter a is not begun: it takes about 10 s, but only ")
    campaign = Letters({"a": None, "b": None, "c": None, "d": None})
    campaign.known = {"a", "b", "c"}
    run_of(campaign, tmp_path, resumes=True)
    assert campaign.events == ["open", "d", "close"]


def test_the_forecast_is_the_sum_of_the_turns(tmp_path: Path) -> None:
    campaign = Letters({"a": None, "b": None, "c": None})
    plan = campaign.plan(tmp_path)
    assert (plan.trials_estimated, plan.duration_s, plan.write_bytes_max) == (6, 30.0, 21.0)
    assert (plan.starting_s, plan.message_bytes, plan.out) == (200.0, (100, 1_000), tmp_path)
    assert plan.notes == ("letters", "of one")
    campaign.plan(tmp_path)
    assert campaign.forecasts == ["a", "b", "c"], "each case is forecast once"


def test_all_files_are_written_and_shown_with_the_tables(tmp_path: Path) -> None:
    folder, copy = tmp_path / "id", tmp_path / "j"
    reporter = run_of(Letters({"a": None}), tmp_path, json_file=copy)
    assert copy.read_text() == "done: a"
    assert [each.text for each in reporter.events if isinstance(each, Notice)] == [
        "done: a",
        f"answer: {folder / 'letters.json'}",
        f"answer: {copy}",
        f"page: {folder / 'letters.html'}",
        f"list: {folder / 'list.txt'}",
        "tables: tables",
    ]


def test_a_shuffled_schedule_has_each_case_once_in_each_repeat_and_is_repeatable() -> None:
    cases = [SimpleNamespace(name=name, cluster=name in "ab") for name in "abcd"]

    def names(seed: int) -> list[list[str]]:
        groups = shuffled(cases, 3, seed, lambda each: each.cluster)
        return [[f"{turn.case.name}{turn.repeat}" for turn in group] for group in groups]

    made = names(1)
    assert sorted(map(sorted, made)) == sorted(
        [letter + str(repeat) for letter in pair] for pair in ("ab", "cd") for repeat in (1, 2, 3)
    )
    assert made == names(1)
    assert made != names(2)
    numbers = {t.name for group in shuffled(cases, 2, 1, lambda _: 0) for t in group}
    assert numbers == {f"c0{number}-r{repeat}" for number in (1, 2, 3, 4) for repeat in (1, 2)}


def test_a_case_fits_while_its_duration_is_left() -> None:
    now_s = [100.0]
    budget = TimeBudget(60.0, 100.0, lambda: now_s[0])
    assert (budget.left_s, budget.refusal(60.0)) == (60.0, "")
    now_s[0] = 130.0
    assert budget.refusal(31.0) == "it takes about 31 s, but only 30 s of the budget are left"
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


TEXT = """
asks: load
load: 8
workload: 1kB
axes:
  workload.producer.acks: ["0", "1", all]
"""


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

    monkeypatch.setattr(sweep_run, "open_cluster", lambda *_: None)
    monkeypatch.setattr(SweepRun, "_open_spark", lambda *_: None)
    monkeypatch.setattr(SweepRun, "forecast", forecast)
    monkeypatch.setattr(sweep_run, "execute", executed)
    monkeypatch.setattr(sweep_run, "finished", finished)
    under_way = sweeping(load_sweep(str(file)), tmp_path, reporter, budget_s=100.0)
    under_way.run()
    assert sorted(each.name for each in begun) == ["s1-c01-r1", "s1-c03-r1"]
    missing = under_way.body.missing
    assert [(each.turn.number, each.is_begun) for each in missing] == [(2, False)]
    warned = next(each.text for each in reporter.events if isinstance(each, Notice))
    assert warned.startswith("case acks=1, repeat 1 is not begun: it takes about 1 min 41 s")
    assert "1 cases did not fit into the budget" in (under_way.outcome(None).error or "")
