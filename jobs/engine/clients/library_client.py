"""A producer client of a library: one instance of it per producer."""

from __future__ import annotations

from collections.abc import Callable

from jobs.engine.clients.client import Outcome
from jobs.engine.clients.library import Library, records_of
from jobs.engine.clients.library_loop import LibraryLoop
from jobs.engine.connections import open_connections
from jobs.engine.driver_line import DriverLine
from jobs.engine.pattern import TrialPlan
from jobs.engine.pool import pool_of


class LibraryClient:
    """See `ProducerClient`.

    Args:
        make: makes the producer of this index, connected.
    """

    def __init__(
        self, plan: TrialPlan, task: int, make: Callable[[TrialPlan, int], Library]
    ) -> None:
        self._plan = plan
        self._task = task
        self._make = make
        self._libraries: list[Library] = []

    def open(self) -> None:
        """See that every broker lets us in, make all producers, and the records."""
        plan = self._plan
        # Libraries try again and again, and say at best that it took too long.
        wanted = [(f"redline-{plan.trial_id}-look", broker) for broker in plan.brokers]
        opened = open_connections(
            wanted, plan.brokers, dict(plan.client_options), plan.connect_timeout_s
        )
        for transport in opened.values():
            transport.close()
        for index in plan.producers_of(self._task):
            self._libraries.append(self._make(plan, index))
        self._records = records_of(plan.pattern)

    def run(self, start_s: float, wall_offset_s: float, line: DriverLine | None) -> Outcome:
        """See `ProducerClient.run`."""
        pool = pool_of(self._plan.pattern)
        loop = LibraryLoop(self._plan, self._task, self._libraries, self._records, pool, line=line)
        return loop.run(start_s, wall_offset_s)

    def close(self) -> None:
        """Close all producers."""
        while self._libraries:
            self._libraries.pop().close()
