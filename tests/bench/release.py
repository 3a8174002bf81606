"""Checks of the parts of a release: `make release-check`.

The version has an entry in the changelog, and the deploy pages name no other version. The wheel
builds. In an empty environment without extras, jobs that do not need Spark work, and the others
name the missing extra; with the extras a run is planned. A message names another package with the
name of one of the project's packages. Airflow loads the ready DAG, and the schema of Kubeflow's
Spark operator validates the ready application. The checks need the package index and GitHub;
without GitHub, `--operator-schema` names a copy of the schema.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jobs.console.events import Table
from jobs.console.printing import make_reporter
from jobs.setup.bootstrap import RUN_EXTRAS
from jobs.setup.version import HOME, __version__
from tests.bench.ready_files import (
    AIRFLOW,
    OPERATOR,
    OPERATOR_SCHEMA,
    airflow_trouble,
    operator_trouble,
)
from tests.support.commands import ROOT
from tests.support.wheel import built_wheel

PLAN = ("plan", "--limit", "60", "--mb-per-s", "600", "--message-bytes", "1000")
DRY_RUN = ("find-limit", "--dry-run")


@dataclass(frozen=True)
class Check:
    """The check of one requirement of a release."""

    what: str
    trouble: str = ""


def changelog(text: str, version: str) -> Check:
    """Check that the changelog has the version with its date, and nothing unreleased."""
    what = f"CHANGELOG.md has {version}"
    if re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.M) is None:
        return Check(what, f"expected a line such as `## [{version}] - 2026-11-23`")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## )", text, re.M | re.S)
    if unreleased and unreleased[1].strip():
        return Check(what, "expected nothing under [Unreleased]; move it to the version")
    return Check(what)


def committed() -> Check:
    done = _run(["git", "status", "--porcelain"], ROOT)
    changed = [line[3:] for line in done.stdout.splitlines()]
    return Check("all is committed", f"changed: {', '.join(changed)}" if changed else "")


def long_tests(ledger: Path, is_this_code: Callable[[str], bool]) -> Check:
    """Check that each long test of the ledger was green on the code of this release.

    Args:
        is_this_code: whether the product at a commit is that of this release.
    """
    what = "the long tests are green on this code"
    with ledger.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    fresh = {each: is_this_code(each) for each in {row["commit"] for row in rows}}
    stale = [row["test"] for row in rows if row["result"] != "passed" or not fresh[row["commit"]]]
    if not stale:
        return Check(what)
    return Check(
        what, f"{len(stale)} of {len(rows)} are not, such as {stale[0]}; run make test-long"
    )


def _is_this_code(commit: str) -> bool:
    """Whether a commit has the product of the working copy."""
    return not _run(
        ["git", "diff", "--quiet", commit, "--", "jobs", "metrics", "search"], ROOT
    ).returncode


def licensed() -> Check:
    """Check that the usual files of a project exist."""
    missing = [name for name in ("LICENSE", "CONTRIBUTING.md", "SECURITY.md", "README.md")
               if not (ROOT / name).is_file()]  # fmt: skip
    return Check("licence and other files", f"missing: {', '.join(missing)}" if missing else "")


def addressed(home: str) -> Check:
    """Check that the package has the address of its source, issues and changes."""
    what = "the project's address"
    if re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", home):
        return Check(what)
    return Check(what, f"expected https://… in jobs/setup/version.py, HOME; it is {home!r}")


def installed(wheel: Path, folder: Path, extras: str) -> Path:
    """The Python of a new environment with the wheel and some extras.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    wanted = f"{wheel}[{extras}]" if extras else str(wheel)
    pins = ("-c", str(ROOT / "conf" / "constraints.txt"))
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *pins, wanted]
    subprocess.run(pip, check=True, cwd=folder)
    return python


def answers(
    python: Path, words: Sequence[str], code: int, expected: str, path: Path | None = None
) -> Check:
    """Check the exit code and the output of the installed command.

    Args:
        path: folder for PYTHONPATH.
    """
    redline = str(python.with_name("redline"))
    done = _run([redline, *words], python.parents[1], PYTHONPATH=str(path or ""))
    output = " ".join((done.stdout + done.stderr).split())
    beside = f" beside another {', '.join(each.name for each in path.iterdir())}" if path else ""
    what = f"{python.parents[1].name}{beside}: redline {' '.join(words)}"
    if done.returncode == code and expected in output:
        return Check(what)
    return Check(what, f"expected {code} and {expected!r}; ended with {done.returncode}: {output}")


def wheels(folder: Path) -> Iterator[Check]:
    """Check the wheel in an environment without extras, and in one with the extras."""
    wheel = built_wheel(folder / "build")
    yield Check("the wheel builds")
    bare = installed(wheel, folder / "without-extras", "")
    yield answers(bare, ["--version"], 0, __version__)
    yield answers(bare, PLAN, 0, "brokers to buy")
    yield answers(bare, DRY_RUN, 2, "pip install 'kafka-redline[spark]'")
    for name in ("metrics", "conf"):
        other = folder / f"other-{name}"
        (other / name).mkdir(parents=True)
        (other / name / "__init__.py").touch()
        expected = f"is imported in its place: {name} ({other / name})"
        yield answers(bare, ["--version"], 2, expected, other)
    whole = installed(wheel, folder / "with-extras", ",".join(RUN_EXTRAS))
    yield answers(whole, DRY_RUN, 0, "forecast")


def ready_files(folder: Path, schema: str) -> Iterator[Check]:
    yield Check(f"{AIRFLOW[0]} loads the DAG", airflow_trouble(folder))
    what = f"the application is one of Kubeflow's Spark operator {OPERATOR}"
    yield Check(what, operator_trouble(schema))


def _run(command: Sequence[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    """Check all parts of a release and print the results; return 1 if a check failed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--operator-schema",
        default=OPERATOR_SCHEMA,
        help="address or file of the operator's definition of ScheduledSparkApplication",
    )
    options = parser.parse_args()
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    plain: tuple[Callable[[], Check], ...] = (
        lambda: changelog(text, __version__),
        committed,
        partial(long_tests, ROOT / "docs" / "evidence" / "long-tests.csv", _is_this_code),
        licensed,
        lambda: addressed(HOME),
    )
    found = [look() for look in plain]
    with tempfile.TemporaryDirectory(prefix="redline-release-") as folder:
        found += wheels(Path(folder))
        found += ready_files(Path(folder) / "airflow", options.operator_schema)
    rows = tuple((each.what, each.trouble or "ok") for each in found)
    with make_reporter() as reporter:
        reporter.report(Table(f"kafka-redline {__version__}", ("what", "found"), rows))
    return 1 if any(each.trouble for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
