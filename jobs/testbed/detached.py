"""Starts, lists and stops detached testbeds, which run between commands."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from jobs.testbed.cleanup import CleanupReport, is_alive, locked_sweep, wait_gone
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from jobs.testbed.model import State, TestbedStateError
from jobs.testbed.places import (
    FAILED,
    default_root,
    disk_bytes,
    readable_states,
    written_dirs,
)

_STOP_DEADLINE_S = 90.0
_KILL_DEADLINE_S = 10.0

# A detached supervisor stays a child of this process, which must reap it.
_detached: list[Testbed] = []


@dataclass(frozen=True)
class DetachedTestbed:
    """The status of a testbed, for `redline testbed status`.

    Attributes:
        state: the last state that the supervisor wrote.
        is_alive: False if the supervisor has ended, and files or processes remain.
        age_s: time since the testbed's creation [s].
        data_bytes: size of the log directories and of Spark's folders on the disk [B].
        memory_bytes: resident memory of the JVMs, without Spark's executors [B].
        folder: folder of the testbed's files.
    """

    state: State
    is_alive: bool
    age_s: float
    data_bytes: int
    memory_bytes: int
    folder: Path


@dataclass(frozen=True)
class StopReport:
    """The result of `down`.

    Attributes:
        stopped: state of the stopped testbed; None if no testbed with this name ran.
        cleaned: one report for each testbed whose supervisor had ended.
    """

    stopped: State | None
    cleaned: tuple[CleanupReport, ...]


def up(profile: str = "disk-bound", **options: Any) -> Testbed:
    """Start a testbed that continues after the end of this process.

    Args:
        profile, options: see `jobs.testbed.launcher.start`.

    Raises:
        ConfigError: see `start`; or a testbed with this name runs already.
    """
    testbed = start(profile, owned=False, **options)
    _detached.append(testbed)
    return testbed


def status(root: Path | None = None) -> list[DetachedTestbed]:
    """The status of all running and all crashed testbeds."""
    return [_report(*found) for found in readable_states(root or default_root())]


def failed_logs(root: Path | None = None) -> list[Path]:
    """The folders with the logs of failed testbeds, the newest last."""
    failed = (root or default_root()) / FAILED
    if not failed.is_dir():
        return []
    return sorted(failed.iterdir(), key=lambda folder: folder.stat().st_mtime)


def down(name: str = "default", root: Path | None = None) -> StopReport:
    """Stop the detached testbed with this name, and clean up after all crashed testbeds.

    A testbed of a running command is not stopped, because it ends with the command.

    Raises:
        TestbedStateError: the supervisor process did not end in time after SIGKILL.
    """
    root = root or default_root()
    stopped = None
    for report in status(root):
        spec = report.state.spec
        if report.is_alive and spec.name == name and not spec.owned:
            _stop(report)
            stopped = report.state
    for testbed in _detached:
        testbed.reap()
    return StopReport(stopped, tuple(locked_sweep(root)))


def _stop(report: DetachedTestbed) -> None:
    """Request the supervisor's end; kill the supervisor if it does not end in time."""
    record = report.state.supervisor or report.state.owner
    if record is None:
        return
    for ask, patience_s in (
        (psutil.Process.terminate, _STOP_DEADLINE_S),
        (psutil.Process.kill, _KILL_DEADLINE_S),
    ):
        if not is_alive(record):
            return
        with suppress(psutil.NoSuchProcess):  # it has just ended
            ask(psutil.Process(record.pid))
        if wait_gone(record, patience_s):
            return
    raise TestbedStateError(
        f"process {record.pid}, the supervisor of testbed {report.state.spec.name}, was killed "
        f"and still runs; check the process and {report.folder}, then try again"
    )


def _report(folder: Path, state: State) -> DetachedTestbed:
    memory_bytes = 0
    for record in state.processes:
        if is_alive(record):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                memory_bytes += psutil.Process(record.pid).memory_info().rss
    return DetachedTestbed(
        state=state,
        is_alive=is_alive(state.supervisor or state.owner),
        age_s=time.time() - state.created_s,
        data_bytes=disk_bytes(written_dirs(state.members)),
        memory_bytes=memory_bytes,
        folder=folder,
    )
