"""Repeated runs of tests on a busy machine, to find tests that chance decides.

    python -m tests.bench.flaky --times 20 tests/unit

Another process keeps one core busy all the time. The command ends at the first failed run, with
its output.
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
    """Keep a core busy until the process is killed."""
    while True:
        pass


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep a core busy within this context."""
    process = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, and return the exit code of the first failed run, or 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="number of runs")
    parser.add_argument("pytest", nargs="+", help="arguments of pytest, such as a folder")
    options = parser.parse_args(arguments)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "logical"]
    took_s: list[float] = []
    with busy_core():
        for number in range(1, options.times + 1):
            began_s = time.monotonic()
            ended = subprocess.run([*command, *options.pytest], cwd=ROOT, capture_output=True,
                                   text=True, check=False)  # fmt: skip
            took_s.append(time.monotonic() - began_s)
            if ended.returncode:
                click.echo(ended.stdout[-8_000:])
                click.echo(f"run {number} of {options.times} failed", err=True)
                return ended.returncode
            click.echo(f"run {number}: {took_s[-1]:.0f} s, {ended.stdout.splitlines()[-1]}")
    click.echo(f"{options.times} runs without a failure, {median(took_s):.0f} s each (median)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
