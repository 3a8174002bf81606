"""`redline runs`: runs of a folder are found, listed, tagged and deleted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs.features.compare.answer import (
    CaseComparer,
    ComparedSize,
    ComparisonAnswer,
    Effort,
    SideFacts,
    answer_of,
    write_answer,
)
from jobs.list_runs import runs
from jobs.runs.run_lock import is_locked, run_lock
from metrics.common.errors import ConfigError, TryLaterError
from metrics.comparing.effects import Side
from metrics.comparing.figures import ACKNOWLEDGED
from metrics.comparing.figures import Result as Figure
from metrics.features.nightly.judging import CaseReport, night_document
from metrics.features.sweep.answer import SweepAnswer
from metrics.reporting.known_runs import KnownRun, known_runs, write_index, write_tags
from metrics.reporting.summary import trial_document, write_summary
from metrics.tables.rows import Outcome
from metrics.trial.trial import offline_state
from tests.support.nights import head_of_night
from tests.support.report_rows import RUN_ID, summary_of_sizes
from tests.support.rows import trial
from tests.support.two_sides import TwoSides


def swept() -> SweepAnswer:
    results = tuple(Figure({"acks": acks}, 1, 1000, 5.0) for acks in ("1", "all"))
    return SweepAnswer(
        "swept", "2026-11-23T00:00:00Z", "2026-11-23T01:00:00Z", "no conclusion", 3, None, "",
        "acks", "", "", "load", "MB/s", ACKNOWLEDGED, {"acks": ("1", "all")}, 1, results,
    )  # fmt: skip


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A search, a held load, a sweep, a killed run, and files that belong to no run."""
    found = summary_of_sizes([100, 1000])
    held = replace(found, run_id="held", started_at="2026-11-22T00:00:00Z", boundaries=())
    trials = (trial_document(trial()), trial_document(trial()))
    for one in (found, replace(held, trials=trials)):
        folder = tmp_path / one.run_id
        folder.mkdir()
        write_summary(one, folder / "summary.json")
    (tmp_path / RUN_ID / "report.html").write_text("a page")
    for name, file, text in (
        ("swept", "sweep.json", swept().document()),
        ("killed", "run.log", "begun"),
        ("broken", "summary.json", "{"),
        ("odd", "summary.json", "[]"),
        ("tables", "anything", ""),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    (tmp_path / "a file").write_text("")
    return tmp_path


def test_every_run_is_found_the_newest_first_also_beside_a_broken_file(out: Path) -> None:
    killed = "20261122-235959-ab12"
    (out / "killed").rename(out / killed)
    write_tags(out / RUN_ID, ["<b>baseline"])
    runs_found = known_runs(out, is_locked)
    found = {each.run_id: each for each in runs_found}
    assert list(found)[:4] == ["swept", killed, "held", RUN_ID]
    assert set(found) == {"swept", "held", RUN_ID, killed, "broken", "odd"}
    stated = {name: (found[name].job, found[name].answer) for name in ("swept", "held", RUN_ID)}
    assert stated == {
        "swept": ("sweep", "acks: 2 cases"),
        "held": ("traffic", "100 B: 2 OVERLOADED"),
        RUN_ID: ("find-limit", "100 B: 14.5 MB/s, 1 kB: 14.5 MB/s"),
    }
    assert found[RUN_ID].page == f"{RUN_ID}/report.html"
    assert (found[killed].status, found[killed].started_at) == ("killed", "2026-11-22T23:59:59Z")
    with run_lock(out / killed, "a test"):
        (goes_on,) = (each for each in known_runs(out, is_locked) if each.run_id == killed)
        assert goes_on.status == "running"
    assert {found[name].status for name in ("broken", "odd")} == {"unreadable"}
    assert known_runs(out / "nothing", is_locked) == []
    page = write_index(out, runs_found).read_text(encoding="utf-8")
    assert '<td class="text whole">2026-11-22 23:59</td>' in page
    assert f'<a href="{RUN_ID}/report.html">' in page
    assert "&lt;b&gt;baseline" in page and "<b>baseline" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_job_of_a_run_follows_from_its_measurement_and_else_from_its_results(
    tmp_path: Path,
) -> None:
    nothing = replace(summary_of_sizes([1000]), boundaries=(), status="failed", error="no broker")
    for measurement in ("load", "limit", ""):
        one = replace(nothing, run_id=f"of {measurement}", measurement=measurement)
        write_summary(one, tmp_path / one.run_id / "summary.json")
    jobs = {each.run_id: each.job for each in known_runs(tmp_path, is_locked)}
    assert jobs == {"of load": "traffic", "of limit": "find-limit", "of ": "find-limit"}
    assert {each.answer for each in known_runs(tmp_path, is_locked)} == {"no broker"}


def test_the_answer_names_the_axis_of_the_search(tmp_path: Path) -> None:
    found = summary_of_sizes([1000])
    (limit,) = found.boundaries
    along = replace(limit, axis="partitions", load_sustained=95, goal="strict")
    away = replace(limit, np_sustained=0, load_sustained=0, state=offline_state(1))
    several = replace(found, boundaries=(limit, along, away))
    for name, one in (("one", replace(found, boundaries=(along,))), ("several", several)):
        write_summary(one, tmp_path / name / "summary.json")
    answers = {each.run_id: each.answer for each in known_runs(tmp_path, is_locked)}
    assert answers["one"] == "1 kB: 95 partitions per broker"
    assert answers["several"] == (
        "default: 1 kB: 14.5 MB/s, 1 kB, 1 broker offline: less than 15.8 MB/s; "
        f"strict: {answers['one']}"
    )


def compared(out: Path, capacity_of_b: float) -> KnownRun:
    """A comparison of simulated brokers, read from its file."""
    sizes = [ComparedSize(100), ComparedSize(1000)]
    for size, b in zip(sizes, (10.0, capacity_of_b), strict=True):
        CaseComparer(TwoSides({Side.A: 10.0, Side.B: b}), Effort(4, 0), 128, 10_000).measure(size)
    facts = {
        side: SideFacts(f"num.io.threads={threads}", f"id-{side.value}", "testbed", 1, {})
        for side, threads in ((Side.A, 2), (Side.B, 1))
    }
    head = {"status": "done", "started_at": "2026-11-22T00:00:00Z", "workload": "1kB"}
    write_answer(answer_of(facts, sizes, 0.05), head, out / "compared" / "compare.json")
    (found,) = known_runs(out, is_locked)
    return found


def test_a_comparison_is_listed_with_the_conclusion_of_each_size(tmp_path: Path) -> None:
    found = compared(tmp_path, 8.0)
    assert found.answer == (
        "num.io.threads=1 against num.io.threads=2: 100 B: no difference seen, 1 kB: regression"
    )
    assert (found.job, found.started_at) == ("compare", "2026-11-22T00:00:00Z")
    assert found.workload == "1kB"
    assert "1 kB: improvement" in compared(tmp_path, 12.0).answer
    nothing = ComparisonAnswer({}, (), (), 0.05)
    error = "side B did not start"
    write_answer(nothing, {"status": "failed", "error": error}, tmp_path / "compared/compare.json")
    assert [each.answer for each in known_runs(tmp_path, is_locked)] == [error]


def test_a_night_is_listed_with_the_outcomes_of_its_cases(tmp_path: Path) -> None:
    outcomes = {"acks": Outcome.NO_CHANGE, "small": Outcome.REGRESSION, "large": Outcome.NO_CHANGE}
    cases = tuple(CaseReport(name, "limit", 1000, each, "") for name, each in outcomes.items())
    head = head_of_night(night="2026-11-22", suite="testbed")
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "nightly.json").write_text(json.dumps(night_document(head, cases, {})))
    (found,) = known_runs(tmp_path, is_locked)
    assert found.answer == ("suite testbed, night 2026-11-22: 1 regression (small), 2 no change")
    assert (found.job, found.cluster, found.status) == ("nightly", "c", "regression")


@pytest.mark.parametrize(
    ("file", "command"),
    [("index.html", ("list",)), (f"{RUN_ID}/tags.json", ("tag", RUN_ID, "baseline"))],
)
def test_a_folder_that_is_not_writable_is_reported(
    out: Path, file: str, command: tuple[str, ...]
) -> None:
    (out / file).mkdir()  # no file can replace it, even for root
    done = run_command(out, *command)
    assert isinstance(done.exception, ConfigError)
    assert f"{out / file} cannot be written" in str(done.exception)


def run_command(out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(runs, [*arguments, "--out", str(out)], standalone_mode=False)


def test_runs_are_listed_shown_tagged_and_deleted_unless_they_are_active(out: Path) -> None:
    listed = run_command(out, "list", "--json", str(out / "runs.json"))
    assert listed.exception is None and RUN_ID in listed.output
    assert len(json.loads((out / "runs.json").read_text())) == 6
    assert (out / "index.html").exists()
    assert run_command(out, "tag", RUN_ID, "baseline", "before").exception is None
    assert run_command(out, "tag", RUN_ID, "before", "--remove").exception is None
    assert RUN_ID in run_command(out, "list", "--tag", "baseline").output
    assert RUN_ID not in run_command(out, "list", "--tag", "before").output
    shown = run_command(out, "show", RUN_ID).output
    assert "14.5 MB/s" in shown and "baseline" in shown and "summary.json" in shown
    assert "--yes deletes them" in run_command(out, "delete", "held").output
    with run_lock(out / "held", "traffic of anna@host"):
        done = run_command(out, "delete", "held", "--yes")
        assert isinstance(done.exception, TryLaterError) and done.exception.exit_code == 75
        assert (out / "held" / "summary.json").exists()
    assert run_command(out, "delete", "held", "--yes").exception is None
    assert not (out / "held").exists()


def test_an_unknown_run_is_refused_with_the_known_ones(out: Path) -> None:
    for name, *rest in (["show"], ["delete", "--yes"], ["tag", "x"]):
        for run_id in ("unknown", "tables"):
            done = run_command(out, name, run_id, *rest)
            assert isinstance(done.exception, ConfigError)
            assert "swept, held" in str(done.exception)
    assert (out / "tables" / "anything").exists()
    for path in ("../x", "a/b", ".."):
        assert "is not a run id" in str(run_command(out, "delete", path, "--yes").exception)
