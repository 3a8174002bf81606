"""The number of tasks that the registered executors can run at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

DEADLINE_S = 60.0
"""Longest wait for executors [s]: they register seconds after the driver, and within a minute
where a container has to be downloaded."""
SETTLED_S = 5.0
"""Time without a new executor after which the number of executors counts as complete [s]; used
where the settings promise no number."""
_POLL_S = 0.1


@dataclass(frozen=True)
class Slots:
    """The number of slots, and the time spent waiting for them.

    Attributes:
        count: slots at the end of the wait.
        waited_s: length of the wait [s].
    """

    count: int
    waited_s: float


def registered_slots(context: SparkContext) -> int:
    """Number of tasks that can run at once on the executors that have registered so far.

    It is the number by which Spark admits a barrier stage.
    """
    java: Any = context._jsc.sc()
    return int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


def await_slots(
    count: Callable[[], int],
    wanted: int | None,
    deadline_s: float = DEADLINE_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Slots:
    """Wait until there are `wanted` slots, or until the deadline.

    Args:
        count: returns the current number of slots.
        wanted: number of slots to wait for; None to wait until the number has not changed for
            `SETTLED_S`.
        clock, pause: time and pauses [s]; replaced in tests.
    """
    began_s = changed_s = clock()
    seen = count()
    while True:
        now_s = clock()
        is_settled = seen > 0 and now_s - changed_s >= SETTLED_S
        is_enough = is_settled if wanted is None else seen >= wanted
        if is_enough or now_s - began_s >= deadline_s:
            return Slots(seen, now_s - began_s)
        pause(_POLL_S)
        current = count()
        if current != seen:
            seen, changed_s = current, clock()
