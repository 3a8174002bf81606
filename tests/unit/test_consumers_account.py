"""The account of groups: the ranges that they read, their lag at the end, and the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.engine.consuming.ledger import GroupLedger, Position
from jobs.engine.stage import TASK_SCHEMA, reports_to_batch
from jobs.engine.task.window import Window
from metrics.judging.thresholds import Thresholds
from metrics.judging.validity import consumers_limited, consumption_mismatch
from metrics.trial.adding import Histogram
from metrics.trial.client import (
    ClientWindow,
    ConsumerReport,
    Counts,
    ProducerReport,
    TaskReport,
    merge,
)
from metrics.trial.consumption import GroupCounts, GroupShare, ReadRange, join_ranges, lag_slope
from metrics.trial.evidence import Reason
from tests.support.evidence import evidence, goal


def test_lag_is_sampled_on_a_grid_from_the_windows_start() -> None:
    ledger = GroupLedger(0, 1, 0.001)
    ledger.window = Window(10.0, 12.0)
    for now, lag in [(9.9, 7), (10.0, 1), (10.3, 2), (10.6, 3), (11.7, 4), (12.4, 5)]:
        ledger.sample_lag(lag, now)
    assert ledger.share([]).counts.lag_records == (1, 3, 4, 4, 5)
    ledger.window = Window(10.0, 11.1)
    assert ledger.share([]).counts.lag_records == (1, 3, 4), "of a window that ended early"


def test_the_slope_of_lag() -> None:
    assert lag_slope([100, 150, 200, 250], 0.5) == pytest.approx(100.0)
    assert lag_slope([5, 5, 5], 1.0) == 0.0
    assert lag_slope([0, 10, 0, 10, 0], 1.0) == pytest.approx(0.0), "waves are no trend"
    assert math.isnan(lag_slope([5], 1.0))


def test_ranges_of_members_are_joined_and_rereads_count_once() -> None:
    parts = [(1, 50, 90, 40), (0, 0, 5, 5), (1, 0, 50, 50), (1, 80, 120, 40), (2, 0, 5, 5)]
    joined = [(0, 0, 5, 5), (1, 0, 120, 120), (2, 0, 5, 5), (2, 6, 7, 1)]
    found = join_ranges([ReadRange(*each) for each in (*parts, (2, 6, 7, 1))])
    assert found == tuple(ReadRange(*each) for each in joined)


def test_shares_of_tasks_travel_and_become_one_window_per_group() -> None:
    one = GroupCounts(0, 1, 10, 100, (1, 2, 3), unread_records=4, notes=("four unread",))
    shares = (
        GroupShare(one, Histogram([5_000.0]), (ReadRange(0, 0, 10, 10),)),
        GroupShare(
            GroupCounts(0, 2, 5, 50, (0, 10, 20, 30)), Histogram(), (ReadRange(1, 5, 15, 10),)
        ),
        GroupShare(GroupCounts(1, 1, errors={"X": 2}, rebalances=1)),
    )
    consumer = TaskReport(1, "h", 100.0, 110.0, consumed=ConsumerReport(0.7, shares))
    producer = TaskReport(0, "h", 100.0, 110.0, ProducerReport(Counts(loop_busy=0.1, cpu_s=2.0)))
    batch = reports_to_batch([producer, consumer])
    assert batch.schema == TASK_SCHEMA
    assert [TaskReport.from_row(row) for row in batch.to_pylist()] == [producer, consumer]
    client = merge([producer, consumer])
    assert (client.counts.loop_busy, client.counts.cpu_s) == (0.1, 2.0)
    assert client.consumer_loop_busy == 0.7
    first, second = client.groups
    counts = first.counts
    assert (counts.members, counts.records, counts.wire_bytes) == (3, 15, 150)
    assert (counts.unread_records, counts.notes) == (4, ("four unread",))
    assert counts.lag_records == (1, 12, 23)
    assert (first.records_total, first.reread_records) == (20, 0)
    assert first.latency.p50_ms == pytest.approx(5.0, rel=0.001)
    assert first.lag_slope_records_per_s == pytest.approx(22.0)
    assert first.read_by_partition == (ReadRange(0, 0, 10, 10), ReadRange(1, 5, 15, 10))
    assert (second.counts.errors, second.counts.rebalances) == ({"X": 2}, 1)
    assert math.isnan(second.latency.p50_ms)


def window(
    *read_ranges: ReadRange,
    acked: dict[int, int] | None = None,
    acked_records: int = 0,
    busy: float = 0.0,
    **counts: Any,
) -> ClientWindow:
    """A trial of 1,000 offered records whose group 0 read these ranges.

    Args:
        acked: partition → records acknowledged.
        acked_records: records acknowledged inside the window.
        busy: how busy the consumers' loop is [ratio].
        counts: counts of the group.
    """
    produced = ProducerReport(
        Counts(offered_records=1_000, acked_records=acked_records, acked_by_partition=acked or {})
    )
    consumed = ConsumerReport(
        busy, (GroupShare(GroupCounts(0, 1, **counts), read_ranges=read_ranges),)
    )
    return merge([TaskReport(0, "h", 100.0, 110.0, produced, consumed)])


def mismatches(seen: ClientWindow, ends: dict[int, int] | None) -> list[Reason]:
    """The reasons of the rule, with these end offsets after the trial."""
    offsets = None if ends is None else {partition: (5, end) for partition, end in ends.items()}
    return consumption_mismatch(evidence(seen, end_offsets=offsets), Thresholds())


def test_the_ranges_of_groups_are_compared_with_the_end_offsets() -> None:
    for ranges, says in (
        ([(0, 5, 100, 95), (1, 0, 50, 50)], ""),
        ([(0, 5, 60, 55), (0, 60, 80, 20)], ""),
        ([(0, 5, 60, 55), (0, 70, 100, 30)], "missed 10 records of partition 0 from "),
        ([(1, 0, 51, 51)], "1 records beyond the end offset of partition 1"),
        ([(0, 5, 100, 94)], "94 records in 95 offsets of partition 0 from offset 5 on"),
    ):
        seen = window(*(ReadRange(*each) for each in ranges))
        reasons = mismatches(seen, {0: 100, 1: 50})
        assert [each.indicator for each in reasons] == ["consumption_mismatch"] * bool(says)
        assert all("consumer group 0" in each.text and says in each.text for each in reasons)
        assert mismatches(seen, None) == []


def test_unread_records_are_reported_with_their_place_and_judged_by_the_lag(
    snapshot: SnapshotAssertion,
) -> None:
    ledger, behind = GroupLedger(2, 1, 0.001), Position(7, 10)
    ledger.window = Window(0.0, 1.0)
    counts = ledger.share([behind, Position(8, 5)], {7: 25, 8: 5}).counts
    assert counts.unread_records == 15
    (note,) = counts.notes
    assert note == snapshot
    assert ledger.share([behind], {7: 10}).counts.notes == ()
    assert ledger.share([behind]).counts.unread_records == 0


def test_acknowledged_records_that_a_group_did_not_read_are_judged_by_its_lag() -> None:
    acked = {0: 10, 7: 15}
    stalled = window(ReadRange(0, 0, 10, 10), lag_records=(0, 3), acked=acked)
    (reason,) = mismatches(stalled, acked)
    assert "did not read 15 acknowledged records of 1 partitions" in reason.text
    assert "the first of them partition 7, although its lag was 3" in reason.text
    slow = window(ReadRange(0, 0, 10, 10), lag_records=(0, 40), acked=acked)
    assert mismatches(slow, acked) == [], "the rule of lag reports it"
    produced = Counts(acked_by_partition={0: 10}, control_records_by_partition={0: 2})
    for end, is_whole in ((12, True), (9, False)):
        seen = replace(window(ReadRange(0, 0, end, end)), counts=produced)
        assert (mismatches(seen, {0: 12}) == []) is is_whole, "ends of transactions are offsets"


def test_lag_of_busy_consumers_belongs_to_the_generator() -> None:
    def reasons(busy: float, thresholds: Thresholds) -> list[str]:
        lagging = evidence(window(acked_records=1_000, records=400, busy=busy))
        return [each.indicator for each in consumers_limited(lagging, thresholds)]

    strict = goal(consumer_lag_growth_max=0.5)
    assert reasons(0.5, strict) == []
    assert reasons(0.99, strict) == ["generator_limited"]
    assert reasons(0.99, goal(consumer_lag_growth_max=0.6)) == []
