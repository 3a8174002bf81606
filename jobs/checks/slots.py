"""How many tasks the executors that have registered can run at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

DEADLINE_S = 60.0
"""Executors that have not registered by then are not waited for any longer [s]: they come within
seconds of the driver, and a container that has to be fetched within a minute."""
SETTLED_S = 5.0
"""Where nothing says how many will come, all have when no more came for so long [s]."""
_POLL_S = 0.1


@dataclass(frozen=True)
class Slots:
    """What was there in the end, and how long it took [s]."""

    count: int
    waited_s: float


def registered_slots(context: SparkContext) -> int:
    """Tasks that can run at once on what has registered so far: Spark's own count, the one by
    which it admits a barrier stage.
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
    """Wait until so many slots are there, or until the deadline.

    Args:
        count: the slots that are there now.
        wanted: how many to wait for; None for all that come, which is when their number has
            stood still for `SETTLED_S`.
        clock, pause: time [s], handed in for tests.
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
