"""The cleanup after a crash: ends the remaining processes of a testbed, and deletes its files.

A process belongs to a testbed if it runs as the same user as this process, and has the testbed's
id. The testbed's id is on the command line of the process. For processes that Spark started, the
testbed's id is in the environment of the process. If the state file contains the process id, the
process must also have the creation time from the state file.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from filelock import FileLock

from jobs.testbed.cpu_groups import remove_groups
from jobs.testbed.jvm import MARKER
from jobs.testbed.listeners import FOLDER
from jobs.testbed.model import ProcessRecord, State, Status
from jobs.testbed.places import (
    FAILED,
    FAILED_KEPT,
    NodeFiles,
    disk_bytes,
    read_state,
    testbed_dirs,
    write_state,
    written_dirs,
)
from jobs.testbed.planted_devices import lift_rates, remove_device, remove_disks
from jobs.testbed.spark import TESTBED_VARIABLE

log = logging.getLogger(__name__)

_END_DEADLINE_S = 10.0
POLL_S = 0.1


def _own_processes(is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The running processes of this user that meet a condition."""
    mine = psutil.Process().uids().real
    found = []
    for process in psutil.process_iter():
        # The process may have ended, or may belong to another user.
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            is_running = process.status() != psutil.STATUS_ZOMBIE
            if is_running and process.uids().real == mine and is_wanted(process):
                found.append(process)
    return found


def inheriting_processes(testbed_id: str) -> list[psutil.Process]:
    """The executors and Python workers that Spark started for a testbed."""
    return _own_processes(lambda each: each.environ().get(TESTBED_VARIABLE) == testbed_id)


def end_processes(processes: list[psutil.Process]) -> None:
    """Kill processes and wait until they have ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # the process has ended
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=_END_DEADLINE_S)
    for process in alive:
        log.error("process %d was killed and still runs", process.pid)


LOCK_FILE = ".lock"
# The kernel counts start times in ticks of 10 ms, and reuses no process id within a second.
_SAME_TIME_S = 1.0


@dataclass(frozen=True)
class CleanupReport:
    """The result of cleaning up after one testbed.

    Attributes:
        name: name of the testbed.
        processes: number of processes that were killed.
        data_bytes: size of the deleted files [B].
        logs: folder of the kept logs; None without logs.
    """

    name: str
    processes: int
    data_bytes: int
    logs: Path | None


def root_lock(root: Path) -> FileLock:
    """The lock for the creation and the cleanup of testbeds; a cleanup never runs during a
    creation.
    """
    root.mkdir(parents=True, exist_ok=True)
    return FileLock(root / LOCK_FILE)


def is_alive(record: ProcessRecord | None) -> bool:
    """Whether the process of this record still runs; False for a zombie."""
    if record is None:
        return False
    try:
        if psutil.Process(record.pid).status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(created_s(record.pid) - record.created_s) <= _SAME_TIME_S
    except psutil.NoSuchProcess:
        return False


def own_record() -> ProcessRecord:
    """The record of the calling process."""
    return ProcessRecord(os.getpid(), created_s(os.getpid()))


def created_s(pid: int) -> float:
    """The creation time [s] of a process, as a `ProcessRecord` contains it.

    On Linux the time counts from the boot, so that a change of the system's clock has no effect.

    Raises:
        psutil.NoSuchProcess: the process has ended.
    """
    # First, because psutil 5.9 computes creation times from the last boot time that it read.
    booted_s = psutil.boot_time() if psutil.LINUX else 0.0
    # A new instance each time, because an instance caches its creation time.
    return psutil.Process(pid).create_time() - booted_s


def node_processes(state: State) -> list[psutil.Process]:
    """The running processes of a testbed.

    The state may lack a process that was started just before a crash. The function therefore
    searches all processes of the machine for the testbed's id.
    """
    created = {record.pid: record.created_s for record in state.processes}
    starter = state.supervisor or state.owner
    since_s = starter.created_s if starter else 0.0

    def is_ours(process: psutil.Process) -> bool:
        is_marked = f"{MARKER}{state.spec.id}" in process.cmdline()
        if not is_marked and process.environ().get(TESTBED_VARIABLE) != state.spec.id:
            return False
        born_s, expected_s = created_s(process.pid), created.get(process.pid)
        if expected_s is None:
            return born_s >= since_s - _SAME_TIME_S
        return abs(born_s - expected_s) <= _SAME_TIME_S

    return _own_processes(is_ours)


def sweep(root: Path) -> list[CleanupReport]:
    """Clean up after all testbeds whose supervisor has ended; the caller must hold `root_lock`."""
    cleaned = []
    for folder in testbed_dirs(root):
        state = read_state(folder)
        if state is None:
            # This process holds the lock for creating folders, so the folder is abandoned.
            remove_disks(folder)
            cleaned.append(CleanupReport(folder.name, 0, disk_bytes([folder]), None))
            shutil.rmtree(folder, ignore_errors=True)
        elif not is_alive(state.supervisor or state.owner) and folder.exists():
            # The folder still exists, so its supervisor has not just deleted it.
            cleaned.append(clean_up(folder, state))
    return cleaned


def locked_sweep(root: Path) -> list[CleanupReport]:
    """Clean up after all testbeds whose supervisor has ended."""
    with root_lock(root):
        return sweep(root)


def clean_up(folder: Path, state: State) -> CleanupReport:
    """Kill the remaining processes of a testbed without a supervisor, and keep only the logs."""
    lift_rates(folder)
    processes = node_processes(state)
    end_processes(processes)
    remove_groups(state.spec.id)
    remove_device(state.spec.id)
    freed_bytes = disk_bytes(written_dirs(state.members))
    remove_disks(folder)
    reason = (
        state.reason
        or "the supervisor ended and did not stop the testbed; the supervisor may have been killed"
    )
    kept = keep_logs(folder, replace(state, status=Status.FAILED, reason=reason, processes=()))
    return CleanupReport(state.spec.name, len(processes), freed_bytes, kept)


def keep_logs(folder: Path, state: State) -> Path:
    """Delete data and keys of a failed testbed, move its folder, and return the new folder."""
    for node in state.members:
        shutil.rmtree(NodeFiles(node).data, ignore_errors=True)
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    write_state(folder, state)
    failed = folder.parent / FAILED
    failed.mkdir(exist_ok=True)
    kept = failed / folder.name
    folder.rename(kept)
    _prune(failed)
    return kept


def _prune(failed: Path) -> None:
    """Delete the oldest failed testbeds, so that `FAILED_KEPT` of them remain."""
    ages = []
    for folder in failed.iterdir():
        with suppress(FileNotFoundError):  # another process prunes too
            ages.append((folder.stat().st_mtime, folder))
    for _, folder in sorted(ages)[:-FAILED_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def wait_gone(record: ProcessRecord, deadline_s: float) -> bool:
    """Wait until the process of this record has ended; return False after the deadline [s].

    The function polls, because the kernel notifies only the parent of a process.
    """
    ends_s = time.monotonic() + deadline_s
    while is_alive(record):
        if time.monotonic() > ends_s:
            return False
        time.sleep(POLL_S)
    return True
