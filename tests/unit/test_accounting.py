"""Counts of producers add up with the logs, and each producer can be judged."""

from __future__ import annotations

from typing import Any

import pytest

from metrics.judging.thresholds import Thresholds
from metrics.judging.validity import accounting_mismatch, errors_unexplained
from metrics.trial.adding import ProducerShares, total
from metrics.trial.client import Counts, ProducerAccounts, ProducerReport, TaskReport, merge
from tests.support.evidence import client, evidence

GOAL = Thresholds()


IN_DOUBT = {"errors": {"RequestTimedOutError": 3}, "duplicates_by_partition": {0: 2}}
"""Failed records, and repeated ones."""
ENDS = {"control_records_by_partition": {0: 7}}
"""Ends of transactions, which are records of the logs, too."""


@pytest.mark.parametrize(
    ("counts", "growth", "words"),
    [
        (IN_DOUBT, (6_000, 6_003), None),
        (IN_DOUBT, (6_002, 6_003), None),
        (IN_DOUBT, (6_003, 6_000), "after 12000 acknowledged, 3 failed and"),
        (IN_DOUBT, (6_003, 6_000), "records of unknown origin, 1 of them on partition 0"),
        (IN_DOUBT, (6_000, 6_004), "1 of them on partition 1"),
        (IN_DOUBT, (6_002, 5_999), "1 acknowledged records are missing from the logs, because"),
        (ENDS, (6_007, 6_000), None),
        (ENDS, (6_006, 6_000), "1 acknowledged records and ends of transactions are missing"),
        (ENDS, (6_008, 6_000), "12000 acknowledged and 7 ends of transactions, 0 failed"),
    ],
)
def test_each_partition_has_to_add_up(
    counts: dict[str, Any], growth: tuple[int, int], words: str | None
) -> None:
    seen = evidence(client(**counts), growth=dict(enumerate(growth)))
    reasons = accounting_mismatch(seen, GOAL)
    assert [reason.indicator for reason in reasons] == ["accounting_mismatch"] * bool(words)
    assert words is None or words in reasons[0].text


def test_errors_of_records_that_were_sent_again_are_reasons() -> None:
    for errors, indicators in (
        ({"NotLeaderForPartitionError": 5, "ConnectionClosed": 7},
         ["unexpected_errors", "leaders_moved"]),
        ({"RequestTimedOutError": 5}, []),
    ):  # fmt: skip
        reasons = errors_unexplained(evidence(client(retry_errors=errors)), GOAL)
        assert [reason.indicator for reason in reasons] == indicators
        if reasons:
            assert "7 records were sent again because of ConnectionClosed" in reasons[0].text


def test_shares_of_producers_merge_over_tasks() -> None:
    one = ProducerShares.of([(0, 100, 100), (2, 97, 100), (4, 0, 0)])
    other = ProducerShares.of([(1, 101, 100), (3, 100, 100)])
    merged = total([one, ProducerShares(), other])
    assert (merged.lowest, merged.highest, merged.worst) == (0.97, 1.01, 2)
    assert merged.farthest == pytest.approx(0.03)
    assert merged.median == pytest.approx(1.0, abs=0.001)
    assert merged.parts.quantile(100.0) == pytest.approx(1_010_000, rel=0.001)
    assert merged.parts.count == 4
    assert ProducerShares.of([]) == ProducerShares() == total([ProducerShares(), ProducerShares()])


def test_a_trial_has_the_account_of_each_producer() -> None:
    one = Counts(
        offered_records=10, acked_by_partition={0: 4, 1: 5}, loop_busy=0.3, cpu_s=1.0,
        throttle_ms=2,
        by_producer=ProducerAccounts({0: 9, 2: 9}, acked={0: 9, 2: 8}, failed={2: {"E": 1}}),
        errors_by_partition={3: {"E": 1}}, duplicates_by_partition={0: 2}, retry_errors={"E": 3},
    )  # fmt: skip
    other = Counts(
        offered_records=20, acked_by_partition={1: 20}, loop_busy=0.9, cpu_s=2.0,
        by_producer=ProducerAccounts({1: 9}, acked={1: 9}, retried={1: 2}),
        errors_by_partition={3: {"E": 2, "F": 1}, 4: {"F": 1}}, retried_by_partition={3: 2},
        duplicates_by_partition={0: 1, 5: 1}, retry_errors={"E": 4},
    )  # fmt: skip
    reports = [
        TaskReport(task, "host", 10.0, 20.0, ProducerReport(counts))
        for task, counts in enumerate((one, other))
    ]
    window = merge(reports)
    counts = window.counts
    assert (window.duration_s, window.task_errors) == (10.0, ())
    assert (counts.offered_records, counts.acked_total) == (30, 29)
    assert counts.acked_by_partition == {0: 4, 1: 25}
    assert (counts.loop_busy, counts.cpu_s, counts.throttle_ms) == (0.9, 3.0, 2)
    assert counts.by_producer == ProducerAccounts(
        {0: 9, 1: 9, 2: 9}, acked={0: 9, 1: 9, 2: 8}, failed={2: {"E": 1}}, retried={1: 2}
    )
    assert counts.errors_by_partition == {3: {"E": 3, "F": 1}, 4: {"F": 1}}
    assert (counts.failed_by_partition, counts.errors) == ({3: 4, 4: 1}, {"E": 3, "F": 2})
    assert (counts.retried_records, counts.retry_errors) == (2, {"E": 7})
    assert (counts.duplicates_at_most, counts.duplicates_by_partition) == (4, {0: 3, 5: 1})
