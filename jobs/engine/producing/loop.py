"""The event loop that makes one task act as many producers.

It has one thread and one selector. The delivery (`jobs.engine.producing.delivery`) decides what to
send and when to look again; the network client carries it out. The loop calls both, receives the
driver's messages, and takes the load through its phases.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from jobs.engine.batches.pool import BatchPool
from jobs.engine.network.connections import SocketBuffers, open_connections
from jobs.engine.network.pacing import Key
from jobs.engine.network.reopening import Opener, Reopener
from jobs.engine.network.transport import Transport
from jobs.engine.producing.account import Account
from jobs.engine.producing.control_requests import Registered
from jobs.engine.producing.delivery import Delivery
from jobs.engine.producing.growth import GrowthEnd, growing_schedule
from jobs.engine.producing.metadata import Metadata
from jobs.engine.producing.network_client import NetworkClient
from jobs.engine.producing.producer import Producer
from jobs.engine.producing.producer_id import ProducerIdState
from jobs.engine.producing.producer_report import producer_report
from jobs.engine.producing.protocol import ProduceEncoder
from jobs.engine.producing.transactions import Transactions
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from jobs.engine.task.window import Window

_ACTIONS_PER_TURN = 256
_CHECK_INTERVAL_S = 0.25
GATHER_S = 0.001
"""Time in which batches become due and answers arrive that are then handled together [s].

At the small batches of a fixed rate, a wake-up costs as much as a request. A selector rounds its
timeouts up to a millisecond anyway, so batches leave hardly later than without it."""

GATHER_UNSTAMPED_S = 0.0005
"""The same where the kernel does not note when an answer arrived, so that it counts as late [s]."""

_SWITCH_INTERVAL_S = 0.0005
"""Longest turn of another thread of this process, such as the one that samples the host, while this
thread waits for Python's lock; Python's default is 5 ms [s]."""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the schedule from stalling: without garbage collection, as no cycles are made here, and
    without long turns of other threads.
    """
    was_enabled, interval_s = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        if was_enabled:
            gc.enable()


class WireLoop:
    """The producers of one task, from their first record to the last acknowledgement.

    Args:
        driver: channel to the driver, which may end the window early; None without a driver.
        producer_ids: client id → producer id of idempotent producers; with transactions, what
            their coordinators registered.
        opener: opens lost connections again; may block, as a thread of its own calls it.

    Attributes:
        account: counts of what became of every record.
    """

    def __init__(
        self,
        plan: TrialPlan,
        task: int,
        transports: Mapping[Key, Transport],
        pool: BatchPool,
        clock: Callable[[], float] = time.monotonic,
        driver: DriverChannel | None = None,
        producer_ids: Mapping[str, int | Registered] | None = None,
        opener: Opener | None = None,
    ) -> None:
        self._producer_ids = producer_ids or {}
        self._opener = opener or opener_of(plan)
        self._plan = plan
        self._driver = driver
        self._task = task
        self._transports = transports
        self._pool = pool
        self._clock = clock
        self._next_check_s = clock() + _CHECK_INTERVAL_S

    @property
    def producers(self) -> list[Producer]:
        """The producers with their schedules."""
        return self._delivery.producers

    def run(self, start_s: float, wall_offset_s: float) -> WireLoop:
        """Send from `start_s` on, through warm-up and windows, then drain.

        Args:
            start_s: when the schedule begins, on this loop's clock [s].
            wall_offset_s: what to add to this clock for seconds since the epoch.

        Raises:
            OrphanedError: the parent process or the driver is gone; nothing more is sent.
            EndMissedError: the driver's end of the window came too late.
        """
        plan, pattern = self._plan, self._plan.pattern.producer
        window = Window.of(plan.pattern.phases, start_s, self._driver, plan.windows)
        self._wall_offset_s = wall_offset_s
        hosted = plan.producers_of(self._task)
        self.account = Account(window, pattern.record_interval_s, hosted)
        metadata = Metadata(plan.leaders, plan.brokers, pattern.options)
        self._delivery = Delivery(pattern, self.account, metadata)
        self._network = NetworkClient(
            self._delivery,
            self._pool,
            plan.partitions,
            Reopener(self._opener),
            self._clock,
            wall_offset_s,
            pattern.options.acks != "0",
            pattern.options.transaction_timeout_ms,
        )
        for index in hosted:
            self._add_producer(index, start_s)
        self._growth_end = GrowthEnd(self._driver, plan, start_s)
        self._watch = self._network.watch()
        with _undisturbed():
            try:
                self._run_phases()
            finally:
                self._network.close()
        return self

    def _add_producer(self, index: int, start_s: float) -> None:
        plan, pattern = self._plan, self._plan.pattern.producer
        name = plan.producer_name(index)
        id_state, transactions = self._identity_of(name)
        topic, partitions = plan.partitions.topic_of(index)
        producer = Producer(
            index,
            pattern,
            self._pool.section_of(index),
            partitions,
            growing_schedule(plan, index, start_s),
            name,
            id_state,
            transactions,
        )
        options = pattern.options
        encoder = ProduceEncoder(
            topic,
            plan.client_id(name),
            options.acks_code,
            options.request_timeout_ms,
            partitions.start,
            None if transactions is None else name,
        )
        self._delivery.add(producer, plan.brokers)
        self._network.add(producer.connections, encoder, self._transports)

    def _identity_of(self, name: str) -> tuple[ProducerIdState | None, Transactions | None]:
        """The producer id that brokers gave this producer, and its transactions."""
        duration_ms = self._plan.pattern.producer.options.transaction_duration_ms
        known = self._producer_ids.get(name)
        if isinstance(known, Registered):
            assert duration_ms is not None, "only transactions have a coordinator"
            transactions = Transactions(known.coordinator, duration_ms / 1000.0)
            return ProducerIdState(known.producer_id, known.epoch), transactions
        return None if known is None else ProducerIdState(known), None

    def _run_phases(self) -> None:
        account, delivery = self.account, self._delivery
        self._turn_until(lambda: account.window.start_s)
        self._measure()
        while (following := account.window.following()) is not None:
            over = delivery.begin_window(following, self._clock())
            if self._driver is not None:
                report = producer_report(
                    self._plan, self._task, over, self.producers, self._wall_offset_s
                )
                self._driver.send_window(over.window.number, report)
            self._measure()
        delivery.close(self._clock())
        drain_s = self._plan.pattern.phases.drain_timeout_s
        self._turn_until(lambda: account.window.end_s + drain_s)
        delivery.end(self._clock())
        account.counts.log_bytes = delivery.log_bytes
        account.close()

    def _measure(self) -> None:
        """Run the window."""
        account, sockets = self.account, self._network.sockets
        window = account.window
        cpu_s, waited_s = time.thread_time(), sockets.waited_s
        self._watch.begin()
        self._turn_until(lambda: window.end_s)
        account.sockets = self._watch.end(window.duration_s)
        account.counts.cpu_s = time.thread_time() - cpu_s
        account.counts.loop_busy = 1.0 - (sockets.waited_s - waited_s) / window.duration_s

    def _turn_until(self, phase_end_s: Callable[[], float]) -> None:
        clock, delivery, network = self._clock, self._delivery, self._network
        while (now := clock()) < (end_s := phase_end_s()) and delivery.has_work:
            for _ in range(_ACTIONS_PER_TURN):
                action = delivery.next(now)
                if action is None:
                    break
                network.perform(action)
                now = clock()
                if now >= end_s:
                    break
            if now >= self._next_check_s:
                self._check(now)
                self._next_check_s = now + _CHECK_INTERVAL_S
            wake_s = min(end_s, self._next_check_s, delivery.next_s)
            network.sockets.wait(max(0.0, wake_s - now), self._gather_s(now))

    def _gather_s(self, now: float) -> float:
        """Time in which events may gather now [s]."""
        if not self._delivery.may_gather(now):
            return 0.0
        return GATHER_S if self._network.sockets.are_stamped else GATHER_UNSTAMPED_S

    def _check(self, now: float) -> None:
        account = self.account
        acked, written = account.counts.acked_records, account.acked_all
        account.window.check_in(now, acked, written, account.refused)
        self._growth_end.apply(self.producers)
        for connection in self._delivery.overdue_connections(now):
            self._network.lose(connection, "RequestTimedOutError")
        self._network.renew_sessions(now)
        self._delivery.expire(now)
        self._delivery.update_silence(now)
        self._watch.look()


def opener_of(plan: TrialPlan) -> Opener:
    """An opener of connections with the options of this plan's producers."""
    options = plan.pattern.producer.options
    buffers = SocketBuffers(options.send_buffer_bytes, options.receive_buffer_bytes)

    def opener(wanted: Sequence[Key]) -> Mapping[Key, Transport]:
        options = dict(plan.client_options)
        return open_connections(wanted, plan.brokers, options, plan.connect_timeout_s, buffers)

    return opener
