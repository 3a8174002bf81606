"""`redline runs`: what is found in a folder of runs, told, tagged and deleted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs.list_runs import runs
from metrics.reporting.known_runs import known_runs, write_index, write_tags
from metrics.reporting.summary import trial_document, write_summary
from search.errors import ConfigError
from tests.support.reported import RUN_ID, summary_of_sizes
from tests.support.rows import trial


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A search, a held load, a sweep, a run that was killed, and what is none of a run's."""
    found = summary_of_sizes([100, 1000])
    held = replace(found, run_id="held", started_at="2026-11-22T00:00:00Z", boundaries=())
    trials = (trial_document(trial()), trial_document(trial()))
    for one in (found, replace(held, trials=trials)):
        folder = tmp_path / one.run_id
        folder.mkdir()
        write_summary(one, folder / "summary.json")
    (tmp_path / RUN_ID / "report.html").write_text("a page")
    sweep = {
        "experiment": "acks",
        "status": "no conclusion",
        "started_at": "2026-11-23T00:00:00Z",
        "results": [{"settings": {"acks": "1"}}, {"settings": {"acks": "all"}}],
    }
    for name, file, text in (
        ("swept", "sweep.json", json.dumps(sweep)),
        ("killed", "run.log", "begun"),
        ("broken", "summary.json", "{"),
        ("odd", "summary.json", "[]"),
        ("tables", "anything", ""),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    (tmp_path / "a file").write_text("")
    return tmp_path


def test_every_run_is_found_the_newest_first_and_a_broken_file_hides_none(out: Path) -> None:
    found = {each.run_id: each for each in known_runs(out)}
    assert list(found)[:3] == ["swept", "held", RUN_ID]
    assert set(found) == {"swept", "held", RUN_ID, "killed", "broken", "odd"}
    assert [found[name].job for name in ("swept", "held", RUN_ID)] == [
        "sweep",
        "traffic",
        "find-limit",
    ]
    assert found["swept"].answer == "acks: 2 cases"
    assert found["held"].answer == "100 B: 2 OVERLOADED"
    assert found[RUN_ID].answer == "100 B: 14.5 MB/s, 1 kB: 14.5 MB/s"
    assert found[RUN_ID].page == f"{RUN_ID}/report.html"
    assert found["killed"].status == "running or killed"
    assert {found[name].status for name in ("broken", "odd")} == {"unreadable"}
    assert known_runs(out / "nothing") == []


def test_the_page_of_all_runs_escapes_and_links(out: Path) -> None:
    write_tags(out / RUN_ID, ["<b>baseline"])
    page = write_index(out).read_text(encoding="utf-8")
    assert f'<a href="{RUN_ID}/report.html">' in page
    assert "&lt;b&gt;baseline" in page and "<b>baseline" not in page
    assert "http" not in page.replace("http-equiv", "")


def asked(out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(runs, [*arguments, "--out", str(out)], standalone_mode=False)


def test_runs_are_listed_shown_tagged_and_deleted(out: Path) -> None:
    listed = asked(out, "list", "--json", str(out / "runs.json"))
    assert listed.exception is None and RUN_ID in listed.output
    assert len(json.loads((out / "runs.json").read_text())) == 6
    assert (out / "index.html").exists()
    assert asked(out, "tag", RUN_ID, "baseline", "before").exception is None
    assert asked(out, "tag", RUN_ID, "before", "--remove").exception is None
    assert RUN_ID in asked(out, "list", "--tag", "baseline").output
    assert RUN_ID not in asked(out, "list", "--tag", "before").output
    shown = asked(out, "show", RUN_ID).output
    assert "14.5 MB/s" in shown and "baseline" in shown and "summary.json" in shown
    assert "--yes deletes them" in asked(out, "delete", "held").output
    assert (out / "held").exists()
    assert asked(out, "delete", "held", "--yes").exception is None
    assert not (out / "held").exists()


@pytest.mark.parametrize("command", [["show"], ["delete", "--yes"], ["tag", "x"]])
@pytest.mark.parametrize("run_id", ["nobody", "tables"])
def test_what_is_no_run_is_refused_with_those_that_are(
    out: Path, command: list[str], run_id: str
) -> None:
    name, *rest = command
    done = asked(out, name, run_id, *rest)
    assert isinstance(done.exception, ConfigError)
    assert "the newest of which are swept, held" in str(done.exception)
    assert (out / "tables" / "anything").exists()


def test_no_path_is_an_id(out: Path) -> None:
    for path in ("../x", "a/b", ".."):
        assert "no id of a run" in str(asked(out, "delete", path, "--yes").exception)
