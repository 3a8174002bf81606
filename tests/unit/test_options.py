"""Options of commands whose values no job could work with."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from jobs.cli import JOBS, redline
from metrics.reporting.summary import write_file
from search.errors import ConfigError
from tests.support.commands import job

PLAN = ("plan", "--limit", "60", "--mb-per-s", "10", "--message-bytes", "1000")


def refused(*command: str) -> str:
    done = CliRunner().invoke(redline, command)
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "NaN", "1e999"])
@pytest.mark.parametrize("option", ["--limit", "--mb-per-s", "--growth", "--offline"])
def test_amounts_are_finite(option: str, value: str) -> None:
    said = refused(*PLAN, option, value)
    assert f"'{option}'" in said
    assert "is no finite number" in said or "is not in the range" in said


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", "a b", "x'; drop table", "`x`", "", ".x", "a\n"]
)
@pytest.mark.parametrize(
    "command",
    [
        ("find-limit", "--resume"),
        ("sweep", "acks", "--resume"),
        ("report",),
        ("export", "--as", "quotas"),
    ],
    ids=lambda command: str(command[0]),
)
def test_ids_are_no_paths_and_no_queries(command: tuple[str, ...], name: str) -> None:
    assert "is no id of a run" in refused(*command, name)


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "y.json", tmp_path / "\0.json"):
        with pytest.raises(ConfigError, match=r"--json .* cannot be written \(.*\); expected a"):
            write_file("--json", path, "{}")


def test_every_number_of_every_command_is_finite() -> None:
    for name in JOBS:
        for param in job(name).params:
            is_float = isinstance(param.type, click.types.FloatParamType)
            assert not is_float or type(param.type).__name__ == "Amount", (name, param.name)
