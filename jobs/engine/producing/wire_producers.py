"""The engine's own producer client, which sends batches that were encoded in advance."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.engine.batches.pool import pool_of
from jobs.engine.network.transport import Transport
from jobs.engine.producing.control_requests import (
    Registered,
    TransactionalId,
    register_transactional,
    request_producer_ids,
)
from jobs.engine.producing.loop import WireLoop, opener_of
from jobs.engine.producing.producer_client import TaskLoad
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan


class WireProducers:
    """A `ProducerClient` with one connection per producer and broker, driven by one event loop."""

    def __init__(self, plan: TrialPlan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._transports: dict[tuple[str, int], Transport] = {}
        self._producer_ids: Mapping[str, int | Registered] = {}

    def open(self) -> None:
        """Connect, and encode the pool."""
        plan = self._plan
        hosted = plan.producers_of(self._task)
        wanted = [
            (plan.producer_name(index), broker) for index in hosted for broker in plan.brokers
        ]
        self._transports = dict(opener_of(plan)(wanted))
        if plan.pattern.producer.options.has_transactions:
            self._producer_ids = registered_at_brokers(plan, self._task, self._transports)
        elif plan.pattern.producer.options.enable_idempotence:
            self._request_producer_ids()
        self._pool = pool_of(plan.pattern.producer)

    def _request_producer_ids(self) -> None:
        """Request producer ids from brokers in turn, to spread the requests evenly."""
        plan = self._plan
        brokers = sorted(plan.brokers)
        homes = {
            plan.producer_name(index): brokers[index % len(brokers)]
            for index in plan.producers_of(self._task)
        }
        ways = {name: self._transports[name, at] for name, at in homes.items()}
        self._producer_ids = request_producer_ids(ways, plan.connect_timeout_s, plan.client_id)

    def run(self, start_s: float, wall_offset_s: float, driver: DriverChannel | None) -> TaskLoad:
        """Send the load; see `ProducerClient.run`."""
        loop = WireLoop(
            self._plan,
            self._task,
            self._transports,
            self._pool,
            driver=driver,
            producer_ids=self._producer_ids,
        )
        done = loop.run(start_s, wall_offset_s)
        if self._plan.pattern.producer.options.has_transactions:
            await_markers(self._plan, self._task)
        return done

    def close(self) -> None:
        """Close the connections."""
        for transport in self._transports.values():
            transport.close()


def registered_at_brokers(
    plan: TrialPlan, task: int, transports: Mapping[tuple[str, int], Transport]
) -> Mapping[str, Registered]:
    """Register each producer's transactional id, which is its name, at its coordinator.

    Raises:
        ProducerIdError: see `register_transactional`.
    """
    timeout_ms = plan.pattern.producer.options.transaction_timeout_ms
    names = [plan.producer_name(index) for index in plan.producers_of(task)]
    transactional = [TransactionalId(name, timeout_ms, plan.client_id(name)) for name in names]
    return register_transactional(transports, transactional, plan.connect_timeout_s)


def await_markers(plan: TrialPlan, task: int) -> None:
    """Wait until the ends of all transactions are in the logs; open transactions are aborted.

    A commit is answered before its markers are written, and end offsets count them.

    Raises:
        RedlineError: the brokers can no longer be reached, or do not answer.
    """
    names = [plan.producer_name(index) for index in plan.producers_of(task)]
    wanted = [(name, broker) for name in names for broker in plan.brokers]
    transports = opener_of(plan)(wanted)
    try:
        registered_at_brokers(plan, task, transports)
    finally:
        for transport in transports.values():
            transport.close()
