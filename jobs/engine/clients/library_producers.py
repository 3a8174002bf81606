"""Producers of a client library, which follow the schedule of the engine's own producers.

The library receives the records one by one. The intended times, sticky partitions and payloads of
the records are the same as in the engine's own producers. If the library has no room for a record
in an open loop, the record stays due, and its latency counts from the intended time. In a closed
loop, latency counts from the time at which the library accepts the record. A library makes its own
batches. The engine chooses the partition of each record, because libraries change the sticky
partition at different times.
"""

from __future__ import annotations

import functools
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from kafka.record.default_records import DefaultRecordBatch

from jobs.engine.batches.pool import pool_of
from jobs.engine.clients.library import NEVER_SENT, LibraryProducer, Record
from jobs.engine.producing.account import Account, producer_report
from jobs.engine.producing.batch import UNACKNOWLEDGED
from jobs.engine.producing.loop import GrowthEnd, growing_schedule
from jobs.engine.producing.producer import Producer
from jobs.engine.task.client import AcknowledgedOffsets, connector_of
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from jobs.engine.task.window import Window
from metrics.traffic.clients import ProducerPattern
from metrics.trial.client import TaskReport

RECORDS_MAX = 50_000
"""Number of distinct records that are prepared for one producer of a client library, rounded up to
full batches."""

_RECORDS_PER_TURN = 200
_CHECK_INTERVAL_S = 0.25
_NAP_MIN_S = 0.0005  # shorter sleeps would waste CPU time on wake-ups
_NAP_MAX_S = 0.002  # a library reports free room and acknowledgements only when it is polled

Outcome = tuple[int, float, int, str | None]
"""Outcome of a record that a library accepted: (partition, due time [s], size [B], name of the
error or None for an acknowledged record)."""


class LibrarySender:
    """One producer: its schedule, its library instance, and its unsettled records.

    Attributes:
        offered: number of records that the library has accepted.
        unsettled_bytes: size of the accepted records without an outcome [B].
        unsettled: partition → number of accepted records without an outcome.
        blocked: whether the library had no room for the next record.
    """

    def __init__(
        self, schedule: Producer, library: LibraryProducer, records: Sequence[Record]
    ) -> None:
        self.schedule = schedule
        self.library = library
        self.offered = 0
        self.unsettled: Counter[int] = Counter()
        self.unsettled_bytes = 0
        self.blocked = False
        self.outcomes: deque[Outcome] = deque()  # the library's threads append to it
        self._records = records
        self._first = schedule.index * 7919 % len(records)
        self._batch_end = schedule.records_by(schedule.ready_s)

    @property
    def next_due_s(self) -> float:
        """Time at which the next record is due [s]."""
        return self.schedule.due_s(self.offered)

    def offer(self, wall_offset_s: float, room_bytes: int, now: float) -> bool:
        """Offer the next record to the library; False if the library has no room."""
        schedule = self.schedule
        due_s = now if schedule.closed_loop else self.next_due_s
        if self.offered >= self._batch_end:
            records = self._batch_end - schedule.opened
            schedule.seal(records, now)
            self._batch_end = schedule.opened + schedule.records_by(schedule.ready_s)
        record = self._records[(self._first + self.offered) % len(self._records)]
        size = len(record[0] or b"") + len(record[1] or b"")
        partition = schedule.partition
        self.blocked = self.unsettled_bytes + size > room_bytes and self.unsettled_bytes > 0
        if self.blocked:
            return False
        settled = functools.partial(self._settle, partition, due_s, size)
        timestamp_ms = int((due_s + wall_offset_s) * 1000)
        self.blocked = not self.library.offer(partition, record, timestamp_ms, settled)
        if self.blocked:
            return False
        self.offered += 1
        self.unsettled[partition] += 1
        self.unsettled_bytes += size
        return True

    def _settle(self, partition: int, due_s: float, size: int, error: str | None) -> None:
        self.outcomes.append((partition, due_s, size, error))


class LibraryLoop:
    """The event loop of one task's producers that use a client library."""

    def __init__(
        self,
        plan: TrialPlan,
        task: int,
        libraries: Sequence[LibraryProducer],
        clock: Callable[[], float] = time.monotonic,
        driver: DriverChannel | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._plan = plan
        self._driver = driver
        self._clock = clock
        self._sleep = sleep
        self._slept_s = 0.0
        self._next_check_s = clock() + _CHECK_INTERVAL_S
        self._hosted = dict(zip(plan.producers_of(task), libraries, strict=True))
        self._senders: list[LibrarySender] = []
        self.producers: list[Producer] = []

    def run(self, start_s: float, wall_offset_s: float) -> LibraryLoop:
        """Offer the load, as `WireLoop.run` does."""
        plan, pattern = self._plan, self._plan.pattern.producer
        window = Window.of(plan.pattern.phases, start_s, self._driver)
        self.account = Account(window, pattern.record_interval_s, self._hosted)
        self._wall_offset_s = wall_offset_s
        self._growth_end = GrowthEnd(self._driver, plan, start_s)
        pool, records = pool_of(pattern), records_of(pattern)
        for index, library in self._hosted.items():
            times = growing_schedule(plan, index, start_s)
            _topic, partitions = plan.partitions.topic_of(index)
            schedule = Producer(index, pattern, pool.section_of(index), partitions, times)
            self.producers.append(schedule)
            self._senders.append(LibrarySender(schedule, library, records))
        self._turn_until(lambda: window.start_s)
        cpu_s, slept_s = time.process_time(), self._slept_s
        self._turn_until(lambda: window.end_s)
        counts = self.account.counts
        counts.cpu_s = time.process_time() - cpu_s
        counts.loop_busy = 1.0 - (self._slept_s - slept_s) / window.duration_s
        counts.unsent_own_records = sum(
            each.schedule.records_due_between(each.next_due_s, window.end_s)
            for each in self._senders
            if not each.blocked
        )
        self._drain()
        return self

    def _turn_until(self, end_s: Callable[[], float]) -> None:
        while (now := self._clock()) < end_s():
            for sender in self._senders:
                self._advance(sender, now)
            self._check()
            self._nap(end_s())

    def _advance(self, sender: LibrarySender, now: float) -> None:
        account = self.account
        until_s = min(now, account.window.end_s)
        for _ in range(_RECORDS_PER_TURN):
            due_s = sender.next_due_s
            if due_s > until_s:
                return
            was_blocked = sender.blocked
            if not sender.offer(
                self._wall_offset_s, self._plan.pattern.producer.options.buffer_memory, now
            ):
                return
            account.count_sent(sender.schedule.index, sender.schedule.partition, 1, now)
            if not was_blocked and not sender.schedule.closed_loop:
                account.count_late(now - due_s, 1, now)

    def _check(self) -> None:
        """Handle outcomes; at intervals, report progress and apply the driver's decisions."""
        for sender in self._senders:
            sender.library.serve()
            self._settle(sender)
        now = self._clock()
        if now < self._next_check_s:
            return
        self._next_check_s = now + _CHECK_INTERVAL_S
        account = self.account
        account.window.check_in(now, account.counts.acked_records, account.acked_all)
        self._growth_end.apply(self.producers)

    def _settle(self, sender: LibrarySender) -> None:
        now, account, producer = self._clock(), self.account, sender.schedule.index
        while sender.outcomes:
            partition, due_s, size, error = sender.outcomes.popleft()
            sender.unsettled[partition] -= 1
            sender.unsettled_bytes -= size
            if error is None:
                account.count_acked(producer, partition, due_s, 1, size, now)
            elif error != NEVER_SENT:
                account.count_failed(producer, partition, error, 1, now)

    def _nap(self, end_s: float) -> None:
        due_s = min((s.next_due_s for s in self._senders if not s.blocked), default=end_s)
        began_s = self._clock()
        if due_s <= began_s:
            return
        self._sleep(min(max(min(due_s, end_s) - began_s, _NAP_MIN_S), _NAP_MAX_S))
        self._slept_s += self._clock() - began_s

    def _drain(self) -> None:
        deadline_s = self.account.window.end_s + self._plan.pattern.phases.drain_timeout_s
        for sender in self._senders:
            sender.library.end()
        while any(any(s.unsettled.values()) for s in self._senders) and self._clock() < deadline_s:
            self._check()
            self._sleep(_NAP_MIN_S)
        now, account = self._clock(), self.account
        for sender in self._senders:
            for partition, records in sender.unsettled.items():
                if records:
                    index = sender.schedule.index
                    account.count_failed(index, partition, UNACKNOWLEDGED, records, now)
            account.counts.throttle_ms += sender.library.throttle_ms


@functools.lru_cache(maxsize=2)
def records_of(pattern: ProducerPattern) -> tuple[Record, ...]:
    """The records of the engine's pool, one by one."""
    pool = pool_of(pattern)
    records: list[Record] = []
    for section in pool.sections:
        if len(records) >= RECORDS_MAX:
            break
        header, body = section.batch_of(section.full_records, 0)
        batch = DefaultRecordBatch(bytes(header) + bytes(body))
        records.extend((record.key, record.value, list(record.headers)) for record in batch)
    return tuple(records)


class LibraryProducers:
    """A `TaskClient` with one library instance per producer.

    Args:
        make: function that makes and connects one producer of the library, from the plan and the
            producer's index.
    """

    def __init__(
        self, plan: TrialPlan, task: int, make: Callable[[TrialPlan, int], LibraryProducer]
    ) -> None:
        self._plan = plan
        self._task = task
        self._make = make
        self._libraries: list[LibraryProducer] = []

    def open(self) -> None:
        """Check that all brokers accept connections; make all producers and their records."""
        plan = self._plan
        # A library retries up to its time limit, and then reports no cause.
        wanted = [(f"redline-{plan.trial_id}-look", broker) for broker in plan.brokers]
        connector = connector_of(plan, plan.pattern.producer.options, ())
        for transport in connector.open(wanted).values():
            transport.close()
        for index in plan.producers_of(self._task):
            self._libraries.append(self._make(plan, index))
        records_of(plan.pattern.producer)  # fills the cache before the load

    def run(
        self,
        start_s: float,
        wall_offset_s: float,
        driver: DriverChannel | None,
        acknowledged: AcknowledgedOffsets,
    ) -> TaskReport:
        """Offer the load; see `TaskClient.run`."""
        plan, task = self._plan, self._task
        loop = LibraryLoop(plan, task, self._libraries, driver=driver)
        loop.run(start_s, wall_offset_s)
        acknowledged.own_offsets = loop.account.offsets_total
        return producer_report(plan, task, loop.account, loop.producers, wall_offset_s)

    def close(self) -> None:
        """Close all library producers."""
        while self._libraries:
            self._libraries.pop().close()
