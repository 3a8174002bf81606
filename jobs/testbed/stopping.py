"""How processes are asked to end, how long they may take, and when there is no more time."""

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
"""For a controller that writes the class archive as it ends, on a busy machine."""


class Stopper:
    """Ends processes, in order, and hurries when somebody insists."""

    def __init__(self, inbox: Inbox, clock_s: Callable[[], float]) -> None:
        self._inbox = inbox
        self._clock_s = clock_s

    def await_end(self, processes: Sequence[NodeProcess], deadline_s: float) -> None:
        """Wait until these have ended; kill them at the deadline, or when we should hurry.

        That is when the owner is gone, or a signal asks once more.
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
        """Let those end that have something to leave, Spark first.

        What brokers wrote is deleted, so they have nothing to hand over, and are killed afterwards.
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
