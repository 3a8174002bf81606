"""Pages of docs agree with the code: README, testbed, faults and tables."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from pathlib import Path

import click
import pytest

from jobs.config.link import Link
from jobs.testbed import commands
from jobs.testbed.profile import Profile
from metrics.tables.schema import (
    ROWS,
    SCHEMAS,
    DescribedColumn,
    described,
    described_columns,
    markdown,
)
from tests.support.commands import ROOT, job

# --- README ------------------------------------------------------------------------


README = (ROOT / "README.md").read_text(encoding="utf-8")
README_BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.M | re.S)
IN_BLOCKS = [
    line.partition(" #")[0].strip() for block in README_BLOCKS for line in block.splitlines()
]
IN_TEXT = re.findall(r"`(redline [a-z][^`]*)`", README)
README_COMMANDS = [each.removeprefix(".venv/bin/") for each in (*IN_BLOCKS, *IN_TEXT)]


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 950


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [each.split()[1] for each in README_COMMANDS if each.startswith("make ")]
    assert {"demo", "test"} <= {*targets}
    assert [each for each in targets if f"\n{each}:" not in makefile] == []


@pytest.mark.parametrize(
    "command", [each for each in README_COMMANDS if each.startswith("redline ")]
)
def test_options_of_the_readme_are_those_of_the_command(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    found = job(name)
    if isinstance(found, click.Group) and arguments:
        found, arguments = found.commands[arguments[0]], arguments[1:]
    given = [each for each in arguments if each.startswith("--")]
    known = [option for each in found.params for option in each.opts]
    assert [each for each in given if each not in known] == []


# --- docs/testbed.md ---------------------------------------------------------------


TESTBED = (Path(__file__).parents[2] / "docs" / "testbed.md").read_text(encoding="utf-8")


def test_every_key_of_a_profile_is_documented_with_its_default() -> None:
    section = TESTBED.split("## Profiles", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    assert [row[0].strip("`") for row in rows] == list(Profile.model_fields)
    for row in rows:
        default = Profile.model_fields[row[0].strip("`")].default
        if isinstance(default, (int, str)) and default:
            assert row[2] in (str(default), "the file's name")


def test_every_command_and_option_is_documented() -> None:
    for name, command in commands.testbed.commands.items():
        assert f"redline testbed {name}" in TESTBED
        for parameter in command.params:
            assert isinstance(parameter, click.Option)
            assert re.search(rf"`{parameter.opts[0]}\b", TESTBED), parameter.opts[0]


def test_every_key_of_a_link_is_documented_with_its_default() -> None:
    section = TESTBED.split("## Brokers behind a link", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    defaults = {item.name: item.default for item in fields(Link)}
    assert [row[0].strip("`") for row in rows] == list(defaults)
    for name, _, shown, _ in rows:
        default = defaults[name.strip("`")]
        assert shown == ("–" if default is None else str(default))


# --- docs/faults.md ----------------------------------------------------------------


FAULTS = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
FAULT_ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in FAULTS.splitlines()
    if line.startswith("| ") and not line.startswith(("| fault |", "| --- "))
]
FOLDERS = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}


def named_in(text: str) -> list[str]:
    """The files of tests that a text names, without their folders."""
    return re.findall(r"(test_[a-z_0-9]+\.py)", text)


@pytest.mark.parametrize("row", FAULT_ROWS, ids=lambda row: row[0][:40])
def test_each_fault_has_its_effect_its_tests_and_the_date_of_the_last_test(
    row: tuple[str, ...],
) -> None:
    fault, happens, planted = row
    assert fault and happens
    files = named_in(planted)
    assert files or "redline sweep" in planted, "by a test, or by an experiment"
    assert all(name in FOLDERS for name in files), planted
    dates = [date.fromisoformat(each) for each in re.findall(r"\d{4}-\d\d-\d\d", planted)]
    assert dates or "*test*" in planted or not files, "the date of the last test"
    texts = [FOLDERS[name].read_text(encoding="utf-8") for name in files]
    if dates and texts:
        assert any("mark.long" in text for text in texts), "a dated test is no part of make test"
    if "*test*" in planted:
        assert any("pytestmark = [pytest.mark.long" not in text for text in texts)


def test_files_are_named_with_the_folder_that_they_are_in() -> None:
    for path in re.findall(r"`(tests/[a-z0-9/_]+\.py)`", FAULTS):
        assert (ROOT / path).is_file(), path


# --- docs/tables.md ----------------------------------------------------------------


TABLES = Path(__file__).parents[2] / "docs" / "tables.md"


@dataclasses.dataclass(frozen=True)
class Inner:
    """A part.

    Attributes:
        ratio: of something [ratio].
        part_id: which one.
    """

    ratio: float
    part_id: int


@dataclasses.dataclass(frozen=True)
class Outer:
    """A row.

    Attributes:
        first, second_ms: how long it took,
            described in two lines.
        parts: each of them.
        by_name: name → part.
        records: whole ones.
    """

    first: str
    second_ms: float | None
    parts: tuple[Inner, ...]
    by_name: Mapping[str, Inner]
    records: int


def test_a_column_has_its_type_unit_and_meaning() -> None:
    text = "how long it took, described in two lines"
    assert list(described_columns(Outer)) == [
        DescribedColumn("first", "string", "–", text),
        DescribedColumn("second_ms", "double", "ms", text),
        DescribedColumn("parts", "array of [Inner](#inner)", "–", "each of them"),
        DescribedColumn("by_name", "map of string to [Inner](#inner)", "–", "name → part"),
        DescribedColumn("records", "bigint", "count", "whole ones"),
    ]
    assert described(Inner) == {"ratio": "of something [ratio].", "part_id": "which one."}
    assert list(described_columns(Inner)) == [
        DescribedColumn("ratio", "double", "ratio", "of something"),
        DescribedColumn("part_id", "bigint", "–", "which one"),
    ]


def test_a_column_without_a_meaning_is_refused() -> None:
    bare = dataclasses.make_dataclass("Bare", [("depth", float)])
    with pytest.raises(ValueError, match=r"Bare\.depth .*`depth: …`"):
        list(described_columns(bare))


def test_a_number_without_a_unit_is_refused() -> None:
    vague = dataclasses.make_dataclass("Vague", [("depth", float)])
    vague.__doc__ = "A row.\n\nAttributes:\n    depth: how deep."
    with pytest.raises(ValueError, match=r"Vague\.depth .*depth_ms"):
        list(described_columns(vague))


@pytest.mark.parametrize("table", SCHEMAS)
def test_the_rows_describe_every_column_of_a_table(table: str) -> None:
    names = [column.name for column in described_columns(ROWS[table])]
    assert names == SCHEMAS[table].names


def test_the_page_of_tables_agrees_with_the_code() -> None:
    renewed = markdown()
    assert TABLES.read_text(encoding="utf-8") == renewed, (
        "docs/tables.md is older than the tables; renew it with "
        "`python -m metrics.tables.schema docs/tables.md`"
    )
