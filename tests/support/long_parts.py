"""The parts of `make test-long`, and the ledger of their results.

    python -m pytest -p tests.support.long_parts -m long --part clusters --ledger LEDGER

A part is at most 150 minutes on two cores. The ledger has one line for each test: its id, the
commit, the date, the result and its time [s]. A run replaces the lines of the tests that it ran.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Generator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pytest

from tests.support.commands import ROOT

REST = "rest"
PARTS: dict[str, tuple[str, ...]] = {
    "clusters": ("spark_versions", "standalone", "yarn", "kubernetes", "eight_workers", "_s3"),
    "spark": ("spark", "notebooks"),
    "makes": (
        "other_makes", "older_", "automatic_rules", "exporters", "prometheus",
        "one_minute_rates", "sources",
    ),
    "limits": (
        "beside_others", "calibrat", "compare", "mix", "find_limit", "nightly", "attribution",
        "untuned", "confirming", "steady", "headroom", "change_on", "readme",
    ),
    "faults": (
        "killed", "harm", "fails", "unreachable", "invalid", "loses", "kerberos", "security",
        "secrets", "ends", "roles", "disk", "quota", "racks", "tenants", "guards",
        "lag", "lock", "whole_files", "cron",
    ),
    "fidelity": (
        "fidelity", "faithful", "engine", "java", "learn", "consumers", "transactions", "wire",
        "connections", "clocks",
    ),
}  # fmt: skip
"""Part → pieces of the names of its files; the first that fits counts, else it is the rest."""
COLUMNS = ("test", "commit", "date", "result", "seconds")


def part_of(path: str) -> str:
    """The part of a file of tests, such as `tests/e2e/test_readme.py`."""
    parts = (part for part, pieces in PARTS.items() if any(each in path for each in pieces))
    return next(parts, REST)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the part and the ledger."""
    parser.addoption("--part", choices=[*PARTS, REST], help="run the files of this part only")
    parser.addoption("--ledger", type=Path, help="file of the results")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the part."""
    if part := config.getoption("--part"):
        others = [each for each in items if part_of(each.nodeid.partition("::")[0]) != part]
        config.hook.pytest_deselected(items=others)
        items[:] = [each for each in items if each not in set(others)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write a test's line when it is over, so that a run that is cut off keeps the others."""
    report = yield
    ledger = item.config.getoption("--ledger")
    if ledger is not None and (report.when == "call" or report.outcome != "passed"):
        _write(ledger, item.nodeid, report.outcome, report.duration)
    return report


def _write(ledger: Path, test: str, result: str, seconds: float) -> None:
    rows = {}
    if ledger.exists():
        with ledger.open(newline="", encoding="utf-8") as file:
            rows = {row["test"]: row for row in csv.DictReader(file)}
    today = datetime.now(timezone.utc).date().isoformat()
    made = (test, _commit(), today, result, f"{seconds:.0f}")
    rows[test] = dict(zip(COLUMNS, made, strict=True))
    with ledger.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[each] for each in sorted(rows))


def _commit() -> str:
    """The commit, with `-changed` where the product or its tests are not as committed."""
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    head = git(["git", "rev-parse", "--short=8", "HEAD"]).stdout.strip()
    changed = git(["git", "diff", "--quiet", "HEAD", "--", "jobs", "metrics", "search", "tests"])
    return head + "-changed" * bool(changed.returncode)
