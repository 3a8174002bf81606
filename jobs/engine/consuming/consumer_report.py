"""Report of a task with consumers, and the offsets up to which it reads.

Consumers read while the producers' tasks wait for their last acknowledgements. Then all tasks
gather once more, and consumers know up to which offsets everything was acknowledged.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from jobs.engine.consuming.consumer_client import TaskReading
from jobs.engine.network.tcp_info import kernel_buffers
from jobs.engine.task.plan import TrialPlan
from metrics.trial.task import ConsumerReport, TaskReport

Gather = Callable[[str], list[str]]
"""Spark's `allGather`: the messages of all tasks, when all have called."""


class AcknowledgedOffsets:
    """The acknowledged offsets of all tasks; every task must call `finish` once.

    Args:
        gather: blocks until all tasks have called.

    Attributes:
        own_offsets: partition → number of offsets of its log that this task's producers occupy for
            certain.
    """

    def __init__(self, plan: TrialPlan, gather: Gather) -> None:
        self._plan = plan
        self._gather = gather
        self._targets: dict[int, int] | None = None
        self._thread: threading.Thread | None = None
        self.own_offsets: Mapping[int, int] = {}

    def targets(self) -> Mapping[int, int] | None:
        """Partition → offset to read to; None while a task has not finished yet.

        Does not block. The first call states that this task adds nothing more.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._gather_offsets, daemon=True)
            self._thread.start()
        return self._targets

    def finish(self) -> None:
        """Take part in the gathering, so that no other task waits for this one."""
        if self._thread is None:
            self._gather_offsets()
        else:
            self._thread.join()

    def _gather_offsets(self) -> None:
        total: Counter[int] = Counter()
        first = self._plan.first_partition  # tasks of other parts count from 0, too
        own = {first + partition: records for partition, records in self.own_offsets.items()}
        for message in self._gather(json.dumps(own)):
            total.update({int(p): records for p, records in json.loads(message).items()})
        self._targets = {
            partition: end + total[first + partition]
            for partition, end in self._plan.end_offsets.items()
        }


def consumer_report(task: int, reading: TaskReading, wall_offset_s: float) -> TaskReport:
    """The row of a task with consumers for a window.

    Args:
        wall_offset_s: what to add to the engine's clock for seconds since the epoch.
    """
    begin_s = reading.window.start_s + wall_offset_s
    return TaskReport(
        task,
        socket.gethostname(),
        begin_s,
        begin_s + reading.window.duration_s,
        consumed=ConsumerReport(reading.loop_busy, reading.shares, reading.sockets),
        kernel_buffers=kernel_buffers(),
    )
