"""The `redline` command in a process of its own, with its output read line by line."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import psutil
from click.testing import CliRunner

from jobs.cli import redline

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "jobs.cli")
SPARK_SUBMIT = str(Path(sys.executable).with_name("spark-submit"))
SUBMITTED_FIND_LIMIT = (SPARK_SUBMIT, str(ROOT / "jobs" / "find_limit.py"))
"""The command that a scheduler runs; it takes the options of `redline find-limit`."""


SHORT_LOAD = (
    "--yes",
    "--set=cluster.warm_up_max_s=0",
    "--set=workload.topic.replication_factor=1",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=4",
)
"""Options of a command with loads of five seconds."""
EXPERIMENT = """
asks: load
load: 4
cluster: {cluster}
workload: 1kB
axes:
  workload.producer.acks: ["1", all]
"""
SUITE = """
description: a fixed load
cluster: {cluster}
workload: 1kB
goal: default
cases:
  - {{name: load-1kB, message_bytes: 1000, np: 4, repeats: 2}}
"""


def job(name: str, group: click.Group = redline) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None, name
    return found


class RunningCommand:
    """A running command; a context manager that ends the command and its child processes."""

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        program: Sequence[str] = COMMAND,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        paths = environ or {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            [*program, *arguments],
            cwd=folder,
            env={**os.environ, **paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._new: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> RunningCommand:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.family():
            process.kill()
        self._process.kill()
        self._process.wait()
        self._thread.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def await_line(self, part: str, deadline_s: float) -> str:
        """Wait for the next line that contains `part`, and return it."""
        end_s = time.monotonic() + deadline_s
        with suppress(queue.Empty):
            while line := self._new.get(timeout=max(0.0, end_s - time.monotonic())):
                if part in line:
                    return line
        raise AssertionError(f"no line with {part!r} within {deadline_s} s:\n{self.text}")

    def signal(self, number: int) -> None:
        """Send a signal to the command, and not to its child processes."""
        self._process.send_signal(number)

    def wait(self, deadline_s: float) -> int:
        """Wait for the end of the command, and return its exit code."""
        code = self._process.wait(deadline_s)
        self._thread.join(deadline_s)
        return code

    def family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            self._new.put(line)
        self._new.put(None)


def await_ends(processes: list[psutil.Process], deadline_s: float) -> list[psutil.Process]:
    """Wait until these processes end, and return those that still run at the deadline."""
    _, alive = psutil.wait_procs(processes, timeout=deadline_s)
    return [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def listening_ports(processes: list[psutil.Process]) -> set[int]:
    ports = set()
    for process in processes:
        try:
            connections = process.net_connections(kind="tcp")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        ports |= {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
    return ports


def ended(*arguments: str, folder: Path, deadline_s: float, **process: Any) -> tuple[int, str]:
    """Run a command to its end, without a traceback; its exit code and output.

    Args:
        process: `program` and `environ`, see `RunningCommand`.
    """
    with RunningCommand(*arguments, folder=folder, **process) as command:
        code = command.wait(deadline_s)
    assert "Traceback" not in command.text, command.text
    return code, command.text


def finished(
    *arguments: str, folder: Path, deadline_s: float, code: int = 0, **process: Any
) -> str:
    """Run a command to its end, check its exit code, and return its output, see `ended`."""
    found, text = ended(*arguments, folder=folder, deadline_s=deadline_s, **process)
    assert found == code, text
    return text


def answered(command: click.Command, *options: str) -> str:
    """The output of a command that ends well within this process."""
    done = CliRunner().invoke(command, options, standalone_mode=False, catch_exceptions=False)
    assert not done.return_value, done.output
    return done.output


def document_in(folder: Path, name: str = "summary.json", out: str = "out") -> dict[str, Any]:
    """The only document of this name below a folder with one run."""
    (path,) = (folder / out).glob(f"*/{name}")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
