"""The tests that judge loads, one after the other, in parallel with tests that only compute.

    python -m tests.bench.beside

Loads wait for brokers half of the time. The tests that only compute run with Linux' scheduling
policy for idle time: they get the CPU only while no other process needs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import click
import psutil

from tests.support.commands import ROOT
from tests.support.sharing import computing_files

ALONE = ("-m", "not together and not long", "tests/kafka", "tests/e2e")
_TWO = ("-n2", "--no-loadscope-reorder")  # tests of Spark, and simulations
BESIDE = ("-m", "(spark or computes) and not long", *_TWO, "tests/spark", *computing_files())
"""Arguments of pytest. The tests of BESIDE offer no load, wait for no clock and flush no disk."""
_OUTPUT = ROOT / ".cache" / "tests-beside.log"
_LEAST_NICE = 19


def run(
    alone: tuple[str, ...] = ALONE, beside: tuple[str, ...] = BESIDE, output: Path = _OUTPUT
) -> int:
    """Run both parts, and return the exit code of the first that failed.

    Args:
        alone: arguments of the pytest that judges loads and writes to the terminal.
        beside: arguments of the pytest that gets the CPU left by the first.
        output: file for the output of the second, which is shown at the end.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w") as file, _pytest(beside, file) as other:
        try:
            for_idle_time(other.pid)
            first = _pytest(alone, None).wait()
            if other.poll() is None:
                click.echo(f"The tests that compute still run; their output: {output}")
            second = other.wait()
        finally:
            other.terminate()
    click.echo(output.read_text(encoding="utf-8", errors="replace"))
    return first or second


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


if __name__ == "__main__":
    sys.exit(run())
