"""What waits for one partition of one producer while batches cannot simply be sent."""

from __future__ import annotations

import random
from bisect import insort
from collections import deque

from jobs.engine.batch import Batch
from jobs.engine.pattern import ProducerPattern
from jobs.engine.producer import Producer

_JITTER = 0.2
_EXPONENT_MAX = 62


def backoff_s(pattern: ProducerPattern, failures: int, rng: random.Random) -> float:
    """How long to wait after so many failures in a row, at least one [s].

    Doubles from `retry_backoff_ms` up to `retry_backoff_max_ms`, 20 % up or down, so that
    clients that failed together do not come back together (KIP-580).
    """
    doubled_ms: float = pattern.retry_backoff_ms * 2 ** min(failures - 1, _EXPONENT_MAX)
    bounded_ms = min(doubled_ms, pattern.retry_backoff_max_ms)
    jittered_ms = bounded_ms * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return min(jittered_ms, pattern.retry_backoff_max_ms) / 1000.0


def _by_first(batch: Batch) -> int:
    return batch.first


class Lane:
    """One partition of one producer that is held up.

    A batch that failed goes before all that come after it, and one at a time: so the order
    of a partition's records changes no more than `max_in_flight` lets it, and an idempotent
    producer's sequences stay in order.

    Attributes:
        again: batches to send again, in the order of their records.
        queue: full batches that were never sent, in order.
        under_way: the batch that was sent again and is not answered yet.
        not_before_s: nothing is sent again earlier.
        scheduled_s: when to look at this lane next.
        turns: looks in a row that found no way to the leader.
        open_batch_waits: the producer's open batch is ready and waits here too.
    """

    __slots__ = (
        "again",
        "not_before_s",
        "open_batch_waits",
        "partition",
        "producer",
        "queue",
        "scheduled_s",
        "turns",
        "under_way",
    )

    def __init__(self, producer: Producer, partition: int) -> None:
        self.producer = producer
        self.partition = partition
        self.again: list[Batch] = []
        self.queue: deque[Batch] = deque()
        self.under_way: Batch | None = None
        self.not_before_s = 0.0
        self.scheduled_s = 0.0
        self.turns = 0
        self.open_batch_waits = False
        for connection in producer.connections.values():
            self.queue.extend(connection.queue.take_partition(partition))
            if connection.open_batch_waits and producer.partition == partition:
                connection.open_batch_waits = False
                self.open_batch_waits = True

    def put_back(self, batch: Batch) -> None:
        """A batch failed and is to be sent again."""
        if self.under_way is batch:
            self.under_way = None
        insort(self.again, batch, key=_by_first)

    def take_overdue(self, due_before_s: float) -> list[Batch]:
        """Take out the batches whose first record was due before this time."""
        overdue = [b for b in (*self.again, *self.queue) if b.due_s < due_before_s]
        if overdue:
            self.again = [b for b in self.again if b.due_s >= due_before_s]
            self.queue = deque(b for b in self.queue if b.due_s >= due_before_s)
        return overdue
