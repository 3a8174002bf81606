"""Choice of the full batches that a request takes from the waiting ones."""

from __future__ import annotations

from tests.support.driven_delivery import DrivenDelivery

SIZE = 161
"""Size of a batch of one record, with the header [B]."""


def waiting(*partitions: int) -> DrivenDelivery:
    """Batches of one record each that wait at broker 1, for these partitions in this order."""
    made = DrivenDelivery(leaders=(1,) * 4, rate=0.001)
    for partition in partitions:
        made.producer.partition = partition
        batch = made.producer.seal(1, 0.0)
        made.delivery._accumulator.queue_of(made.producer, partition, 0.0).batches.append(batch)
    return made


def taken(
    made: DrivenDelivery, count: int = 400, size_bytes: int = 1_000_000
) -> list[tuple[int, int]]:
    """(partition, place among all batches) of the batches of the next request."""
    return [(batch.partition, batch.first) for batch in made.one.drain(count, size_bytes)]


def test_partitions_take_turns_with_one_batch_in_each_request() -> None:
    made = waiting(1, 1, 2, 2, 3)
    assert taken(made) == [(1, 0), (2, 2), (3, 4)]
    assert taken(made) == [(1, 1), (2, 3)]
    assert (taken(made), made.producer.queues, made.one.has_waiting) == ([], {}, False)
    made = waiting(1, 1, 1, 2, 3)
    assert [taken(made, count=2) for _ in range(3)] == [
        [(1, 0), (2, 3)], [(3, 4), (1, 1)], [(1, 2)]
    ]  # fmt: skip


def test_a_request_is_full_at_its_size_and_holds_one_batch_at_least() -> None:
    made = waiting(1, 2, 3)
    assert taken(made, size_bytes=2 * SIZE) == [(1, 0), (2, 1)]
    assert taken(made, size_bytes=SIZE - 1) == [(3, 2)]
    made = waiting(1, 2, 1)
    assert taken(made, size_bytes=2 * SIZE - 1) == [(1, 0)]
    assert list(made.one.queues) == [2, 1], "the batch that did not fit is the first of the next"
