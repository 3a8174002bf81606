"""The stages of `make test`, one after the other, each with tests beside it that only compute.

    python -m tests.bench.stages --workers 3

Tests on brokers wait for half of the time. The tests that only compute run with Linux' scheduling
policy for idle time: they get the CPU only while no other process needs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import click
import psutil

from tests.support.commands import ROOT
from tests.support.sharing import computing_files

_OUTPUT = ROOT / ".cache" / "tests-beside"
_LEAST_NICE = 19


@dataclass(frozen=True)
class Stage:
    """A stage, and the tests that start with it and may outlast it.

    Attributes:
        arguments: arguments of the pytest that writes to the terminal.
        beside: arguments of the pytest that gets the CPU left by this stage and the next ones. Its
            tests offer no load, wait for no clock and flush no disk.
    """

    arguments: tuple[str, ...]
    beside: tuple[str, ...]


def stages_of(workers: int) -> tuple[Stage, Stage]:
    """First the tests that are safe to run in parallel, then those that judge loads.

    The tests of Spark run one after the other for most of the time, so they start first.
    """
    parallel = (f"-n{workers}", "--no-loadscope-reorder", "--ignore", "tests/spark")
    return (
        Stage(
            ("-m", "together and not computes and not long", *parallel),
            ("-m", "not long", "tests/spark"),
        ),
        Stage(
            ("-m", "not together and not long", "tests/kafka", "tests/e2e"),
            ("-m", "computes and not long", *computing_files()),
        ),
    )


def run(stages: Sequence[Stage], folder: Path = _OUTPUT) -> int:
    """Run the stages and the tests beside them; return the exit code of the first that failed.

    A stage that fails is the last one; the tests beside it are completed.

    Args:
        folder: folder for the output of the tests beside the stages, which is shown at the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    codes: list[int] = []
    with ExitStack() as stack:
        others: list[tuple[Path, subprocess.Popen[bytes]]] = []
        for number, stage in enumerate(stages, 1):
            output = folder / f"{number}.log"
            other = stack.enter_context(
                _pytest(stage.beside, stack.enter_context(output.open("w")))
            )
            stack.callback(other.terminate)
            others.append((output, other))
            for_idle_time(other.pid)
            codes.append(_pytest(stage.arguments, None).wait())
            if codes[-1]:
                break
        for output, other in others:
            if other.poll() is None:
                click.echo(f"Tests that compute still run; their output: {output}")
            codes.append(other.wait())
    for output, _ in others:
        click.echo(output.read_text(encoding="utf-8", errors="replace"))
    return next(filter(None, codes), 0)


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
    sys.exit(run(stages_of(workers)))


if __name__ == "__main__":
    main()
