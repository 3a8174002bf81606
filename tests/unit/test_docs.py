"""Pages of docs agree with the code: commands, README, faults and tables."""

from __future__ import annotations

import dataclasses
import re
import shlex
from datetime import date
from pathlib import Path

import click
import pytest
from pydantic import create_model

from metrics.tables.schema import ROWS, SCHEMAS, described_columns
from tests.support.commands import ROOT, job
from tests.support.reference import PAGES, WRITERS, key_row

# --- README ------------------------------------------------------------------------


README = (ROOT / "README.md").read_text(encoding="utf-8")
README_BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.M | re.S)
IN_BLOCKS = [
    line.partition(" #")[0].strip() for block in README_BLOCKS for line in block.splitlines()
]
IN_TEXT = re.findall(r"`(redline [a-z][^`]*)`", README)
README_COMMANDS = [each.removeprefix(".venv/bin/") for each in (*IN_BLOCKS, *IN_TEXT)]


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 850


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [each.split()[1] for each in README_COMMANDS if each.startswith("make ")]
    assert {"demo", "test"} <= {*targets}
    assert [each for each in targets if f"\n{each}:" not in makefile] == []


def test_commands_of_all_pages_have_jobs_and_options_that_exist() -> None:
    """The blocks of each page, and the README's commands within sentences."""
    pages = [(path, blocks_of(path)) for path in (ROOT / "docs").rglob("*.md")]
    found = [(path, line) for path, lines in pages for line in lines if line[:8] == "redline "]
    found += [(ROOT / "README.md", each) for each in README_COMMANDS if each[:8] == "redline "]
    assert len(found) > 80, "commands are no longer found"
    for path, command in found:
        _, name, *arguments = shlex.split(command)
        job_found = job(name)
        if isinstance(job_found, click.Group) and arguments:
            job_found, arguments = job_found.commands[arguments[0]], arguments[1:]
        known = [option for each in job_found.params for option in each.opts]
        options = {each.partition("=")[0] for each in arguments if each.startswith("--")}
        assert options <= {*known}, (path, command)


def blocks_of(page: Path) -> list[str]:
    """The lines of a page's shell blocks, without comments; a continued line is one."""
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    text = "\n".join(blocks).replace("\\\n", " ")
    return [line.partition(" #")[0].strip() for line in text.splitlines()]


# --- docs/evidence/faults.md ----------------------------------------------------------------


FAULTS = (ROOT / "docs" / "evidence" / "faults.md").read_text(encoding="utf-8")
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


# --- docs/reference ----------------------------------------------------------------


def test_a_column_without_a_meaning_or_a_unit_is_refused() -> None:
    bare = dataclasses.make_dataclass("Bare", [("depth", float)])
    with pytest.raises(ValueError, match=r"Bare\.depth .*`depth: …`"):
        list(described_columns(bare))
    bare.__doc__ = "A row.\n\nAttributes:\n    depth: how deep."
    with pytest.raises(ValueError, match=r"Bare\.depth .*depth_ms"):
        list(described_columns(bare))


@pytest.mark.parametrize("name", WRITERS)
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    found = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert found == WRITERS[name](), f"{name}.md is outdated; renew it: make generate"


def test_a_key_without_a_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Bare\.depth is not described"):
        key_row(create_model("Bare", depth=(int, 1)), ("depth",))


def test_each_table_has_the_described_columns() -> None:
    for table, schema in SCHEMAS.items():
        assert [column.name for column in described_columns(ROWS[table])] == schema.names
