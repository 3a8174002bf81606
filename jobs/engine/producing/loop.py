"""The event loop that makes one task act as many producers.

The loop has one thread and one selector. The delivery (`jobs.engine.producing.delivery`) decides
what to send and when; the network client sends. The loop calls the delivery and the network client,
receives the driver's messages, and runs the phases of the load.

The module also has the schedules of producers in a growing load. The class `WireProducers` is the
engine's own producer client. This client sends batches that were encoded in advance.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from jobs.engine.batches.pool import BatchPool, pool_of
from jobs.engine.network.apis import apis_of_producers
from jobs.engine.network.connections import Connector
from jobs.engine.network.pacing import Key
from jobs.engine.network.transport import Transport
from jobs.engine.producing.account import Account, producer_report
from jobs.engine.producing.batch import ProducerIdState
from jobs.engine.producing.delivery import Delivery
from jobs.engine.producing.network_client import NetworkClient
from jobs.engine.producing.producer import Producer
from jobs.engine.producing.protocol import ProduceEncoder
from jobs.engine.producing.registration import Registration
from jobs.engine.producing.schedule import Schedule, schedule_for
from jobs.engine.producing.transactions import Transactions
from jobs.engine.task.client import AcknowledgedOffsets, connector_of
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from jobs.engine.task.window import Window
from metrics.traffic.profile import RateProfile
from metrics.trial.client import TaskReport

_ENDLESS_S = 1e9


def growing_schedule(
    plan: TrialPlan, index: int, start_s: float, last_step: int | None = None
) -> Schedule:
    """The schedule of a producer. In a growing load, the schedule begins with the step that adds
    this producer.

    In a growing load of a mix, the newest producer of each part may offer only a share of its rate.
    The share of the rate grows with each step of the load. A producer that begins with only a share
    of its rate sends without bursts.

    Args:
        start_s: start of the load, on the engine's clock [s].
        last_step: the step at which the load stops growing; None while the load grows.
    """
    if plan.climb is None:
        return schedule_for(plan.pattern, index, start_s)
    shares = plan.climb.shares(index, last_step)
    begin_s, first = shares[0]
    if first >= 1.0:
        return schedule_for(plan.pattern, index, start_s + begin_s)
    points, share = [(0.0, first)], first
    for at_s, later in shares[1:]:
        points += [(at_s - begin_s, share), (at_s - begin_s, later)]
        share = later
    growth = RateProfile("growth", (*points, (_ENDLESS_S, share)))
    return schedule_for(replace(plan.pattern, profile=growth), index, start_s + begin_s)


class GrowthEnd:
    """The end of a load's growth, which the driver decides during the load.

    Args:
        driver: control channel to the driver; None without a driver.
        plan: the plan of the load.
        start_s: start of the load, on the engine's clock [s].
    """

    def __init__(self, driver: DriverChannel | None, plan: TrialPlan, start_s: float) -> None:
        self._driver = driver
        self._plan = plan
        self._start_s = start_s

    def apply(self, producers: Iterable[Producer]) -> None:
        """End the growth of the load if the driver has set the end of the growth.

        Producers that have not begun are withdrawn. A producer whose present rate is only a share
        of its full rate continues at its present rate.
        """
        climb = self._plan.climb
        if self._driver is None or self._driver.climb_end_s is None or climb is None:
            return
        load_s, self._driver = self._driver.climb_end_s, None
        last_step = climb.step_at(load_s)
        for each in producers:
            share = climb.shares(each.index, last_step)[-1][1]
            if climb.start_s(each.index) > load_s:
                each.withdraw()
            elif share < 1.0:
                each.hold(growing_schedule(self._plan, each.index, self._start_s, last_step))
            elif each.due_s(0) > self._start_s + load_s:
                each.withdraw()


_ACTIONS_PER_TURN = 256
_CHECK_INTERVAL_S = 0.25
GATHER_S = 0.001
"""Time in which due batches and answers gather before they are handled together [s].

With small batches at a fixed rate, a wake-up costs as much as a request. The wait for more batches
and answers adds very little delay, because a selector rounds each timeout up to a millisecond."""

GATHER_UNSTAMPED_S = 0.0005
"""Time that replaces `GATHER_S` if the kernel does not stamp arrivals [s]. The time is less than
`GATHER_S`, because measured latencies include `GATHER_UNSTAMPED_S`."""

_SWITCH_INTERVAL_S = 0.0005
"""Python's switch interval during a load [s]; the default is 5 ms. A short interval limits the time
for which another thread, such as the sampler of the host, keeps Python's lock."""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep other work of the process from delaying the schedule.

    Garbage collection is off, because neither the load nor reopened connections make reference
    cycles. A short switch interval (`_SWITCH_INTERVAL_S`) limits how long other threads of the
    process can delay the thread of the schedule.
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
    """The producers of one task, from the first request to the last acknowledgement.

    Args:
        connector: opens lost connections again.

    Attributes:
        account: counts of the outcomes of all records.
        producers: the producers with their schedules.
    """

    def __init__(
        self,
        plan: TrialPlan,
        task: int,
        transports: Mapping[Key, Transport],
        pool: BatchPool,
        connector: Connector,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._task = task
        self._clock = clock
        self._next_check_s = clock() + _CHECK_INTERVAL_S
        self._network = NetworkClient(plan, connector, clock)
        self.producers: list[Producer] = []
        for index in plan.producers_of(task):
            self._add_producer(index, pool, transports)

    def _add_producer(
        self, index: int, pool: BatchPool, transports: Mapping[Key, Transport]
    ) -> None:
        plan, pattern = self._plan, self._plan.pattern.producer
        name, options = plan.producer_name(index), pattern.options
        duration_ms = options.transaction_duration_ms
        topic, partitions = plan.partitions.topic_of(index)
        producer = Producer(
            index,
            pattern,
            pool.section_of(index),
            partitions,
            growing_schedule(plan, index, math.inf),  # replaced when the load starts
            name,
            ProducerIdState() if options.enable_idempotence else None,
            None if duration_ms is None else Transactions(duration_ms / 1000.0),
        )
        producer.connect(plan.brokers, options.max_in_flight)
        encoder = ProduceEncoder(
            topic,
            plan.client_id(name),
            options.acks_code,
            options.request_timeout_ms,
            partitions.start,
            None if duration_ms is None else name,
        )
        self._network.add(producer.connections, encoder, transports)
        self.producers.append(producer)

    def register(self) -> None:
        """Get producer ids from the brokers; for transactions, from the coordinators.

        Raises:
            ProducerIdError: a broker refused, or did not answer in time.
        """
        now = self._clock()
        registration = Registration(self.producers, now, now + self._plan.connect_timeout_s)
        self._network.follow(registration)
        while not registration.is_over:
            now = self._clock()
            while (action := registration.next(now)) is not None:
                self._network.perform(action)
            wait_s = min(registration.next_s - now, _CHECK_INTERVAL_S)
            self._network.sockets.wait(max(0.0, wait_s))

    def run(
        self, start_s: float, wall_offset_s: float, driver: DriverChannel | None = None
    ) -> WireLoop:
        """Send from `start_s` on, through the warm-up and the windows, and then drain.

        A coordinator answers a commit before the markers of the transaction are in the logs, but
        end offsets include these markers. Producers with transactions therefore register again at
        the end of the load. The coordinators then abort open transactions, and answer when the
        markers of all transactions are in the logs.

        Args:
            start_s: start of the schedule, on this loop's clock [s].
            wall_offset_s: time since the epoch minus the time of this loop's clock [s].
            driver: channel to the driver, which can end the window early; None without a driver.

        Raises:
            OrphanedError: the parent process or the driver has ended, so the load ends.
            EndMissedError: the driver's message about the end of the window arrived too late.
            ProducerIdError: coordinators did not end the transactions in time.
        """
        plan, pattern = self._plan, self._plan.pattern.producer
        self._driver = driver
        window = Window.of(plan.pattern.phases, start_s, driver, plan.windows)
        self._wall_offset_s = self._network.wall_offset_s = wall_offset_s
        hosted = plan.producers_of(self._task)
        self.account = Account(window, pattern.record_interval_s, hosted, plan.brokers)
        self._delivery = Delivery(pattern, self.account, plan.leaders, plan.brokers)
        for producer in self.producers:
            producer.hold(growing_schedule(plan, producer.index, start_s))
            self._delivery.add(producer)
        self._network.follow(self._delivery)
        self._growth_end = GrowthEnd(driver, plan, start_s)
        self._watch = self._network.watch()
        try:
            with _undisturbed():
                self._run_phases()
            if pattern.options.has_transactions:
                self.register()
        finally:
            self.close()
        return self

    def close(self) -> None:
        """Close all connections; does nothing if they are closed."""
        self._network.close()

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

    def _measure(self) -> None:
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
            gather_s = 0.0
            if delivery.may_gather(now):
                gather_s = GATHER_S if network.sockets.are_stamped else GATHER_UNSTAMPED_S
            network.sockets.wait(max(0.0, wake_s - now), gather_s)

    def _check(self, now: float) -> None:
        account = self.account
        acked, written = account.counts.acked_records, account.acked_all
        account.window.check_in(now, acked, written, account.refused)
        self._growth_end.apply(self.producers)
        for connection in self._delivery.overdue_connections(now):
            self._network.sockets.lose(connection, "RequestTimedOutError")
        self._network.renew_sessions(now)
        self._delivery.expire(now)
        account.update_silence(self.producers, self._delivery.leaders, now)
        self._watch.look()


class WireProducers:
    """A `TaskClient` with one connection per producer and broker, and one event loop."""

    def __init__(self, plan: TrialPlan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._transports: Mapping[Key, Transport] = {}
        self._loop: WireLoop | None = None

    def open(self) -> None:
        """Connect, encode the pool, and get producer ids if producers are idempotent."""
        plan, task, options = self._plan, self._task, self._plan.pattern.producer.options
        names = [plan.producer_name(index) for index in plan.producers_of(task)]
        wanted = [(name, broker) for name in names for broker in plan.brokers]
        apis = apis_of_producers(options.enable_idempotence, options.has_transactions)
        connector = connector_of(plan, options, apis)
        self._transports = connector.open(wanted)
        pool = pool_of(plan.pattern.producer)
        self._loop = WireLoop(plan, task, self._transports, pool, connector)
        if options.enable_idempotence:
            self._loop.register()

    def run(
        self,
        start_s: float,
        wall_offset_s: float,
        driver: DriverChannel | None,
        acknowledged: AcknowledgedOffsets,
    ) -> TaskReport:
        """Send the load; see `TaskClient.run`."""
        assert self._loop is not None, "the client is open"
        loop = self._loop.run(start_s, wall_offset_s, driver)
        acknowledged.own_offsets = loop.account.offsets_total
        return producer_report(self._plan, self._task, loop.account, loop.producers, wall_offset_s)

    def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            transport.close()
        if self._loop is not None:
            self._loop.close()
