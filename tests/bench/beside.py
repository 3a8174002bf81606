"""The tests that judge loads, one after the other, and beside them those that only compute.

    python -m tests.bench.beside

Loads wait for brokers half of the time. What they leave of the machine, the kernel gives to
processes of its policy for idle time, and takes it back as soon as anybody else wants it.
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

ALONE = ("-m", "not together and not long", "tests/kafka", "tests/e2e")
_TWO = ("-n2", "--no-loadscope-reorder")  # one session of Spark often waits for the driver
BESIDE = ("-m", "(spark or computes) and not long", *_TWO, "tests/spark", "tests/unit")
"""Arguments of pytest. Those beside load nothing, wait for no clock and flush no disk."""
_OUTPUT = ROOT / ".cache" / "tests-beside.log"
_LEAST_NICE = 19


def run(
    alone: tuple[str, ...] = ALONE, beside: tuple[str, ...] = BESIDE, output: Path = _OUTPUT
) -> int:
    """Run both; the worse exit code.

    Args:
        alone: arguments of the pytest that has the terminal.
        beside: of the one that gets what CPU the first leaves.
        output: where the second writes; shown once the first has ended.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w") as file, _pytest(beside, file) as other:
        try:
            for_idle_time(other.pid)
            first = _pytest(alone, None).wait()
            if other.poll() is None:
                click.echo(f"Those beside are still under way: {output}")
            second = other.wait()
        finally:
            other.terminate()
    click.echo(output.read_text(encoding="utf-8", errors="replace"))
    return first or second


def for_idle_time(pid: int) -> None:
    """Let a process, and all that it starts from now on, have what CPU nobody else wants."""
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
