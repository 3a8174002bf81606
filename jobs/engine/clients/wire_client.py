"""The engine's own client, which sends batches that were encoded before."""

from __future__ import annotations

import functools

from jobs.engine.batches import BatchPool
from jobs.engine.clients.client import Outcome
from jobs.engine.connections import open_connections
from jobs.engine.control import DriverLine
from jobs.engine.pattern import ProducerPattern, TrialPlan
from jobs.engine.transport import Transport
from jobs.engine.wire import WireLoop, client_id_of


@functools.lru_cache(maxsize=2)
def pool_of(pattern: ProducerPattern) -> BatchPool:
    """The pool of this pattern, kept for the next trial.

    Python workers are used again, and encoding a pool can take longer than a trial's warm-up.
    """
    return BatchPool(pattern)


class WireClient:
    """See `ProducerClient`: one connection per producer and broker, driven by one event loop."""

    def __init__(self, plan: TrialPlan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._transports: dict[tuple[str, int], Transport] = {}

    def open(self) -> None:
        """Connect, and encode the pool."""
        plan = self._plan
        hosted = plan.producers_of(self._task)
        wanted = [
            (client_id_of(plan, index), broker) for index in hosted for broker in plan.brokers
        ]
        options = dict(plan.client_options)
        self._transports = open_connections(wanted, plan.brokers, options, plan.connect_timeout_s)
        self._pool = pool_of(plan.pattern)

    def run(self, start_s: float, wall_offset_s: float, line: DriverLine | None) -> Outcome:
        """See `ProducerClient.run`."""
        loop = WireLoop(self._plan, self._task, self._transports, self._pool, line=line)
        return loop.run(start_s, wall_offset_s)

    def close(self) -> None:
        """Close the connections."""
        for transport in self._transports.values():
            transport.close()
