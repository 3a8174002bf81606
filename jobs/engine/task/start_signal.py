"""Start of a load: all tasks begin at one moment, once every one of them is ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PROBLEM_LENGTH = 2_000
"""Characters of a problem that are sent: a message on the control channel is one short line."""
LATE_MAX_S = 5.0
"""Longest delay of the driver that moves the start [s]. A longer one is a difference between the
driver's clock and the clock of the task's host."""


@dataclass(frozen=True)
class TaskReady:
    """Message of a task that has opened all it needs, or has failed to.

    Attributes:
        now_s: time of its host's clock [s since the epoch].
        host: name of its host.
        problem: what keeps the task from taking part; None when it is ready.
    """

    now_s: float
    host: str
    problem: str | None = None

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> TaskReady:
        """Read what `document` returned.

        Raises:
            KeyError, TypeError, ValueError: the message has another form.
        """
        problem = message["problem"]
        text = None if problem is None else str(problem)
        return cls(float(message["now_s"]), str(message["host"]), text)

    def document(self) -> dict[str, Any]:
        """The message as plain values, with a problem cut to `PROBLEM_LENGTH`."""
        document = asdict(self)
        document["problem"] = self.problem and self.problem[:PROBLEM_LENGTH]
        return document


@dataclass(frozen=True)
class StartSignal:
    """Message to a task when all tasks are ready.

    Attributes:
        ready_s: when the last task was ready, by its host's clock; later where a busy driver
            received its message late [s since the epoch].
        problem: why this task takes no part, because of itself or of another task; None when the
            load starts.
        watches_host: whether this task is the one that watches its host.
    """

    ready_s: float
    problem: str | None = None
    watches_host: bool = False


def start_signals(
    ready: Mapping[int, TaskReady], received_s: float = 0.0
) -> dict[int, StartSignal]:
    """Task → its start signal.

    Args:
        ready: messages of all tasks.
        received_s: when the driver received the last of them, by its own clock [s since the
            epoch]; 0 where the tasks exchange them without the driver.
    """
    last_s = max(each.now_s for each in ready.values())
    ready_s = min(max(last_s, received_s), last_s + LATE_MAX_S)
    problem = next((ready[task].problem for task in sorted(ready) if ready[task].problem), None)
    of_others = None if problem is None else f"another task: {problem}"
    first = {ready[task].host: task for task in sorted(ready, reverse=True)}
    return {
        task: StartSignal(ready_s, each.problem or of_others, first[each.host] == task)
        for task, each in ready.items()
    }
