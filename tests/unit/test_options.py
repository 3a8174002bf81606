"""Options of commands with values that no job supports."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.cli import JOBS, redline
from jobs.list_runs import list_runs
from jobs.options import Tables, run_options
from jobs.runs.options import RunOptions
from metrics.common.errors import ConfigError
from metrics.reporting.files import require_place, write_file
from metrics.reporting.summary import write_summary
from tests.support.commands import job
from tests.support.run_events import SUMMARY
from tests.support.small_disks import small_disk

PLAN = ("plan", "--limit", "60", "--mb-per-s", "10", "--message-bytes", "1000")


def refused(*command: str) -> str:
    done = CliRunner().invoke(redline, command)
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


def test_amounts_are_finite() -> None:
    for option in ("--limit", "--mb-per-s", "--growth", "--offline"):
        for value in ("nan", "inf", "-inf", "NaN", "1e999"):
            message = refused(*PLAN, option, value)
            assert f"'{option}'" in message
            assert "is not a finite number" in message or "is not in the range" in message
    for name in JOBS:
        for param in job(name).params:
            is_float = isinstance(param.type, click.types.FloatParamType)
            assert not is_float or type(param.type).__name__ == "Amount", (name, param.name)


def test_paths_and_queries_are_no_ids() -> None:
    resume = (("find-limit", "--resume"), ("sweep", "acks", "--resume"))
    for command in (*resume, ("report",), ("export", "--as", "quotas")):
        for name in ("../../x", "a/b", "a b", "x'; drop table", "`x`", "", ".x", "a\n"):
            assert "is not a run id" in refused(*command, name), (command, name)


@pytest.mark.parametrize(
    "line",
    [
        "report nope", "traffic --np many", "sweep acks --budget-s x", "compare run-1",
        "runs show nope",
    ],
)  # fmt: skip
def test_the_message_of_a_mistake_names_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(redline, line.split())
    assert done.exit_code != 0
    assert " ".join(f"{done.output} {done.exception}".split()) == snapshot


@pytest.mark.parametrize("command", [("report", "r1"), ("find-limit",), ("nightly", "--suite=x")])
def test_a_folder_without_a_slash_is_not_taken_for_a_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    message = refused(*command, "--tables", "results")
    assert "write ./results for the folder, or spark_catalog.results for the schema" in message
    for meant in ("./results", "spark_catalog.results", "other"):
        assert Tables().convert(meant, None, None) == meant


PLACES = [
    ("runs", "list", "--json"),
    (*PLAN, "--json"),
    ("doctor", "--cluster", "nowhere", "--json"),
    ("compare", "--a", "kafka=3.9.2", "--b", "kafka=4.1.2", "--dry-run", "--json"),
    ("nightly", "--suite", "testbed", "--dry-run", "--junit"),
    ("export", "run-1", "--as", "quotas", "--to"),
    ("report", "run-1", "--to"),
    ("init",),
]


def test_a_place_that_takes_no_file_is_refused_before_anything_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for command in PLACES:
        line, begun_s = [*command, str(tmp_path / "file" / "answer")], time.thread_time()
        with pytest.raises(ConfigError, match=r"cannot be written \(Not a directory\)") as done:
            redline.main(line, standalone_mode=False)
        assert str(done.value).startswith("FILE" if command[0] == "init" else command[-1])
        assert time.thread_time() - begun_s < 2, f"{command}: nothing was loaded or started"


def test_a_place_that_cannot_hold_the_file_is_refused_and_the_check_leaves_no_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "away").symlink_to(tmp_path)
    places = (tmp_path, tmp_path / "away", tmp_path / ("a" * 300), Path("/proc/answer.json"))
    for path in (*places, tmp_path / "\0.json"):
        words = r"--json .* cannot be written \(.*\); expected a"
        with pytest.raises(ConfigError, match=words):
            require_place("--json", path)
        with pytest.raises(ConfigError, match=words):
            write_file("--json", path, "{}")
    for path in (tmp_path / "new" / "er" / "a.json", tmp_path / "a.json", Path("/dev/null")):
        require_place("--json", path)
    assert [each.name for each in tmp_path.iterdir()] == ["away"]


def test_a_file_is_refused_where_the_disk_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        with (disk / "all").open("wb") as file, pytest.raises(OSError, match="No space"):
            file.write(bytes(100_000))
        with pytest.raises(ConfigError, match="No space left on device"):
            require_place("--json", disk / "a.json")


LOADING = ("find-limit", "traffic", "sweep", "nightly", "compare")


def test_each_answer_for_programs_has_one_option() -> None:
    (listed,) = [each for each in list_runs.params if "--json" in each.opts]
    for name in (*LOADING, "doctor", "plan"):
        (found,) = [each for each in job(name).params if "--json" in each.opts]
        assert found.to_info_dict() == listed.to_info_dict(), name


@pytest.mark.parametrize("name", LOADING)
def test_a_job_that_loads_gets_the_options_of_its_run(name: str) -> None:
    passed: list[RunOptions] = []

    @click.command(name)
    @run_options
    def taken(to: list[RunOptions] = passed, **given: Any) -> None:
        to.append(given["options"])

    CliRunner().invoke(taken, ["--json", "a.json", "--slots", "3"], catch_exceptions=False)
    assert passed == [RunOptions(Path("out"), slots=3, json_file=Path("a.json"))]


def test_a_plan_finds_a_run_by_its_id_and_by_its_folder(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    found = replace(SUMMARY, replication_factor=3)
    write_summary(found, tmp_path / "out" / "run-1" / "summary.json")
    demand = ("--mb-per-s", "600", "--message-bytes", "10000")
    ways = (("run-1", "--out", str(tmp_path / "out")), (str(tmp_path / "out" / "run-1"),))
    first, second = (CliRunner().invoke(redline, ["plan", *demand, "--run", *way]) for way in ways)
    assert first.exit_code == 0, first.output
    assert "brokers to buy" in first.output
    text, again = (re.sub(r"(?m)^\S+Z ", "", each.output) for each in (first, second))  # when
    assert text == snapshot
    assert text == again
