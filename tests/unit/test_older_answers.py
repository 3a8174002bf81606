"""Answers of a version that did not record measurements: a sweep of times, and a limit.

`tests/data/older-sweep` has the files as that version wrote them, after two of six cases.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.console.events import RecordingReporter
from jobs.features.sweep import body
from jobs.features.sweep.body import SweepRun
from jobs.features.sweep.cases import load_sweep
from jobs.features.sweep.from_tables import finished as of_older
from metrics.common.errors import ConfigError
from metrics.reporting.known_runs import known_runs
from metrics.reporting.report_page import is_held
from metrics.reporting.summary import load_summary
from tests.support.commands import ROOT
from tests.support.report_rows import summary_of_sizes
from tests.support.sweeps import load_answer, sweeping

OLDER = ROOT / "tests" / "data" / "older-sweep"
RUNS = ROOT / "tests" / "data" / "older-runs"


def test_a_run_without_a_measurement_is_a_search_or_a_held_load() -> None:
    limit, load = (
        load_summary(OLDER / name / "summary.json") for name in ("of-a-limit", "s1-c01-r1")
    )
    assert (limit.measurement, load.measurement) == ("", "")
    assert (is_held(limit), is_held(load)) == (False, True)
    assert "longer" in load_answer(OLDER / "sweep.json").sentences[0]
    jobs = {each.run_id: each.job for each in known_runs(OLDER, lambda _: False)}
    assert jobs == {"of-a-limit": "find-limit", "s1-c01-r1": "traffic", "s1-c02-r1": "traffic"}


def resumed(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """The older sweep after its end, and the runs that were still to be made."""
    shutil.copytree(OLDER, folder / "s1", dirs_exist_ok=True)
    (folder / "acks.yaml").write_text(text, encoding="utf-8")
    begun: list[str] = []

    def executed(_body: Any, run: Any, *_: Any) -> None:
        begun.append(run.run_id)
        run.folder.mkdir()

    def finished(path: Path) -> Any:
        return replace(summary_of_sizes([]), trials=()) if path.name in begun else of_older(path)

    monkeypatch.setattr(body, "open_cluster", lambda *_: None)
    monkeypatch.setattr(SweepRun, "_open_spark", lambda *_: None)
    monkeypatch.setattr(body, "execute", executed)
    monkeypatch.setattr(body, "finished", finished)
    under_way = sweeping(load_sweep(str(folder / "acks.yaml")), folder, RecordingReporter())
    under_way.run()
    return under_way, sorted(begun)


def test_an_older_sweep_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (OLDER / "acks.yaml").read_text(encoding="utf-8")
    under_way, begun = resumed(tmp_path, text, monkeypatch)
    assert begun == ["s1-c01-r2", "s1-c01-r3", "s1-c02-r2", "s1-c02-r3"]
    before = load_answer(OLDER / "sweep.json").results
    kept = {each.run_id: each.value for each in before if each.repeat == 1}
    assert {each.run_id: each.value for each in under_way.results} == kept


def test_a_sweep_is_resumed_after_runs_of_two_earlier_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first is of commit 2053f56, the second of 13ccb174; their experiment.json is the same.
    shutil.copytree(RUNS, tmp_path / "s1")
    under_way, begun = resumed(tmp_path, (OLDER / "acks.yaml").read_text("utf-8"), monkeypatch)
    assert begun == ["s1-c01-r3", "s1-c02-r3"]
    found = {each.run_id: each.value for each in under_way.results if each.repeat == 2}
    assert found == {"s1-c01-r2": 8.1, "s1-c02-r2": 12.3}


def test_an_older_sweep_is_not_resumed_with_another_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (OLDER / "acks.yaml").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="began with another experiment"):
        resumed(tmp_path, text.replace("load: 8", "load: 9"), monkeypatch)
