"""docs/tables.md has the meaning of every column, and agrees with the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from metrics.tables.docs import DescribedColumn, described, described_columns, markdown
from metrics.tables.schema import ROWS, SCHEMAS

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


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


def test_the_page_agrees_with_the_code() -> None:
    renewed = markdown()
    assert PAGE.read_text(encoding="utf-8") == renewed, (
        "docs/tables.md is older than the tables; renew it with "
        "`python -m metrics.tables.docs docs/tables.md`"
    )
