"""The menu of the documentation's site, and the links of all pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.commands import ROOT

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")


def pages(menu: Any) -> Iterator[str]:
    if isinstance(menu, str):
        yield menu
        return
    for part in menu.values() if isinstance(menu, dict) else menu:
        yield from pages(part)


def test_each_page_is_in_the_menu_once() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    found = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(pages(site["nav"])) == sorted(found)


def test_each_link_to_a_file_leads_to_one() -> None:
    """Also links out of docs, and of the README, which the site does not check."""
    found = [
        (path, link)
        for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
        for link in re.findall(
            r"\]\((?!https?:)([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")
        )
    ]
    assert len(found) > 400, "links are no longer found"
    assert [each for each in found if not (each[0].parent / each[1]).exists()] == []
