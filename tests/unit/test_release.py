"""The checks of `make release-check` on a changelog and on the output of a command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.release import addressed, answers, changelog, licensed, long_tests

pytestmark = pytest.mark.long  # a tool of developers

RELEASED = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-23\n\n- a thing\n"


def test_a_changelog_has_the_version_with_its_date_and_nothing_unreleased() -> None:
    assert changelog(RELEASED, "0.2.0").trouble == ""
    assert "expected a line such as `## [0.3.0]" in changelog(RELEASED, "0.3.0").trouble
    waiting = RELEASED.replace("[Unreleased]\n", "[Unreleased]\n\n- more\n")
    assert "nothing under [Unreleased]" in changelog(waiting, "0.2.0").trouble


def test_each_long_test_must_be_green_on_the_code_of_the_release(tmp_path: Path) -> None:
    ledger = tmp_path / "long-tests.csv"
    rows = [
        "test,commit,date,result,seconds",
        "a,new,2026-11-27,passed,60",
        "b,old,2026-11-20,passed,9",
    ]
    ledger.write_text("\n".join(rows[:2]))
    assert long_tests(ledger, "new".__eq__).trouble == ""
    ledger.write_text("\n".join(rows))
    assert long_tests(ledger, "new".__eq__).trouble.startswith("1 of 2 are not, such as b;")
    ledger.write_text("\n".join(rows).replace("60", "60\na,new,2026-11-27,failed,60"))
    assert "2 of 3" in long_tests(ledger, "new".__eq__).trouble


def test_a_release_has_its_files_and_the_address_of_the_project() -> None:
    assert licensed().trouble == ""
    assert addressed("https://example.com/someone/kafka-redline").trouble == ""
    for home in ("", "http://example.com/redline", "https://example.com/a b"):
        assert f"it is {home!r}" in addressed(home).trouble


@pytest.mark.parametrize(
    ("code", "printed", "trouble"),
    [(3, "brokers", ""), (0, "brokers", "expected 0 and 'brokers'; ended with 3: no brokers"),
     (3, "limits", "expected 3 and 'limits'")],
)  # fmt: skip
def test_a_command_must_end_with_its_code_and_its_text(
    tmp_path: Path, code: int, printed: str, trouble: str
) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    redline = place / "redline"
    redline.write_text(f"#!{sys.executable}\nprint('no brokers')\nraise SystemExit(3)\n")
    redline.chmod(0o755)
    found = answers(place / "python", ["plan"], code, printed)
    assert trouble in found.trouble
    assert bool(found.trouble) == bool(trouble)
