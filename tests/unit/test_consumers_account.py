"""What groups read and how far they are behind in the end, and what that says of a trial."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pyarrow as pa
import pytest

from jobs.engine.consumers.ledger import GroupLedger, Position
from metrics.judging.group_rules import (
    consumers_limited,
    consumption_mismatch,
    lag_growth_per_s,
)
from metrics.judging.thresholds import Thresholds
from metrics.tables.records import trial_record
from metrics.tables.schema import SCHEMAS
from metrics.trial.client import TASK_ROW_SCHEMA, TaskRow, merge, task_rows_to_batch
from metrics.trial.consumption import GroupShare, Stint, ranges
from metrics.trial.evidence import ClientWindow
from metrics.trial.group_windows import group_windows
from metrics.trial.lag import lag_slope
from tests.support.rows import trial


def test_lag_is_sampled_on_a_grid_from_the_windows_start() -> None:
    ledger = GroupLedger(0, 1, 0.001)
    ledger.window_s = (10.0, 12.0)
    for now, lag in [(9.9, 7), (10.0, 1), (10.3, 2), (10.6, 3), (11.7, 4), (12.4, 5)]:
        ledger.sample_lag(lag, now)
    assert ledger.share([]).lag_records == (1, 3, 4, 4, 5)
    ledger.window_s = (10.0, 11.1)
    assert ledger.share([]).lag_records == (1, 3, 4), "of a window that ended early"


def test_the_slope_of_lag() -> None:
    assert lag_slope([100, 150, 200, 250], 0.5) == pytest.approx(100.0)
    assert lag_slope([5, 5, 5], 1.0) == 0.0
    assert lag_slope([0, 10, 0, 10, 0], 1.0) == pytest.approx(0.0), "waves are no trend"
    assert math.isnan(lag_slope([5], 1.0))


def test_ranges_join_what_members_took_over_and_count_rereads_once() -> None:
    stints = [Stint(1, 50, 90, 40), Stint(0, 0, 5, 5), Stint(1, 0, 50, 50), Stint(1, 80, 120, 40)]
    assert ranges(stints) == (Stint(0, 0, 5, 5), Stint(1, 0, 120, 120))
    assert ranges([Stint(1, 0, 50, 50), Stint(1, 60, 70, 10)]) == (
        Stint(1, 0, 50, 50),
        Stint(1, 60, 70, 10),
    )


def shares() -> list[GroupShare]:
    return [
        GroupShare(0, 1, 10, 100, lag_records=(1, 2, 3), stints=(Stint(0, 0, 10, 10),)),
        GroupShare(0, 2, 5, 50, lag_records=(0, 10, 20, 30), stints=(Stint(1, 5, 15, 10),)),
        GroupShare(1, 1, errors={"X": 2}, rebalances=1, stints=(Stint(0, 0, 10, 10),)),
    ]


def test_shares_of_tasks_become_one_window_per_group() -> None:
    first, second = group_windows(shares())
    assert (first.members, first.records, first.records_total) == (3, 15, 20)
    assert first.lag_records == (1, 12, 23)
    assert first.lag_slope_records_per_s == pytest.approx(22.0)
    assert first.read_by_partition == (Stint(0, 0, 10, 10), Stint(1, 5, 15, 10))
    assert (dict(second.errors), second.rebalances) == ({"X": 2}, 1)
    assert math.isnan(second.latency_p50_ms)


def test_groups_travel_in_rows() -> None:
    consumer = TaskRow(1, "h", 0, 100.0, 110.0, role="consumer", groups=tuple(shares()))
    producer = TaskRow(0, "h", 2, 100.0, 110.0, loop_busy=0.1, cpu_s=2.0)
    busy = dataclasses.replace(consumer, loop_busy=0.7, cpu_s=5.0)
    batch = task_rows_to_batch([producer, busy])
    assert batch.schema == TASK_ROW_SCHEMA
    assert [TaskRow.from_mapping(row) for row in batch.to_pylist()] == [producer, busy]
    client = merge([producer, busy])
    assert [group.group for group in client.groups] == [0, 1]
    assert (client.np, client.loop_busy, client.cpu_s) == (2, 0.1, 2.0)
    assert client.consumer_loop_busy == 0.7


def window(*stints: Stint, **fields: Any) -> ClientWindow:
    """A trial of 1,000 offered records whose group 0 read these stints."""
    (group,) = group_windows([GroupShare(0, 1, stints=stints)])
    row = TaskRow(0, "h", 1, 100.0, 110.0, offered_records=1_000)
    group = dataclasses.replace(group, **fields)
    return dataclasses.replace(merge([row]), groups=(group,))


@pytest.mark.parametrize(
    ("stints", "says"),
    [
        ([Stint(0, 5, 100, 95), Stint(1, 0, 50, 50)], None),
        ([Stint(0, 5, 60, 55), Stint(0, 60, 80, 20)], None),
        ([Stint(0, 5, 60, 55), Stint(0, 70, 100, 30)], "missed 10 records of partition 0 from "),
        ([Stint(1, 0, 51, 51)], "1 records beyond the end offset of partition 1"),
        ([Stint(0, 5, 100, 94)], "94 records in 95 offsets of partition 0 from offset 5 on"),
    ],
)
def test_what_groups_read_is_held_against_the_end_offsets(
    stints: list[Stint], says: str | None
) -> None:
    reasons = consumption_mismatch(window(*stints), {0: 100, 1: 50})
    assert [reason.indicator for reason in reasons] == (["consumption_mismatch"] if says else [])
    assert all("consumer group 0" in each.text and str(says) in each.text for each in reasons)
    assert consumption_mismatch(window(*stints), None) == []


def test_groups_stand_in_the_row_of_their_trial() -> None:
    made = trial(client=window(Stint(0, 5, 100, 95), lag_records=(3, 4), errors={"X": 1}))
    table = pa.Table.from_pylist([trial_record(made)], schema=SCHEMAS["trials"])
    (group,) = table.column("groups")[0].as_py()
    assert group["lag_records"] == [3, 4]
    assert group["errors"] == [("X", 1)]
    assert group["read_by_partition"] == [
        {"partition": 0, "from_offset": 5, "to_offset": 100, "records": 95}
    ]
    assert group["lag_slope_records_per_s"] is None, "of one point there is no slope"


def test_what_was_not_read_is_said_with_its_place_and_judged_by_the_lag() -> None:
    ledger, behind = GroupLedger(2, 1, 0.001), Position(7, 10)
    ledger.window_s = (0.0, 1.0)
    share = ledger.share([behind, Position(8, 5)], {7: 25, 8: 5})
    assert share.unread_records == 15
    assert share.note == (
        "consumer group 2 had 15 acknowledged records unread at the end of the drain, in 1 "
        "partitions, first of partition 7"
    )
    assert (ledger.share([behind], {7: 10}).note, ledger.share([behind]).unread_records) == (
        None,
        0,
    )


def test_acknowledged_records_that_a_group_did_not_read_are_judged_by_its_lag() -> None:
    acked = {0: 10, 7: 15}
    stalled = window(Stint(0, 0, 10, 10), lag_records=(0, 3))
    (reason,) = consumption_mismatch(
        dataclasses.replace(stalled, acked_by_partition=acked), {0: 10, 7: 15}
    )
    assert "did not read 15 acknowledged records of 1 partitions" in reason.text
    assert "first of partition 7, although its lag was 3" in reason.text
    slow = window(Stint(0, 0, 10, 10), lag_records=(0, 40))
    slow = dataclasses.replace(slow, acked_by_partition=acked)
    assert consumption_mismatch(slow, {0: 10, 7: 15}) == [], "the lag speaks for itself"


def test_lag_growth_is_of_groups_that_have_one() -> None:
    assert lag_growth_per_s(window(lag_slope_records_per_s=3.5)) == {"0": 3.5}
    assert lag_growth_per_s(window()) == {}


def test_lag_of_busy_consumers_is_the_generators_own() -> None:
    lagging = window(lag_slope_records_per_s=60.0)
    strict = Thresholds(consumer_lag_growth_max=0.5)
    assert consumers_limited(dataclasses.replace(lagging, consumer_loop_busy=0.5), strict) == []
    busy = dataclasses.replace(lagging, consumer_loop_busy=0.99)
    assert [each.indicator for each in consumers_limited(busy, strict)] == ["generator_limited"]
    assert consumers_limited(busy, Thresholds()) == []
