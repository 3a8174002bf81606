"""Logs and secrets belong to their owner; answers keep the umask, as analysts read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from jobs.entry import UNEXPECTED, run
from jobs.testbed.launcher import launch
from metrics.reporting.files import write_atomic, write_private
from tests.support.run_in_parts import parts_of_a_run
from tests.support.testbed_spec import SPEC

PRIVATE, ANALYSTS = 0o600, 0o644


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


def test_the_log_of_a_run_is_its_owners_and_its_answer_is_the_analysts(tmp_path: Path) -> None:
    parts_of_a_run(tmp_path, locks=False)
    write_atomic(tmp_path / "r1" / "summary.json", "{}")
    assert modes(tmp_path / "r1") == {"run.log": PRIVATE, "summary.json": ANALYSTS}


def test_the_traceback_of_an_unexpected_error_is_its_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDLINE_CACHE", str(tmp_path / "cache"))

    @click.command()
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(SystemExit) as ended:
        run(fail, [])
    assert ended.value.code == UNEXPECTED
    assert modes(tmp_path / "cache")["last-error.txt"] == PRIVATE


def test_a_private_file_is_private_where_an_open_one_was(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old")
    write_private(file, "hunter2")
    assert modes(tmp_path) == {"password": PRIVATE}
    assert file.read_text() == "hunter2"


def test_the_folder_of_a_testbed_is_its_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        raise RuntimeError

    monkeypatch.setattr("jobs.testbed.launcher.channel_pair", stop)
    with pytest.raises(RuntimeError):
        launch(SPEC, tmp_path)
    (folder,) = (each for each in tmp_path.iterdir() if each.is_dir())
    assert modes(tmp_path)[folder.name] == 0o700
