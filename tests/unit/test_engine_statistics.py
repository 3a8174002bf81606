"""Counts of the window, and histograms of times."""

from __future__ import annotations

import math
import random

import pytest

from jobs.engine.statistics import Account, TimeLog


def test_single_records_keep_three_digits() -> None:
    log, rng = TimeLog(), random.Random(1)
    times = [rng.lognormvariate(-5, 1) for _ in range(40_000)]
    for seconds in times:
        log.add(seconds, 1)
    log.fold()
    times.sort()
    for percentile in (50, 95, 99, 99.9):
        exact_us = times[math.ceil(len(times) * percentile / 100) - 1] * 1e6
        seen_us = log.histogram.get_value_at_percentile(percentile)
        assert seen_us == pytest.approx(exact_us, rel=0.004)
    assert log.histogram.get_total_count() == len(times)


def test_records_of_a_batch_count_from_their_own_due_time() -> None:
    log = TimeLog(record_interval_s=0.001)
    log.add(0.100, 100)  # the first record waited 100 ms, the last 1 ms
    log.fold()
    assert log.histogram.get_total_count() == 100
    assert log.histogram.get_max_value() == pytest.approx(100_000, rel=0.01)
    assert log.histogram.get_min_value() == pytest.approx(1_000, rel=0.01)
    assert log.histogram.get_value_at_percentile(50) >= 34_000 - 100


def test_only_the_window_counts_and_the_total_counts_all() -> None:
    account = Account(10.0, 20.0, 0.001)
    for now in (9.9, 10.0, 19.9, 20.0):
        account.sent(1, now)
        account.acked(3, now - 0.5, 2, 200, now)
        account.failed("NotLeader", 4, now, 3)
    assert (account.sent_records, account.acked_records, account.failed_records) == (2, 4, 8)
    assert (account.acked_total, account.failed_total) == (8, 16)
    assert account.acked_by_partition == {3: 8}
    assert account.errors == {"NotLeader": 16}
    assert account.errors_by_partition == {3: {"NotLeader": 16}}
    account.latency.fold()
    assert account.latency.histogram.get_total_count() == 4
