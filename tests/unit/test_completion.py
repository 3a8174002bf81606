"""Shells complete jobs, options, the files of conf by their names, and the ids of runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from jobs.cli import redline
from tests.support.commands import ROOT


def completed(*words: str) -> list[str]:
    """The completions that a shell gets for the last of some words."""
    *before, incomplete = words
    shell = ShellComplete(redline, {}, "redline", "_REDLINE_COMPLETE")
    return [item.value for item in shell.get_completions(before, incomplete)]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("find",), ["find-limit"]),
        (("find-limit", "--off"), ["--offline"]),
        (("find-limit", "--cluster", "cal"), ["calibrated", "cal"]),
        (("traffic", "--workload", "qui"), ["quick", "qui"]),
        (("find-limit", "--goal", "within-1"), ["within-100ms", "within-10ms", "within-1"]),
        (("nightly", "--suite", "te"), ["testbed", "te"]),
        (("sweep", "io"), ["io-threads", "io"]),
    ],
)
def test_names_are_completed(words: tuple[str, ...], offered: list[str]) -> None:
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
