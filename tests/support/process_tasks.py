"""The tasks of a stage in separate processes, as on executors, without Spark."""

from __future__ import annotations

import multiprocessing
import resource
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from jobs.engine.stage import run_task
from jobs.engine.task.plan import TrialPlan
from metrics.trial.client import TaskReport

_KIB = 1024


@dataclass(frozen=True)
class TaskRun:
    """The report and the cost of a task.

    Attributes:
        memory_bytes: growth of the process's memory, from before the connections to the end [B].
        cpu_s: CPU time of the process [CPU-s].
    """

    row: TaskReport
    memory_bytes: int
    cpu_s: float


class _Barrier:
    """A barrier that gathers messages through the parent process."""

    def __init__(self, task: int, parent: Connection) -> None:
        self._task = task
        self._parent = parent

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self._task

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        self._parent.send(message)
        gathered: list[str] = self._parent.recv()
        return gathered


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _peak_bytes() -> int:
    # Linux includes the parent's memory at the start of this process in ru_maxrss.
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) * _KIB


def _task(plan: TrialPlan, task: int, parent: Connection) -> None:
    before = _resident_bytes()
    row = run_task(plan, _Barrier(task, parent))
    used = resource.getrusage(resource.RUSAGE_SELF)
    parent.send(TaskRun(row, _peak_bytes() - before, used.ru_utime + used.ru_stime))


def run_in_processes(plan: TrialPlan, timeout_s: float) -> list[TaskRun]:
    """Run all tasks of the plan at the same time.

    Args:
        timeout_s: longest time between two messages of a task [s].
    """
    context = multiprocessing.get_context("spawn")
    lines, processes = [], []
    for task in range(plan.tasks):
        own, theirs = context.Pipe()
        process = context.Process(target=_task, args=(plan, task, theirs), daemon=True)
        process.start()
        lines.append(own)
        processes.append(process)
    try:
        messages = [_receive(line, timeout_s) for line in lines]
        for line in lines:
            line.send(messages)
        return [_receive(line, timeout_s) for line in lines]  # type: ignore[misc]
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()
            process.join()
            process.close()


def _receive(line: Connection, timeout_s: float) -> object:
    assert line.poll(timeout_s), f"a task has sent no message for {timeout_s:.0f} s"
    return line.recv()
