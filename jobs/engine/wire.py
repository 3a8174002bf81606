"""The event loop that makes one task act as many producers.

One thread, one selector. Every producer has one place in a heap of due times; a due batch
goes to its connection at once, or waits there while the connection has no room
(`max_in_flight` requests unanswered, or the socket full). The schedule is open loop: a slow
broker never slows it down, it only makes batches wait, and latency counts from the time at
which a record was due.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import os
import time
from collections.abc import Callable, Mapping

from jobs.engine.conversation import converse
from jobs.engine.driver_line import DriverLine, OrphanedError
from jobs.engine.exchange import Exchange
from jobs.engine.identity import Identity
from jobs.engine.lane import Lane
from jobs.engine.pattern import TrialPlan
from jobs.engine.pool import BatchPool
from jobs.engine.producer import Connection, Producer
from jobs.engine.protocol import ProduceEncoder
from jobs.engine.reopening import Opener, Reopener, opener_of
from jobs.engine.routes import Routes
from jobs.engine.schedule import schedule_of
from jobs.engine.statistics import Account
from jobs.engine.transport import Transport

_EVENTS_PER_TURN = 256
_CHECK_INTERVAL_S = 0.25
_NEVER = float("inf")

UNACKNOWLEDGED = "Unacknowledged"
"""Error name of records that were sent and not answered by the end of the drain."""


class WireLoop:
    """The producers of one task, from their first record to the last acknowledgement.

    Args:
        line: to the driver, which may end the window early; None when nobody listens.
        producer_ids: client id → producer id, of idempotent producers.
        opener: opens lost connections again; may block, as a thread of its own calls it.

    Attributes:
        window_start_s, window_end_s: the measured window on this loop's clock [s].
    """

    def __init__(
        self,
        plan: TrialPlan,
        task: int,
        transports: Mapping[tuple[str, int], Transport],
        pool: BatchPool,
        clock: Callable[[], float] = time.monotonic,
        line: DriverLine | None = None,
        producer_ids: Mapping[str, int] | None = None,
        opener: Opener | None = None,
    ) -> None:
        self._producer_ids = producer_ids or {}
        self._opener = opener or opener_of(plan)
        self._plan = plan
        self._line = line
        self._task = task
        self._transports = transports
        self._pool = pool
        self._clock = clock
        self._heap: list[tuple[float, int, Producer]] = []
        self._order = itertools.count()  # settles ties, as producers have no order
        self._reopened: set[Connection] = set()
        self._waited_s = 0.0
        self._parent = os.getppid()
        self._next_check_s = clock() + _CHECK_INTERVAL_S

    def run(self, start_s: float, wall_offset_s: float) -> WireLoop:
        """Send from `start_s` on, through warm-up and window, then drain.

        Args:
            start_s: when the schedule begins, on this loop's clock [s].
            wall_offset_s: what to add to this clock for seconds since the epoch.

        Raises:
            OrphanedError: the parent process or the driver died; nothing more is sent.
            EndMissedError: the driver's end of the window came too late.
        """
        plan, pattern = self._plan, self._plan.pattern
        self.window_start_s = start_s + plan.warmup_s
        self.window_end_s = self.window_start_s + plan.measure_s
        interval_s = pattern.record_interval_s
        hosted = plan.producers_of(self._task)
        self.account = Account(self.window_start_s, self.window_end_s, interval_s, hosted)
        reopener = Reopener(self._opener)
        self._routes = Routes(plan, reopener, self._clock)
        self._exchange = Exchange(
            pattern, self._pool, self.account, self._clock, wall_offset_s, self._routes,
            self._advance,
        )  # fmt: skip
        self._exchange.call_when_readable(reopener.fileno(), self._take_reopened)
        self.producers = [self._producer(i, start_s) for i in hosted]
        was_enabled = gc.isenabled()
        gc.disable()  # nothing here makes cycles, and a collection would stall the schedule
        try:
            self._run_phases()
        finally:
            if was_enabled:
                gc.enable()
            self._exchange.close()
            reopener.close()
            for connection in self._reopened:
                connection.transport.close()
        return self

    def _producer(self, index: int, start_s: float) -> Producer:
        plan, pattern = self._plan, self._plan.pattern
        client_id = client_id_of(plan, index)
        producer_id = self._producer_ids.get(client_id)
        topic, partitions = plan.partitions.topic_of(index)
        producer = Producer(
            index,
            pattern,
            self._pool.section_of(index),
            partitions,
            schedule_of(pattern, index, start_s, plan.ramp_up_s),
            client_id,
            None if producer_id is None else Identity(producer_id),
        )
        encoder = ProduceEncoder(
            topic, client_id, pattern.acks, pattern.request_timeout_ms, partitions.start
        )
        for broker in plan.brokers:
            transport = self._transports[client_id, broker]
            connection = Connection(broker, transport, encoder, producer, pattern.max_in_flight)
            producer.connections[broker] = connection
            self._exchange.add(connection)
        self._schedule(producer, producer.ready_s)
        return producer

    def _run_phases(self) -> None:
        self._turn_until(lambda: self.window_start_s)
        cpu_s, waited_s = time.thread_time(), self._waited_s
        self._turn_until(lambda: self.window_end_s)
        counts = self.account.counts
        counts.cpu_s = time.thread_time() - cpu_s
        window_s = self.window_end_s - self.window_start_s
        counts.loop_busy = 1.0 - (self._waited_s - waited_s) / window_s
        counts.unsent_own_records = sum(self._unsent_own(p) for p in self.producers)
        self._exchange.is_open = False
        self._heap.clear()
        self._exchange.redelivery.close(self.producers, self._clock())
        if self._plan.pattern.acks == 0:
            for connection in self._connections():
                self._routes.settle(connection, self._exchange)
        self._turn_until(lambda: self.window_end_s + self._plan.drain_timeout_s)
        self._exchange.redelivery.end(self.producers, self._clock())
        for connection in self._connections():
            if connection.in_flight:
                self._exchange.lose(connection, UNACKNOWLEDGED)
        self.account.latency.fold()
        self.account.lateness.fold()

    def _connections(self) -> list[Connection]:
        return [c for p in self.producers for c in p.connections.values()]

    def _take_reopened(self) -> None:
        for connection, transport in self._routes.take_reopened():
            self._exchange.reopen(connection, transport)
            self._reopened.add(connection)

    def _unsent_own(self, producer: Producer) -> int:
        connection = producer.connections[self._routes.leaders[producer.partition]]
        if producer.blocked or producer.partition in producer.held:
            return 0
        if connection.queue or not connection.has_room:
            return 0
        if producer.ready_s > self.window_end_s:
            return 0
        return producer.records_due_between(producer.due_s(producer.opened), self.window_end_s)

    # --- time ---------------------------------------------------------------

    def _schedule(self, producer: Producer, at_s: float) -> None:
        producer.scheduled_s = at_s
        if at_s < self.window_end_s:
            heapq.heappush(self._heap, (at_s, next(self._order), producer))

    def _turn_until(self, phase_end_s: Callable[[], float]) -> None:
        clock, heap, exchange = self._clock, self._heap, self._exchange
        redelivery = exchange.redelivery
        while (now := clock()) < (end_s := phase_end_s()) and exchange.has_work:
            for _ in range(_EVENTS_PER_TURN):
                if not heap or heap[0][0] > now or now >= end_s:
                    break
                at_s, _order, producer = heapq.heappop(heap)
                if at_s == producer.scheduled_s:
                    self._advance(producer, now)
                now = clock()
            if now >= self._next_check_s:
                self._check(now)
                self._next_check_s = now + _CHECK_INTERVAL_S
            redelivery.run_due(now)
            next_s = min(heap[0][0] if heap else _NEVER, redelivery.next_s)
            wake_s = min(end_s, self._next_check_s, next_s)
            timeout_s = wake_s - now
            if timeout_s > 0:
                self._waited_s += exchange.wait(timeout_s)
            else:
                exchange.wait(0)

    def _check(self, now: float) -> None:
        if os.getppid() != self._parent:
            raise OrphanedError("the process that started this load has ended, so it stops too")
        if self._line is not None:
            converse(self._line, self.account, now)
            self.window_end_s = self.account.window_end_s
        timeout_s = self._plan.pattern.request_timeout_ms / 1000.0
        for connection in self._connections():
            if connection.in_flight and now - connection.in_flight[0][1] > timeout_s:
                self._exchange.lose(connection, "RequestTimedOutError")
            if connection.queue:
                self._exchange.redelivery.expire(connection, now)

    # --- sending ------------------------------------------------------------

    def _advance(self, producer: Producer, now: float) -> None:
        """Send or queue every batch of this producer that is ready, and set its next event."""
        leaders, held = self._routes.leaders, producer.held
        while (ready_s := producer.ready_s) <= now and ready_s < self.window_end_s:
            connection = producer.connections[leaders[producer.partition]]
            is_held = producer.partition in held
            if connection.has_room and not connection.queue and not is_held:
                records = producer.records_by(ready_s)
                batch = producer.seal(records)
                connection.open_batch_waits = False
                self.account.late(now - ready_s, records, now)
                self._exchange.send(connection, [batch], now)
                continue
            waiting: Connection | Lane = connection
            if is_held or connection.closed:
                waiting = self._exchange.redelivery.hold(producer, producer.partition, now)
            if producer.full_s > now:
                waiting.open_batch_waits = True
                self._schedule(producer, producer.full_s)
                return
            self._put_by(producer, waiting)
            if producer.blocked:
                producer.scheduled_s = _NEVER
                return
        self._schedule(producer, producer.ready_s)

    def _put_by(self, producer: Producer, waiting: Connection | Lane) -> None:
        """Queue the full batch, which may block the producer."""
        batch = producer.seal(producer.full_records)
        waiting.queue.append(batch)
        waiting.open_batch_waits = False
        producer.buffered_bytes += batch.size
        producer.blocked = producer.buffered_bytes >= self._plan.pattern.buffer_memory


def client_id_of(plan: TrialPlan, index: int) -> str:
    """The client id of a producer, unique in the trial."""
    return f"redline-{plan.trial_id}-{index}"
