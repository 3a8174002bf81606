"""docs/faults.md names existing tests, and states for each row when it was last tested."""

from __future__ import annotations

import re
from datetime import date

import pytest

from tests.support.commands import ROOT

PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| fault |", "| --- "))
]
FOLDERS = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}


def named_in(text: str) -> list[str]:
    """The files of tests that a text names, without their folders."""
    return re.findall(r"(test_[a-z_0-9]+\.py)", text)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
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
    for path in re.findall(r"`(tests/[a-z0-9/_]+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path
