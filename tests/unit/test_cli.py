"""The command `redline`: its jobs, its completions, and what is imported for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from jobs.cli import ELSEWHERE, JOBS, redline
from tests.support.commands import ROOT, job


def test_the_list_has_each_job_with_the_sentence_that_begins_its_help() -> None:
    shown = " ".join(CliRunner().invoke(redline, ["--help"]).output.split())
    for name, sentence in JOBS.items():
        assert f"{name} {sentence}" in shown
        assert " ".join((job(name).help or "").split("\n\n")[0].split()) == sentence


def test_every_module_of_a_job_is_on_the_list() -> None:
    files = {path.stem.replace("_", "-") for path in (ROOT / "jobs").glob("*.py")}
    helpers = {"--init--", "cli", "entry", "notebook", "options"}
    named = {ELSEWHERE.get(job, f"jobs.{job}").removeprefix("jobs.") for job in JOBS}
    assert files - helpers == {each.replace("_", "-") for each in named} - {"testbed.commands"}


def completed(*words: str) -> list[str]:
    """The completions that a shell gets for the last of some words."""
    *before, incomplete = words
    shell = ShellComplete(redline, {}, "redline", "_REDLINE_COMPLETE")
    return [item.value for item in shell.get_completions(before, incomplete)]


def test_names_are_completed() -> None:
    for words, offered in (
        (("find",), ["find-limit"]),
        (("find-limit", "--off"), ["--offline"]),
        (("find-limit", "--cluster", "cal"), ["calibrated", "cal"]),
        (("traffic", "--workload", "qui"), ["quick", "qui"]),
        (("find-limit", "--goal", "within-1"), ["within-100ms", "within-10ms", "within-1"]),
        (("nightly", "--suite", "te"), ["testbed", "te"]),
        (("sweep", "io"), ["io-threads", "io"]),
    ):
        assert completed(*words) == offered


def test_ids_of_runs_are_completed_from_their_folders_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("20261122-210000-ab12", "20261123-070000-cd34", "tables"):
        (tmp_path / "out" / name).mkdir(parents=True)
    newest_first = ["20261123-070000-cd34", "20261122-210000-ab12"]
    assert completed("report", "") == newest_first
    assert completed("find-limit", "--resume", "20261122") == newest_first[1:]
    assert completed("report", "--out", "nowhere", "") == []


def test_the_page_has_the_command_for_each_shell() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for shell in ("bash", "zsh", "fish"):
        assert f"_REDLINE_COMPLETE={shell}_source redline" in page


HEAVY = ("altair", "kafka", "numpy", "pandas", "pyarrow", "pydantic", "pyspark")
ALLOWED = {"runs": ["pydantic"], "testbed": ["kafka", "pydantic"]}
"""The libraries that jobs may import because their answers take no longer than their options."""
ORDER = sorted(JOBS, key=lambda job: (job in ALLOWED, job))
LOADED = f"""
import json, sys
import click
from jobs.cli import redline
found = {{"redline": sorted(set(sys.modules) & set({(*HEAVY, "rich")!r}))}}
for job in {ORDER!r}:
    before = set(sys.modules)
    redline.get_command(click.Context(redline), job)
    found[job] = sorted(set(sys.modules) - before & set({HEAVY!r}))
print(json.dumps(found))
"""


def test_the_options_of_a_job_are_there_without_any_large_library() -> None:
    """Each takes tenths of a second, and each press of Tab waits for all of them."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True,
                          cwd=ROOT, check=True)  # fmt: skip
    loaded = json.loads(done.stdout)
    unexpected = {job: set(names) - set(ALLOWED.get(job, ())) for job, names in loaded.items()}
    assert {job: names for job, names in unexpected.items() if names} == {}
