"""Account of one task's producers: their counts and times, in the measured window and in total.

The module also makes the report of a task with producers.
"""

from __future__ import annotations

import copy
import math
import socket
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from jobs.engine.batches.pool import pool_of
from jobs.engine.network.socket_watch import kernel_buffers
from jobs.engine.producing.producer import Producer
from jobs.engine.task.plan import TrialPlan
from jobs.engine.task.window import Window
from metrics.trial.adding import HIGHEST, Histogram, ProducerShares, SlicedTimes, slice_length_s
from metrics.trial.client import BrokerAccount, ConsumerReport, Counts, ProducerReport, TaskReport
from metrics.trial.sockets import SocketCounts

_CHUNK = 4_096
_POINTS = 4
_BINS = 1_024  # per doubling of the time: a precision of 0.1 %
_SLICE_BINS = 32  # per doubling: a precision of 3 %, so that a slice is a few dozen numbers
_DOUBLINGS = HIGHEST.bit_length() + 1


class TimeLog:
    """Log of the times of batches, such as latencies [s]. The method `fold` adds the logged times
    to the counts, which are a map time [µs] → number of records.

    The records of a batch were due at even intervals. The times of a batch's records therefore
    range from the time of the first record (the longest) down to the time of the last record. For
    each batch, the log counts four evenly spaced times from the longest to the shortest time. The
    counted times are exact for a batch of one record. In a batch of several records, the counted
    time of a record may be longer than its real time. The error is at most a third of the
    difference between the batch's longest and shortest times.

    Some thousand batches are folded together by a few calls of numpy, because a slower fold would
    delay the schedule. Histograms are made from the counts on demand.
    """

    def __init__(self, record_interval_s: float = 0.0) -> None:
        self._interval_us = record_interval_s * 1e6
        self._counts = np.zeros(_DOUBLINGS * _BINS)
        self._slices: dict[int, np.ndarray] = {}
        self._slice: np.ndarray | None = None
        self._seconds = array("d")
        self._records = array("q")

    @property
    def histogram(self) -> Histogram:
        """The histogram of all times so far [µs]."""
        self.fold()
        found = Histogram()
        for value, count in _times_of(self._counts, _BINS):
            found.record(value, count)
        return found

    @property
    def by_slice(self) -> dict[int, dict[int, int]]:
        """The times per slice, with less precision: slice → time [µs] → records."""
        self.fold()
        found: dict[int, dict[int, int]] = {}
        for number, counts in self._slices.items():
            by_time: Counter[int] = Counter()
            for value, count in _times_of(counts, _SLICE_BINS):
                by_time[round(value)] += count
            found[number] = dict(by_time)
        return found

    def add(self, seconds: float, records: int) -> None:
        """Add a batch with the time of its first record [s] and its number of records."""
        self._seconds.append(seconds)
        self._records.append(records)
        if len(self._seconds) >= _CHUNK:
            self.fold()

    def begin_slice(self, number: int) -> None:
        """Begin a slice, to which all later times belong."""
        self.fold()
        empty = np.zeros(_DOUBLINGS * _SLICE_BINS)
        self._slice = self._slices.setdefault(number, empty)

    def fold(self) -> None:
        """Fold the added times into the counts."""
        if not self._seconds:
            return
        first_us = np.frombuffer(self._seconds, dtype=np.float64) * 1e6
        records = np.frombuffer(self._records, dtype=np.int64)
        span_us = (records - 1) * self._interval_us
        share = records // _POINTS
        times_us = np.concatenate(
            [first_us - span_us * point / (_POINTS - 1) for point in range(_POINTS)]
        )
        weights = np.concatenate(
            [share if point else records - share * (_POINTS - 1) for point in range(_POINTS)]
        )
        mantissa, exponent = np.frexp(np.clip(times_us, 1.0, HIGHEST))
        for counts, bins in ((self._counts, _BINS), (self._slice, _SLICE_BINS)):
            if counts is not None:
                # A mantissa is at least 0.5, so the bins below 0.5 are left out.
                place = np.round(mantissa * (2 * bins)).astype(np.int64) - bins
                counts[:] += np.bincount((exponent - 1) * bins + place, weights, len(counts))
        self._seconds, self._records = array("d"), array("q")


def _times_of(counts: np.ndarray, bins: int) -> Iterator[tuple[float, int]]:
    """For each bin that is not empty, its time [µs] and its number of records."""
    (held,) = np.nonzero(counts)
    doublings, places = np.divmod(held, bins)
    times_us = np.ldexp((places + bins) / (2 * bins), doublings + 1)
    yield from zip(times_us.tolist(), map(int, counts[held].tolist()), strict=True)


class Account:
    """Account of the actions of one task's producers. Times are on the task's clock [s].

    Attributes:
        window: the measured window.
        counts: the counts of these producers.
        acked_in_window: producer → number of records acknowledged in the measured window.
        last_acked_s: time of the latest acknowledgement; None before the first.
        sockets: broker id → counts of the sockets to the broker, set at the end of the window.
        log_bytes: size of the batches that were acknowledged in this window [B].
        slice_s: length of one slice of the window [s]. Latencies are also counted separately for
            each slice.
        refused: number of error codes in produce responses, in this window and all earlier ones.
        answered_s: broker id → time of the broker's last answer; with acks=0, time at which the
            last request was written to the broker's socket.
    """

    def __init__(
        self,
        window: Window,
        interval_s: float,
        producers: Iterable[int] = (),
        brokers: Iterable[int] = (),
    ) -> None:
        self._interval_s = interval_s
        self._before: Counter[int] = Counter()
        self._acked_before = 0
        self.refused = 0
        self.answered_s: dict[int, float] = {}
        self._producers = tuple(producers)
        self._brokers = tuple(brokers)
        self._begin(window)

    def _begin(self, window: Window) -> None:
        self.window = window
        self.counts = Counts()
        hosted = dict.fromkeys(self._producers, 0)
        self.counts.by_producer.sent.update(hosted)
        self.counts.by_producer.acked.update(hosted)
        self.counts.by_broker.update((broker, BrokerAccount()) for broker in self._brokers)
        self.acked_in_window: Counter[int] = Counter()
        self.last_acked_s: float | None = None
        self.log_bytes = 0
        self.sockets: dict[int, SocketCounts] = {}
        # Shortcuts to counts that change with every batch.
        self._sent_to, self._sent_by = self.counts.sent_by_partition, self.counts.by_producer.sent
        self._acked_at = self.counts.acked_by_partition
        self._acked_of = self.counts.by_producer.acked
        self.latency = TimeLog(self._interval_s)
        self.lateness = TimeLog()
        self.slice_s = slice_length_s(window.duration_s)
        self._slice_end_s = -math.inf  # because the window can begin earlier than planned

    def begin_window(self, following: Window) -> Account:
        """Begin the following window; return the account of the window that has ended."""
        over = copy.copy(self)
        self._before.update(self._offsets)
        self._acked_before += self.counts.acked_total
        self._begin(following)
        return over

    @property
    def offsets_total(self) -> Counter[int]:
        """Partition → lower bound of the number of offsets that the task's producers used in the
        partition's log, in all windows until now. Each acknowledged record and each transaction
        marker uses one offset.
        """
        return self._before + self._offsets

    @property
    def _offsets(self) -> Counter[int]:
        counts = self.counts
        return Counter(counts.acked_by_partition) + Counter(counts.control_records_by_partition)

    @property
    def acked_all(self) -> int:
        """Number of records acknowledged in this window and all earlier ones."""
        return self._acked_before + self.counts.acked_total

    def count_request(self, broker: int, now: float) -> None:
        """Count a produce request that was written to a socket."""
        if self.window.holds(now):
            self.counts.by_broker[broker].requests += 1

    def count_sent(self, producer: int, partition: int, records: int, now: float) -> None:
        """Count a batch that is sent for the first time."""
        self._sent_to[partition] += records
        self._sent_by[producer] += records
        if self.window.holds(now):
            self.counts.sent_records += records

    def count_late(self, lateness_s: float, records: int, now: float) -> None:
        """Count a batch that was sent `lateness_s` [s] too late, only because of the generator."""
        if self.window.holds(now):
            self.lateness.add(lateness_s, records)

    def count_acked(
        self,
        producer: int,
        partition: int,
        first_due_s: float,
        records: int,
        payload_bytes: int,
        now: float,
    ) -> None:
        """Count an acknowledged batch, whose first record was due at `first_due_s`."""
        self._acked_at[partition] += records
        self._acked_of[producer] += records
        self.last_acked_s = now
        if self.window.holds(now):
            counts = self.counts
            counts.acked_records += records
            counts.acked_bytes += payload_bytes
            self.acked_in_window[producer] += records
            if now >= self._slice_end_s:
                number = int((now - self.window.start_s) // self.slice_s)
                self.latency.begin_slice(number)
                self._slice_end_s = self.window.start_s + (number + 1) * self.slice_s
            self.latency.add(now - first_due_s, records)

    def count_failed(
        self,
        producer: int,
        partition: int,
        error: str,
        records: int,
        now: float,
        broker: int | None = None,
    ) -> None:
        """Count failed records of a partition.

        Args:
            error: name of the error.
            broker: id of the partition's leader; None if it is unknown.
        """
        counts = self.counts
        counts.errors_by_partition[partition][error] += records
        counts.by_producer.failed[producer][error] += records
        if self.window.holds(now):
            counts.failed_records += records
            if broker is not None:
                counts.by_broker[broker].missing_records += records

    def count_retried(self, producer: int, partition: int, error: str, records: int) -> None:
        """Count a batch that is sent to its partition again, because of the error with this
        name.
        """
        counts = self.counts
        counts.retried_by_partition[partition] += records
        counts.by_producer.retried[producer] += records
        counts.retry_errors[error] += records

    def count_duplicates(self, producer: int, partition: int, records: int) -> None:
        """Count the surplus copies of records that the log may have. One copy of each record is not
        surplus: it is already counted as acknowledged or failed.
        """
        self.counts.duplicates_by_partition[partition] += records
        self.counts.by_producer.duplicates[producer] += records

    def count_commit(self, partitions: Iterable[int], commit_s: float, now: float) -> None:
        """Count a committed transaction with these partitions. The commit took `commit_s` [s]."""
        self._count_control_records(partitions)
        if self.window.holds(now):
            self.counts.transactions_committed += 1
            self.counts.commit_s += commit_s

    def count_abort(self, partitions: Iterable[int], records: int) -> None:
        """Count an aborted transaction with these partitions and `records` acknowledged records."""
        self._count_control_records(partitions)
        self.counts.transactions_aborted += 1
        self.counts.aborted_records += records

    def update_silence(
        self, producers: Iterable[Producer], leaders: Sequence[int], now: float
    ) -> None:
        """Update the longest silence of each broker that must still answer a request. The caller
        must call this method several times per second.
        """
        awaited: set[int] = set()
        for producer in producers:
            awaited.update(leaders[partition] for partition in producer.queues)
            for broker, connection in producer.connections.items():
                if broker not in awaited and (connection.in_flight or connection.has_successor):
                    awaited.add(broker)
        at_s = min(now, self.window.end_s)
        for broker, account in self.counts.by_broker.items():
            if broker not in awaited:
                self.answered_s[broker] = at_s  # no request waits for this broker
            since_s = max(self.answered_s.get(broker, 0.0), self.window.start_s)
            account.silent_s = max(account.silent_s, at_s - since_s)

    def end_window(self, producers: Sequence[Producer], leaders: Sequence[int], now: float) -> None:
        """End the window: count the records that are still missing."""
        self.update_silence(producers, leaders, now)
        end_s, by_broker = self.window.end_s, self.counts.by_broker
        for producer in producers:
            waiting = _records_waiting(producer, leaders)
            for broker in waiting:
                by_broker[broker].waiting_connections += 1
            # A blocked producer is blocked by the broker with most of its waiting records.
            at = max(waiting, key=waiting.__getitem__) if producer.blocked and waiting else None
            due = producer.records_due_between(producer.due_s(producer.opened), end_s)
            leader = leaders[producer.partition]
            waiting[leader if at is None else at] += due
            for broker, records in waiting.items():
                by_broker[broker].missing_records += records
            self.counts.unsent_own_records += producer.own_backlog(leader, end_s)

    def _count_control_records(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self.counts.control_records_by_partition[partition] += 1


def _records_waiting(producer: Producer, leaders: Sequence[int]) -> Counter[int]:
    """Broker id → number of records in sealed batches that are not acknowledged yet. Brokers
    without such records are left out.
    """
    found = Counter[int]()
    for broker, connection in producer.connections.items():
        found[broker] += sum(batch.records for batch in connection.batches_in_flight)
    for partition, queue in producer.queues.items():
        found[leaders[partition]] += sum(batch.records for batch in queue.batches)
    return +found


def window_report(
    task: int,
    window: Window,
    wall_offset_s: float,
    produced: ProducerReport | None = None,
    consumed: ConsumerReport | None = None,
) -> TaskReport:
    """The report of a task for a window.

    Args:
        wall_offset_s: time since the epoch minus the time of the engine's clock [s].
    """
    begin_s = window.start_s + wall_offset_s
    end_s, host, buffers = begin_s + window.duration_s, socket.gethostname(), kernel_buffers()
    return TaskReport(task, host, begin_s, end_s, produced, consumed, kernel_buffers=buffers)


def producer_report(
    plan: TrialPlan,
    task: int,
    account: Account,
    producers: Iterable[Producer],
    wall_offset_s: float,
) -> TaskReport:
    """The report of a task with producers.

    Args:
        account: the account of a window that has ended.
        producers: the producers, with their schedules.
        wall_offset_s: time since the epoch minus the time of the engine's clock [s].
    """
    pool, counts, window = pool_of(plan.pattern.producer), account.counts, account.window
    due = {}
    for each in producers:
        due[each.index] = each.records_due_between(window.start_s, window.end_s)
        whole = each.records_due_between(window.since_s, window.end_s)
        counts.by_producer.offered[each.index] = whole
    counts.offered_records = sum(due.values())
    counts.offered_bytes = round(counts.offered_records * pool.mean_payload_bytes)
    if counts.by_broker:
        counts.log_bytes = account.log_bytes
    counts.compression_ratio = pool.compression_ratio
    if account.last_acked_s is not None:
        counts.last_acked_s = account.last_acked_s - window.start_s
    shares = ProducerShares.of(
        (index, account.acked_in_window[index], records) for index, records in due.items()
    )
    produced = ProducerReport(
        counts,
        account.latency.histogram,
        account.lateness.histogram,
        shares,
        account.sockets,
        SlicedTimes(account.slice_s, account.latency.by_slice),
    )
    return window_report(task, window, wall_offset_s, produced)
