"""The barrier of a stage with threads as its tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from jobs.engine.stage import run_task
from jobs.engine.task.plan import TrialPlan
from metrics.trial.client import TaskReport
from tests.support.processes import PATIENCE_S


class ThreadsBarrier:
    """The barrier of one task; `of` makes the barriers of a stage."""

    def __init__(self, task: int, meeting: threading.Barrier, messages: list[str]) -> None:
        self._task = task
        self._meeting = meeting
        self._messages = messages

    @classmethod
    def of(cls, tasks: int) -> list[ThreadsBarrier]:
        meeting, messages = threading.Barrier(tasks), [""] * tasks
        return [cls(task, meeting, messages) for task in range(tasks)]

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self._task

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        self._messages[self._task] = message
        self._meeting.wait(PATIENCE_S)
        gathered = list(self._messages)
        self._meeting.wait(PATIENCE_S)
        return gathered


def run_stage(
    plan: TrialPlan, reading: TrialPlan | None = None, clocks_ahead_s: Sequence[float] = ()
) -> list[TaskReport]:
    """Run all tasks of the plan at the same time.

    Args:
        reading: the plan of the tasks with consumers, if it is a different one.
        clocks_ahead_s: offset of each task's clock, 0 by default [s].
    """
    barriers = ThreadsBarrier.of(plan.tasks + plan.consumer_tasks)
    plans = [plan] * plan.tasks + [reading or plan] * plan.consumer_tasks
    ahead_s = clocks_ahead_s or [0.0] * len(barriers)

    def run(own: TrialPlan, barrier: ThreadsBarrier, own_s: float) -> TaskReport:
        return run_task(own, barrier, lambda: time.time() + own_s)

    with ThreadPoolExecutor(len(barriers)) as pool:
        return list(pool.map(run, plans, barriers, ahead_s))
