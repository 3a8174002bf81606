"""The stages of `make test`, one after the other, and beside them the tests that only compute.

    python -m tests.bench.beside --workers 3

Tests on brokers wait for half of the time. The tests that only compute run with Linux' scheduling
policy for idle time: they get the CPU only while no other process needs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import click
import psutil

from tests.support.commands import ROOT
from tests.support.sharing import computing_files

TOGETHER = ("-m", "together and not computes and not long", "--ignore", "tests/spark")
"""Arguments of pytest for the tests that are safe to run in parallel."""
ALONE = ("-m", "not together and not long", "tests/kafka", "tests/e2e")
"""Arguments for the tests that judge loads, which run one by one."""
_ORDERED = "--no-loadscope-reorder"
_TWO = ("-n2", _ORDERED)  # tests of Spark, and simulations
BESIDE = ("-m", "(spark or computes) and not long", *_TWO, "tests/spark", *computing_files())
"""Arguments of pytest. The tests of BESIDE offer no load, wait for no clock and flush no disk."""
_OUTPUT = ROOT / ".cache" / "tests-beside.log"
_LEAST_NICE = 19


def run(
    stages: Sequence[tuple[str, ...]], beside: tuple[str, ...] = BESIDE, output: Path = _OUTPUT
) -> int:
    """Run the stages and the tests beside them; return the exit code of the first that failed.

    A stage that fails is the last one; the tests beside it are completed.

    Args:
        stages: arguments of the pytest of each stage, which writes to the terminal.
        beside: arguments of the pytest that gets the CPU left by the stages.
        output: file for the output of the latter, which is shown at the end.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w") as file, _pytest(beside, file) as other:
        try:
            for_idle_time(other.pid)
            failed = next((code for each in stages if (code := _pytest(each, None).wait())), 0)
            if other.poll() is None:
                click.echo(f"The tests that compute still run; their output: {output}")
            second = other.wait()
        finally:
            other.terminate()
    click.echo(output.read_text(encoding="utf-8", errors="replace"))
    return failed or second


def for_idle_time(pid: int) -> None:
    """Give a process and its future children only the CPU that no other process needs."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    else:
        psutil.Process(pid).nice(_LEAST_NICE)


def _pytest(arguments: tuple[str, ...], output: IO[str] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments], cwd=ROOT, stdout=output, stderr=output
    )


@click.command(help=__doc__)
@click.option("--workers", type=click.IntRange(1), default=3, show_default=True)
def main(workers: int) -> None:
    sys.exit(run(((*TOGETHER, f"-n{workers}", _ORDERED), ALONE)))


if __name__ == "__main__":
    main()
