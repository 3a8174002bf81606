"""Which lines and branches the tests run, folder by folder; the lines themselves as pages.

    python -m tests.bench.covered          # by the unit tests
    python -m tests.bench.covered --all    # by those with Spark and brokers too

Commands that tests start as processes of their own are counted too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from coverage import Coverage

from tests.support.commands import ROOT

PLACE = ROOT / ".cache" / "coverage"
_NOT_LONG = "not long"


@dataclass(frozen=True)
class Covered:
    """What tests run of some code."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def plus(self, other: Covered) -> Covered:
        """Of both."""
        return Covered(
            self.lines + other.lines,
            self.lines_run + other.lines_run,
            self.branches + other.branches,
            self.branches_run + other.branches_run,
        )


def by_folder(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Covered]:
    """The sums of each folder, by its path, from the files of coverage.py's JSON report."""
    found: dict[str, Covered] = {}
    for path in sorted(files):
        of = files[path]["summary"]
        one = Covered(of["num_statements"], of["covered_lines"], of["num_branches"],
                      of["covered_branches"])  # fmt: skip
        folder = Path(path).parent.as_posix()
        found[folder] = found.get(folder, Covered()).plus(one)
    return found


def table_of(folders: Mapping[str, Covered]) -> Iterator[str]:
    """A line for each folder, and one for all."""
    total = Covered()
    yield f"{'':<28}{'lines':>8}{'run':>8}{'branches':>10}{'run':>8}"
    for folder, one in folders.items():
        total = total.plus(one)
        yield _line(folder, one)
    yield _line("all", total)


def _line(name: str, one: Covered) -> str:
    return (
        f"{name:<28}{one.lines:>8,}{_share(one.lines_run, one.lines):>8}"
        f"{one.branches:>10,}{_share(one.branches_run, one.branches):>8}"
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def commands(everything: bool, workers: str) -> Iterator[list[str]]:
    """The runs of pytest, as `make test` has them; coverage.py's settings are in pyproject.toml."""
    pytest = [sys.executable, "-m", "pytest", "-q", "--cov", "--cov-report="]
    beside = ["-n", workers, "--no-loadscope-reorder"]
    if not everything:
        yield [*pytest, *beside, "tests/unit"]
        return
    yield [*pytest, *beside, "-m", f"together and {_NOT_LONG}"]
    yield [*pytest, "--cov-append", "-m", f"not together and {_NOT_LONG}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="tests with Spark and brokers too")
    parser.add_argument("--workers", default="logical", help="tests that run side by side")
    asked = parser.parse_args(arguments)
    PLACE.mkdir(parents=True, exist_ok=True)
    code = 0
    for command in commands(asked.all, asked.workers):
        code = subprocess.run(command, cwd=ROOT, check=False).returncode or code
    measured = Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    measured.json_report(outfile=str(PLACE / "covered.json"))
    measured.html_report()
    report = json.loads((PLACE / "covered.json").read_text(encoding="utf-8"))
    for line in table_of(by_folder(report["files"])):
        click.echo(line)
    click.echo(f"Line by line: {PLACE / 'html' / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
