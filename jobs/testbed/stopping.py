"""The orderly end of processes, with deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.testbed.inbox import Inbox
from jobs.testbed.model import NodeRole, Spec
from jobs.testbed.nodes import Nodes
from jobs.testbed.processes import NodeProcess

POLL_S = 0.1
SPARK_STOP_S = 5.0
LINE_STOP_S = 5.0
ARCHIVE_STOP_S = 60.0
"""Time for a controller to write the class archive at its end, on a busy machine [s]."""


class Stopper:
    """Ends processes in order, and kills them when the end becomes urgent."""

    def __init__(self, inbox: Inbox, clock_s: Callable[[], float]) -> None:
        self._inbox = inbox
        self._clock_s = clock_s

    def await_end(self, processes: Sequence[NodeProcess], deadline_s: float) -> None:
        """Wait until these processes have ended; kill them at the deadline, or when it is urgent.

        It is urgent when the owner is gone, or a further signal arrives.
        """
        ends_s = self._clock_s() + deadline_s
        seen = self._inbox.terminations
        while any(each.exit_code() is None for each in processes):
            self._inbox.wait(POLL_S)
            is_urgent = self._inbox.is_orphaned or self._inbox.terminations > seen
            if is_urgent or self._clock_s() > ends_s:
                break
        for each in processes:
            each.kill()

    def stop_all(self, nodes: Nodes, spec: Spec) -> None:
        """Stop the processes that need an orderly end, Spark first.

        The caller kills the brokers afterwards, as their data are deleted anyway.
        """
        by_role: dict[NodeRole, list[NodeProcess]] = {role: [] for role in NodeRole}
        for process in nodes.processes.values():
            process.is_down_on_purpose = True
            by_role[process.node.role].append(process)
        deadlines_s = {
            NodeRole.SPARK_WORKER: SPARK_STOP_S,
            NodeRole.SPARK_MASTER: SPARK_STOP_S,
            NodeRole.DELAY_LINE: LINE_STOP_S,
        }
        if spec.class_archive is not None and not Path(spec.class_archive).exists():
            deadlines_s[NodeRole.CONTROLLER] = ARCHIVE_STOP_S
        for role, deadline_s in deadlines_s.items():
            for process in by_role[role]:
                process.terminate()
            self.await_end(by_role[role], deadline_s)
