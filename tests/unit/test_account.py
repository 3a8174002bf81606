"""Counts of the window, and histograms of times."""

from __future__ import annotations

import math
import random

import pytest

from jobs.engine.producing.account import Account, TimeLog
from jobs.engine.task.window import Window
from metrics.trial.adding import SLICES_MAX, SlicedTimes, latency_slices, slice_length_s
from tests.support.interpreter_steps import steps_of


def test_single_records_keep_three_digits() -> None:
    log, rng = TimeLog(), random.Random(1)
    times = [rng.lognormvariate(-5, 1) for _ in range(40_000)]
    for seconds in times:
        log.add(seconds, 1)
    log.fold()
    times.sort()
    for percentile in (50, 95, 99, 99.9):
        exact_us = times[math.ceil(len(times) * percentile / 100) - 1] * 1e6
        assert log.histogram.quantile(percentile) == pytest.approx(exact_us, rel=0.004)
    assert log.histogram.count == len(times)


def test_records_of_a_batch_count_from_their_own_due_time() -> None:
    log = TimeLog(record_interval_s=0.001)
    log.add(0.100, 100)  # the first record waited 100 ms, the last 1 ms
    log.fold()
    assert log.histogram.count == 100
    assert log.histogram.quantile(100) == pytest.approx(100_000, rel=0.01)
    assert log.histogram.quantile(0) == pytest.approx(1_000, rel=0.01)
    assert log.histogram.quantile(50) >= 34_000 - 100


def test_a_fold_takes_as_many_steps_for_thousands_of_batches_as_for_ten() -> None:
    # A fold delays the schedule, so it must not count batches one by one.
    def steps_of_a_fold(batches: int) -> int:
        log = TimeLog(record_interval_s=0.001)
        log.begin_slice(1)
        for number in range(batches):
            log.add(0.001 * (1 + number % 50), 1 + number % 7)
        steps = steps_of(log.fold)
        assert log.histogram.count == sum(1 + number % 7 for number in range(batches))
        return steps

    assert steps_of_a_fold(2_000) <= 1.1 * steps_of_a_fold(500)


def test_only_the_window_counts_and_the_total_counts_all() -> None:
    account = Account(Window(10.0, 20.0), 0.001)
    for now in (9.9, 10.0, 19.9, 20.0):
        account.count_sent(7, 3, 1, now)
        account.count_acked(7, 3, now - 0.5, 2, 200, now)
        account.count_failed(7, 3, "NotLeader", 4, now)
    account.count_abort([3], 5)
    account.count_abort([3, 4], 2)
    counts = account.counts
    assert (counts.sent_records, counts.acked_records, counts.failed_records) == (2, 4, 8)
    assert (counts.acked_total, counts.failed_total, counts.acked_bytes) == (8, 16, 400)
    assert (counts.sent_by_partition, counts.acked_by_partition) == ({3: 4}, {3: 8})
    assert counts.errors == {"NotLeader": 16}
    assert counts.errors_by_partition == {3: {"NotLeader": 16}}
    assert (counts.transactions_aborted, counts.aborted_records) == (2, 7)
    assert counts.control_records_by_partition == {3: 2, 4: 1}
    assert account.acked_in_window == {7: 4}
    assert account.latency.histogram.count == 4


def test_each_producer_has_its_account_beside_that_of_the_partitions() -> None:
    account = Account(Window(10.0, 20.0), 0.001, [7, 8])
    account.count_sent(7, 3, 5, 15.0)
    account.count_acked(7, 3, 14.5, 2, 200, 15.0)
    account.count_failed(7, 3, "NotLeader", 1, 15.0)
    account.count_retried(7, 3, "TimedOut", 4)
    account.count_duplicates(7, 3, 4)
    counts, by_producer = account.counts, account.counts.by_producer
    assert (by_producer.sent, by_producer.acked) == ({7: 5, 8: 0}, {7: 2, 8: 0})
    assert by_producer.failed == {7: {"NotLeader": 1}}, "only of those that have some"
    assert (by_producer.retried, by_producer.duplicates) == ({7: 4}, {7: 4})
    assert (counts.retried_by_partition, counts.retry_errors) == ({3: 4}, {"TimedOut": 4})
    assert (counts.duplicates_by_partition, counts.duplicates_at_most) == ({3: 4}, 4)


def test_latency_is_kept_second_by_second_as_answers_come() -> None:
    account = Account(Window(10.0, 14.0), 0.0)
    for now, latency_s, records in (
        (9.5, 9.0, 1),  # before the window
        (10.0, 0.010, 3), (10.9, 0.010, 4), (11.2, 0.100, 5), (13.99, 2.0, 1), (14.0, 9.0, 1),
    ):  # fmt: skip
        account.count_acked(0, 0, now - latency_s, records, 1, now)
    slices = latency_slices(SlicedTimes(account.slice_s, account.latency.by_slice), 3.99)
    assert [(each.start_s, each.length_s, each.records) for each in slices] == [
        (0.0, 1.0, 7), (1.0, 1.0, 5), (3.0, pytest.approx(0.99), 1),
    ], "none for the second without an answer, and the last one as long as the window"  # fmt: skip
    assert [each.p99_ms for each in slices] == pytest.approx([10, 100, 2000], rel=0.02)
    assert [each.p50_ms for each in slices] == pytest.approx([10, 100, 2000], rel=0.02)
    assert account.latency.histogram.count == 13, "and the whole window's as before"


def test_a_window_of_hours_has_no_more_slices_than_one_of_minutes() -> None:
    account = Account(Window(0.0, 36_000.0), 0.0)
    for second in range(0, 36_000, 7):
        account.count_acked(0, 0, second - 0.1, 1, 1, float(second))
    assert len(account.latency.by_slice) == SLICES_MAX
    assert account.slice_s == 300
    assert [slice_length_s(each) for each in (0.5, 10, 120, 121)] == [1, 1, 1, 2]
    account = Account(Window(10.0, 12.0, left=1), 0.0)
    account.count_acked(0, 0, 11.4, 1, 1, 11.5)
    following = account.window.following()
    assert following is not None
    over = account.begin_window(following)
    account.count_acked(0, 0, 12.4, 1, 1, 12.5)
    slices = (list(over.latency.by_slice), list(account.latency.by_slice))
    assert slices == ([1], [0]), "the window that follows has slices of its own"
