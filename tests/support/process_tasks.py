"""The tasks of a stage in separate processes, as on executors, without Spark."""

from __future__ import annotations

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.engine.stage import run_task
from jobs.engine.task.plan import TrialPlan
from metrics.trial.client import TaskReport
from tests.support.threads_barrier import ThreadsBarrier


@dataclass(frozen=True)
class TaskRun:
    """The report and the cost of a task.

    Attributes:
        memory_bytes: growth of the process's memory, from before the connections to the end [B].
    """

    row: TaskReport
    memory_bytes: int
    cpu_s: float


def _status_bytes(key: str) -> int:
    """A figure of the kernel about the memory of this process; ru_maxrss has its parent's, too."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith(f"{key}:"))
    return int(found) * 1024


def _task(plan: TrialPlan, barrier: ThreadsBarrier) -> TaskRun:
    before_bytes = _status_bytes("VmRSS")
    row = run_task(plan, barrier)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return TaskRun(row, _status_bytes("VmHWM") - before_bytes, used.ru_utime + used.ru_stime)


def run_in_processes(plan: TrialPlan, timeout_s: float) -> list[TaskRun]:
    """Run all tasks of the plan at the same time.

    Args:
        timeout_s: longest time until the first report [s].
    """
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(plan.tasks, spawn) as pool:
        meeting: Any = manager.Barrier(plan.tasks)
        messages: Any = manager.list([""] * plan.tasks)
        barriers = [ThreadsBarrier(task, meeting, messages) for task in range(plan.tasks)]
        return list(pool.map(_task, [plan] * plan.tasks, barriers, timeout=timeout_s))
