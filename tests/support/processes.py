"""Observation of processes, and waits with a deadline."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil

from jobs.testbed.handle import Testbed
from jobs.testbed.model import CONTROLLER_ID, Node

PATIENCE_S = 240.0
"""Deadline that only ends a test that hangs, a little before pytest's timeout [s]."""


def thread_states(pid: int) -> set[str]:
    """States of the threads of a process in the kernel's letters, such as T for stopped.

    Without /proc, it is the state of the process.
    """
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return set()
    if not stats:
        return {"T"} if psutil.Process(pid).status() == psutil.STATUS_STOPPED else set()
    return {each.rpartition(")")[2].split()[0] for each in stats}


def processes_with(text: str) -> list[int]:
    """Ids of running processes, without zombies, with this text in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            if not is_dead and any(text in part for part in process.cmdline()):
                found.append(process.pid)
        except psutil.NoSuchProcess:  # ended meanwhile
            continue
    return found


def processes_in(folder: Path) -> list[psutil.Process]:
    """Processes, without this one, that work in this folder or below it."""
    return [
        each
        for each in psutil.process_iter(["cwd"])
        if Path(each.info["cwd"] or "/").is_relative_to(folder) and each.pid != os.getpid()
    ]


def command_line_of(process: psutil.Process) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def environments_of(processes: Iterable[psutil.Process]) -> Iterator[tuple[str, str]]:
    """Command line of each running process → the line with the environment of the process."""
    for process in processes:
        try:
            words = " ".join([f"{process.pid}", *process.cmdline()])
            yield words, f"{words} {process.environ()}"
        except psutil.NoSuchProcess:
            continue


def becomes(condition: Callable[[], bool], deadline_s: float = PATIENCE_S) -> bool:
    """Wait until the condition holds; False if it does not hold within `deadline_s` [s]."""
    ends_s = time.monotonic() + deadline_s
    while time.monotonic() < ends_s:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


@contextmanager
def beside(work: Callable[[], object], over: threading.Event | None = None) -> Iterator[None]:
    """Run `work` on a thread within this context; its end sets `over`, and waits for the thread."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        if over is not None:
            over.set()
        thread.join()


def after(seconds: float, event: Callable[[], object]) -> AbstractContextManager[None]:
    """Call `event` this time after the start of the context [s]; the end waits for it."""

    def call_later() -> None:
        threading.Event().wait(seconds)
        event()

    return beside(call_later)


def controller_of(testbed: Testbed) -> Node:
    """The KRaft controller that is a node of its own."""
    return next(node for node in testbed.state.nodes if node.node_id == CONTROLLER_ID)


def supervisor_pid(testbed: Testbed) -> int:
    """The process id of a testbed's supervisor."""
    supervisor = testbed.state.supervisor
    assert supervisor is not None
    return supervisor.pid
