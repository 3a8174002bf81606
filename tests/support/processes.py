"""Looking at processes and ports from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

PATIENCE_S = 240.0
"""What only ends a test that hangs, a little before pytest does [s]."""


def states_of_threads(pid: int) -> set[str]:
    """As the kernel has them, such as T of one that is stopped; of the process, without /proc."""
    try:
        told = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread that has just ended
        return set()
    if not told:
        return {"T"} if psutil.Process(pid).status() == psutil.STATUS_STOPPED else set()
    return {each.rpartition(")")[2].split()[0] for each in told}


def processes_with(text: str) -> list[int]:
    """Ids of living processes, zombies aside, with this text in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            if not is_dead and any(text in part for part in process.cmdline()):
                found.append(process.pid)
        except psutil.NoSuchProcess:  # ended meanwhile
            continue
    return found


def words_of(process: psutil.Process) -> str:
    """Its command line; empty for one that has ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def seen_of(processes: Iterable[psutil.Process]) -> Iterator[tuple[str, str]]:
    """Command line of each process → that line and its environment; without those that ended."""
    for process in processes:
        try:
            words = " ".join([f"{process.pid}", *process.cmdline()])
            yield words, f"{words} {process.environ()}"
        except psutil.NoSuchProcess:
            continue


def becomes(condition: Callable[[], bool], deadline_s: float = PATIENCE_S) -> bool:
    """Wait until the condition holds; False when it does not in time [s]."""
    ends_s = time.monotonic() + deadline_s
    while time.monotonic() < ends_s:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
