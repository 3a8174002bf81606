"""Choice of the full batches that a request takes from the waiting ones."""

from __future__ import annotations

from jobs.engine.batches.pool import BatchPool
from jobs.engine.batches.sections import Section
from jobs.engine.producing.producer import PendingBatches
from jobs.engine.producing.protocol import Batch
from tests.support.patterns import producer_pattern

POOL = BatchPool(producer_pattern(message_bytes=100, rate_records_per_s=1_000.0, pool_bytes=20_000))
SECTION: Section = POOL.sections[0]
SIZE = SECTION.size_of(10)


def pending_of(*partitions: int) -> PendingBatches:
    """Batches of ten records each, for these partitions, due a second apart."""
    made = PendingBatches()
    made.extend(
        Batch(partition, 10 * place, 10, SECTION, float(place))
        for place, partition in enumerate(partitions)
    )
    return made


def taken(
    pending: PendingBatches, count: int = 400, size_bytes: int = 1_000_000
) -> list[tuple[int, int]]:
    """(partition, place among all batches) of the batches of the next request."""
    return [(b.partition, b.first // 10) for b in pending.take(count, size_bytes)]


def test_partitions_take_turns_with_one_batch_in_each_request() -> None:
    pending = pending_of(1, 1, 2, 2, 3)
    assert taken(pending) == [(1, 0), (2, 2), (3, 4)]
    assert taken(pending) == [(1, 1), (2, 3)]
    assert (taken(pending), bool(pending)) == ([], False)
    pending = pending_of(1, 1, 1, 2, 3)
    assert taken(pending, count=2) == [(1, 0), (2, 3)]
    assert taken(pending, count=2) == [(3, 4), (1, 1)]
    assert taken(pending, count=2) == [(1, 2)]


def test_a_request_is_full_at_its_size_and_holds_one_batch_at_least() -> None:
    pending = pending_of(1, 2, 3)
    assert taken(pending, size_bytes=2 * SIZE) == [(1, 0), (2, 1)]
    assert taken(pending, size_bytes=SIZE - 1) == [(3, 2)]
    pending = pending_of(1, 2, 1)
    assert taken(pending, size_bytes=2 * SIZE - 1) == [(1, 0)]
    assert list(pending.queues) == [2, 1], "the batch that did not fit is the first of the next"


def test_the_overdue_of_every_partition_are_taken() -> None:
    pending = pending_of(1, 2, 1, 2)
    assert sorted(batch.first for batch in pending.take_overdue(2.0)) == [0, 10]
    assert pending.take_overdue(2.0) == []
    assert taken(pending) == [(1, 2), (2, 3)]
    assert not pending
