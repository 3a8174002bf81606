"""Standard output that is full or closed: no traceback, and the job continues."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import COMMAND, ROOT

JOB = """
import sys
from pathlib import Path
import click
from jobs.console.events import note
from jobs.console.printing import make_reporter
from jobs.entry import run

@click.command()
@click.argument("how")
def job(how: str) -> int:
    if how == "echo":
        click.echo("line\\n" * 20_000)
    with make_reporter() as reporter:
        for number in range(3):
            note(reporter, f"line {number}")
    Path(sys.argv[2]).write_text("measured")
    return 3

run(job, sys.argv[1:2])
"""


def ended(how: str, kept: Path, redirected: str, command: str = "") -> tuple[int, str]:
    """Exit code and standard error of a job whose standard streams a shell redirects."""
    script = command or f'"{sys.executable}" -c "$JOB" {how} "{kept}"'
    text = f"set -o pipefail; {script} {redirected}"
    done = subprocess.run(
        ["/bin/bash", "-c", text], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "JOB": JOB, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("redirected", "message"),
    [
        (">/dev/full", "standard output cannot be written (No space left on device)"),
        (">&-", ""),
        ("| true", ""),
        (">&- 2>&-", ""),
        (">/dev/full 2>/dev/full", ""),
    ],
)
def test_a_job_outlives_the_reader_of_its_output(
    tmp_path: Path, redirected: str, message: str
) -> None:
    code, errors = ended("report", tmp_path / "kept", redirected)
    assert (tmp_path / "kept").read_text() == "measured"
    assert code == 3
    assert errors.count("\n") == (1 if message else 0), errors
    assert message in errors


def test_a_reader_that_leaves_in_the_middle_is_no_error(tmp_path: Path) -> None:
    assert ended("echo", tmp_path / "kept", "| true") == (0, "")
    help_text = " ".join([*COMMAND, "find-limit --help"])
    assert ended("", tmp_path, "| true", help_text) == (0, "")
    code, errors = ended("echo", tmp_path / "kept", ">/dev/full")
    assert code == 2, "an answer that cannot be shown"
    assert "standard output, cannot be written or read (No space left on device)" in errors
    assert "Traceback" not in errors
