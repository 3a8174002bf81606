"""When a load starts: at one moment, once every task of its stage has opened what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PROBLEM_LENGTH = 2_000
"""Of a problem that is told; a message on the line to the driver is one short line."""
LATE_MAX_S = 5.0
"""A driver that seems to have heard of the last task later than this was not busy: its clock is
another one than that of the task's host."""


@dataclass(frozen=True)
class Ready:
    """What a task says once it has opened what it needs, or could not.

    Attributes:
        now_s: by its host's clock [s since the epoch].
        host: where it runs.
        problem: what keeps it from taking part; None where nothing does.
    """

    now_s: float
    host: str
    problem: str | None = None

    @classmethod
    def told(cls, message: Mapping[str, Any]) -> Ready:
        """As `document` gave it.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        problem = message["problem"]
        text = None if problem is None else str(problem)
        return cls(float(message["now_s"]), str(message["host"]), text)

    def document(self) -> dict[str, Any]:
        """As it is told, plain."""
        told = asdict(self)
        told["problem"] = self.problem and self.problem[:PROBLEM_LENGTH]
        return told


@dataclass(frozen=True)
class Agreement:
    """What a task hears when all are ready.

    Attributes:
        ready_s: when the last of them was, by its own host's clock, or later where the driver was
            busy and heard of it later [s since the epoch].
        problem: why this task takes no part, as another cannot, or it cannot itself; None for a
            load.
        looks_at_host: whether this task is the one that watches its host.
    """

    ready_s: float
    problem: str | None = None
    looks_at_host: bool = False


def agreements(ready: Mapping[int, Ready], heard_s: float = 0.0) -> dict[int, Agreement]:
    """What each task hears, by the number of the task.

    Args:
        ready: what all tasks said.
        heard_s: when the driver had heard of the last of them, by its own clock [s since the
            epoch]; 0 where the tasks hear of each other without it.
    """
    last_s = max(each.now_s for each in ready.values())
    ready_s = min(max(last_s, heard_s), last_s + LATE_MAX_S)
    lacking = next((ready[task].problem for task in sorted(ready) if ready[task].problem), None)
    others = None if lacking is None else f"another task: {lacking}"
    first = {ready[task].host: task for task in sorted(ready, reverse=True)}
    return {
        task: Agreement(ready_s, each.problem or others, first[each.host] == task)
        for task, each in ready.items()
    }
