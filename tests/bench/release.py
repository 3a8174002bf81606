"""What a release consists of, checked: `make release-check`.

The version has an entry in the changelog and no other version is named in the deploy pages; the
wheel builds, and in an empty environment each job that needs no Spark works without the extras,
and says which one it wants where it does; with them it plans a run, and it says when another
package has the name of one of ours. Airflow loads the ready DAG, and the ready application is held
against the schema of Kubeflow's Spark operator. Needs the package index and GitHub; where GitHub is
out of reach, `--operator-schema` names a copy of that schema.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
    """One thing that a release needs.

    Attributes:
        what: it is.
        trouble: what is wrong with it; empty for nothing.
    """

    what: str
    trouble: str = ""


def changelog(text: str, version: str) -> Check:
    """That the changelog has the version with its date, and nothing unreleased is left."""
    what = f"CHANGELOG.md has {version}"
    if re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.M) is None:
        return Check(what, f"expected a line such as `## [{version}] - 2026-11-23`")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## )", text, re.M | re.S)
    if unreleased and unreleased[1].strip():
        return Check(what, "expected nothing under [Unreleased]; move it to the version")
    return Check(what)


def committed() -> Check:
    """That what is released is what is committed."""
    done = _run(["git", "status", "--porcelain"], ROOT)
    changed = [line[3:] for line in done.stdout.splitlines()]
    return Check("all is committed", f"changed: {', '.join(changed)}" if changed else "")


def licensed() -> Check:
    """That the files which people look for are there."""
    missing = [name for name in ("LICENSE", "CONTRIBUTING.md", "SECURITY.md", "README.md")
               if not (ROOT / name).is_file()]  # fmt: skip
    return Check("licence and the like", f"missing: {', '.join(missing)}" if missing else "")


def addressed(home: str) -> Check:
    """That the package says where its source, its issues and its changes are."""
    what = "the project's address"
    if re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", home):
        return Check(what)
    return Check(what, f"expected https://… in jobs/setup/version.py, HOME; it is {home!r}")


def installed(wheel: Path, folder: Path, extras: str) -> Path:
    """The Python of an empty environment with the wheel and some extras.

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
    python: Path, words: Sequence[str], code: int, told: str, path: Path | None = None
) -> Check:
    """That the installed command ends with a code and says something.

    Args:
        path: a folder that PYTHONPATH names.
    """
    redline = str(python.with_name("redline"))
    done = _run([redline, *words], python.parents[1], PYTHONPATH=str(path or ""))
    output = " ".join((done.stdout + done.stderr).split())
    beside = f" beside another {', '.join(each.name for each in path.iterdir())}" if path else ""
    what = f"{python.parents[1].name}{beside}: redline {' '.join(words)}"
    if done.returncode == code and told in output:
        return Check(what)
    return Check(what, f"expected {code} and {told!r}; ended with {done.returncode}: {output}")


def wheels(folder: Path) -> Iterator[Check]:
    """The wheel in an environment without the extras, and in one with them."""
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
        told = f"is imported in its place: {name} ({other / name})"
        yield answers(bare, ["--version"], 2, told, other)
    whole = installed(wheel, folder / "with-extras", ",".join(RUN_EXTRAS))
    yield answers(whole, DRY_RUN, 0, "forecast")


def ready_files(folder: Path, schema: str) -> Iterator[Check]:
    """The ready files that no test holds against those who read them."""
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
    """Check everything, and say what is wrong; 1 where something is."""
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
