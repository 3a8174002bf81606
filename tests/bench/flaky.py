"""Tests again and again, on a machine that is busy with something else: does chance decide any?

    python -m tests.bench.flaky --times 20 tests/unit

Beside the tests a process takes one core the whole time. Ends at the first run that fails, with
what pytest said of it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import click

from tests.support.commands import ROOT


def spin() -> None:
    """Take a core until somebody ends it."""
    while True:
        pass


@contextmanager
def busy_core() -> Iterator[None]:
    """A core is taken while the block lasts."""
    process = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code of the first run that failed, or 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how often")
    parser.add_argument("pytest", nargs="+", help="what pytest is told, such as a folder")
    asked = parser.parse_args(arguments)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "logical"]
    took_s: list[float] = []
    with busy_core():
        for number in range(1, asked.times + 1):
            began_s = time.monotonic()
            ended = subprocess.run([*command, *asked.pytest], cwd=ROOT, capture_output=True,
                                   text=True, check=False)  # fmt: skip
            took_s.append(time.monotonic() - began_s)
            if ended.returncode:
                click.echo(ended.stdout[-8_000:])
                click.echo(f"run {number} of {asked.times} failed", err=True)
                return ended.returncode
            click.echo(f"run {number}: {took_s[-1]:.0f} s, {ended.stdout.splitlines()[-1]}")
    click.echo(f"{asked.times} runs without a failure, {median(took_s):.0f} s each (median)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
