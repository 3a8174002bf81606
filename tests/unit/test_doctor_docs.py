"""docs/doctor.md has every option, and the numbers that are in the code."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.checks import executors, survey
from jobs.doctor import doctor
from jobs.spark import slots
from metrics.trial.clock import OFFSET_MAX_S

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[str]:
    """The first column of the table after a heading or line."""
    part = PAGE.split(heading, 1)[1].split("\n\n##", 1)[0]
    return [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| ")]


def test_every_option_is_there() -> None:
    documented = set(re.findall(r"--[a-z][a-z-]+", " ".join(rows("The exit code is"))))
    real = {name for each in doctor.params for name in each.opts if name != "--help"}
    assert documented == real


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert f"within {OFFSET_MAX_S:g} s of the driver's" in PAGE
    steps = ", ".join(f"{each:g}" for each in executors.BOUNDS_S)
    assert f"({steps} s)" in PAGE
    assert f"up to {slots.DEADLINE_S:g} s" in PAGE
    assert f"come for {slots.SETTLED_S:g} s" in PAGE
    assert f"within {survey.TIMEOUT_S:g} s" in PAGE
