"""What producers report adds up with what the logs hold, and each producer can be judged."""

from __future__ import annotations

from typing import Any

import pytest

from metrics.judging.validity import accounting_mismatch, errors_unexplained
from metrics.trial.by_producer import ByProducer
from metrics.trial.client import TaskRow, merge
from metrics.trial.producer_shares import ProducerShares
from tests.support.evidence import client


@pytest.mark.parametrize(
    ("growth", "words"),
    [
        ({0: 6_000, 1: 6_003}, None),
        ({0: 6_002, 1: 6_003}, None),
        ({0: 6_003, 1: 6_000}, "1 more than the 12000 acknowledged and 3 failed and at most 2"),
        ({0: 6_003, 1: 6_000}, "sent twice, 1 of them on partition 0"),
        ({0: 6_000, 1: 6_004}, "1 of them on partition 1"),
        ({0: 6_002, 1: 5_999}, "1 acknowledged records are missing from the end offsets"),
    ],
)
def test_each_partition_has_to_add_up(growth: dict[int, int], words: str | None) -> None:
    account = client(
        failed_total=3,
        failed_by_partition={1: 3},
        duplicates_at_most=2,
        duplicates_by_partition={0: 2},
    )
    reasons = accounting_mismatch(account, growth)
    assert [reason.indicator for reason in reasons] == ["accounting_mismatch"] * bool(words)
    assert words is None or words in reasons[0].text


def test_records_that_had_to_be_sent_again_say_what_happened() -> None:
    reasons = errors_unexplained(
        client(retry_errors={"NotLeaderForPartitionError": 5, "ConnectionClosed": 7})
    )
    assert [reason.indicator for reason in reasons] == ["unexpected_errors", "leaders_moved"]
    assert "7 records were sent again because of ConnectionClosed" in reasons[0].text
    assert errors_unexplained(client(retry_errors={"RequestTimedOutError": 5})) == []


def test_shares_of_producers_merge_over_tasks() -> None:
    one = ProducerShares.of([(0, 100, 100), (2, 97, 100), (4, 0, 0)])
    other = ProducerShares.of([(1, 101, 100), (3, 100, 100)])
    merged = ProducerShares.merged([one, ProducerShares(), other])
    assert (merged.lowest, merged.highest, merged.worst) == (0.97, 1.01, 2)
    assert merged.farthest == pytest.approx(0.03)
    assert merged.quantile(50.0) == pytest.approx(1.0, abs=0.001)
    assert merged.quantile(100.0) == pytest.approx(1.01, abs=0.001)
    assert ProducerShares.of([]) == ProducerShares() == ProducerShares.merged([])


def test_a_trial_sums_what_its_tasks_sent_again() -> None:
    def row(task: int, **changes: Any) -> TaskRow:
        return TaskRow(task, "host", 2, 10.0, 20.0, **changes)

    window = merge(
        [
            row(0, retried_records=3, duplicates_by_partition={0: 2}, retry_errors={"E": 3}),
            row(1, retried_records=4, duplicates_by_partition={0: 1, 5: 1}, retry_errors={"E": 4}),
        ]
    )
    assert (window.retried_records, window.duplicates_at_most) == (7, 4)
    assert window.duplicates_by_partition == {0: 3, 5: 1}
    assert window.retry_errors == {"E": 7}


def test_a_trial_has_the_account_of_each_producer() -> None:
    def row(task: int, **changes: Any) -> TaskRow:
        return TaskRow(task, "host", 2, 10.0, 20.0, **changes)

    window = merge(
        [
            row(0, by_producer=ByProducer({0: 9, 2: 9}, acked={0: 9, 2: 8}, failed={2: {"E": 1}}),
                errors_by_partition={3: {"E": 1}}, sent_by_partition={3: 9}),
            row(1, by_producer=ByProducer({1: 9}, acked={1: 9}, retried={1: 2}),
                retried_by_partition={3: 2}, errors_by_partition={3: {"E": 2, "F": 1}, 4: {"F": 1}},
                sent_by_partition={3: 1}),
        ]
    )  # fmt: skip
    assert window.by_producer.offered == {0: 9, 1: 9, 2: 9}
    assert window.by_producer.acked == {0: 9, 1: 9, 2: 8}
    assert window.by_producer.failed == {2: {"E": 1}}
    assert window.errors_by_partition == {3: {"E": 3, "F": 1}, 4: {"F": 1}}
    assert window.sent_by_partition == {3: 10}
    assert (window.retried_by_partition, window.by_producer.retried) == ({3: 2}, {1: 2})


def test_shares_of_a_row_are_merged() -> None:
    shares = ProducerShares.of([(0, 9, 10)])
    lone = TaskRow(
        1, "host", 2, 10.0, 20.0, producer_share_min=shares.lowest,
        producer_share_max=shares.highest, producer_worst=shares.worst,
        producer_shares=shares.parts,
    )  # fmt: skip
    window = merge([TaskRow(0, "host", 2, 10.0, 20.0), lone])
    assert (window.producer_share_min, window.producer_worst) == (0.9, 0)
