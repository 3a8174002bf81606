"""The command `redline`: all jobs are there, and each is imported only when it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from jobs.cli import ELSEWHERE, JOBS, redline
from tests.support.commands import ROOT, job


@pytest.mark.parametrize("name", JOBS)
def test_each_job_begins_its_help_with_the_sentence_that_stands_in_the_list(name: str) -> None:
    sentence = " ".join((job(name).help or "").split("\n\n")[0].split())
    assert sentence == JOBS[name]


def test_the_list_has_each_job_with_its_whole_sentence() -> None:
    shown = " ".join(CliRunner().invoke(redline, ["--help"]).output.split())
    for name, sentence in JOBS.items():
        assert f"{name} {sentence}" in shown


def test_every_module_of_a_job_is_on_the_list() -> None:
    files = {path.stem.replace("_", "-") for path in (ROOT / "jobs").glob("*.py")}
    helpers = {"--init--", "cli", "entry", "notebook", "options"}
    named = {ELSEWHERE.get(job, f"jobs.{job}").removeprefix("jobs.") for job in JOBS}
    assert files - helpers == {each.replace("_", "-") for each in named} - {"testbed.commands"}


def test_an_unknown_job_is_refused() -> None:
    done = CliRunner().invoke(redline, ["find-limits"])
    assert done.exit_code == 2
    assert "No such command 'find-limits'" in done.output


def test_version_and_help_import_nothing_that_takes_seconds() -> None:
    heavy = ("pyspark", "pyarrow", "pydantic", "altair", "numpy", "kafka", "rich")
    code = f"import sys, jobs.cli; print([each for each in {heavy} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout.strip() == "[]"
